"""How well a ladder's bands hold. `python tests/bench/ladder_bands.py` prints the tables of docs/ladder.md.

Every rung of data/ladder predicted by the four others, and by each three of them: which share of its points lies inside
the 90 % band, and how far off its final losses are.
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import ladder_faults as recorded
import numpy as np

from detectors import ladder_fit
from detectors.ladder_rungs import START, Line, Rung
from detectors.noise import BLOCK
from detectors.series import Array

LAST = {"loss": 0.95, "eval_loss": 0.92}  # the share from which on values are final: two evaluations lie behind it


class Held(NamedTuple):
    """How a metric of a rung compares with what the others predict: share of points inside, relative error of the final
    value and of what it itself is known by (NaN where there is none), whether it lies in its band.
    """

    inside: float
    miss: float
    known: float
    final_inside: bool


def ladder() -> dict[str, Rung]:
    """The recorded rungs."""
    return {
        name: recorded.rung(
            name, recorded.read(recorded.DATA / "ladder" / f"{name}.parquet"), parameters, recorded.STEPS[name]
        )
        for name, parameters in recorded.PARAMETERS.items()
    }


def held(rungs: Sequence[Rung], large: Rung) -> tuple[dict[str, Any], dict[str, Held]]:
    """The expectations from some rungs, and how another one compares with them, by metric."""
    body = ladder_fit.fit(rungs, large.parameters, {})
    return body, {name: _held(body, one, large.lines[name]) for name, one in body["metrics"].items()}


def _held(body: dict[str, Any], one: dict[str, Any], line: Line) -> Held:
    at, value = points(line, one["base"])
    miss = value - np.interp(at, body["at"], one["centre"])
    half = ladder_fit.Z90 * np.hypot(np.interp(at, body["at"], one["sd"]), one["noise"])
    last = value[at >= LAST.get(one["role"], 1.0)]
    inside = float((np.abs(miss) <= half).mean())
    if "final" not in one or not len(last):
        return Held(inside, np.nan, np.nan, False)
    end = float(np.exp(last.mean()))
    error = one["final"]["value"] / end - 1
    return Held(inside, error, float(last.std()) / len(last) ** 0.5, one["final"]["low"] <= end <= one["final"]["high"])


def points(line: Line, base: float) -> tuple[Array, Array]:
    """What is judged, on its scale: samples, of drops the means of blocks; from START on, finite ones."""
    at, value = line.at, line.value
    if line.role == "token_drop":
        at, value = (each[: len(each) // BLOCK * BLOCK].reshape(-1, BLOCK) for each in (at, value))
        at, value = at[:, -1], value.mean(axis=1)
    value = ladder_fit.transformed(line.role, value, ladder_fit.began(value) if line.role == "param_norm" else base)
    good = (at >= START) & (at <= 1) & np.isfinite(value)
    return at[good], value[good]


def splits(names: Sequence[str], count: int) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every so many rungs, and each other one."""
    for few in combinations(names, count):
        yield from ((few, other) for other in names if other not in few)


def main() -> None:
    """Print the table of every prediction, and the mean over them."""
    rungs = ladder()
    for count in (4, 3):
        print(f"| fitted on | predicted | {' | '.join(recorded.METRICS[:-1])} |\n|---|---|{'---:|' * 6}")
        covered: dict[str, list[float]] = {name: [] for name in recorded.METRICS[:-1]}
        for few, other in splits(list(rungs), count):
            _, found = held([rungs[name] for name in few], rungs[other])
            cells = []
            for name, each in covered.items():
                one = found[name]
                each.append(one.inside)
                end = f", {one.miss:+.2%} ({'in' if one.final_inside else 'OUT'})" if np.isfinite(one.miss) else ""
                cells.append(f"{one.inside:.0%}{end}")
            print(f"| {', '.join(few)} | {other} | {' | '.join(cells)} |")
        print(f"| mean | | {' | '.join(f'{np.mean(each):.1%}' for each in covered.values())} |\n")


if __name__ == "__main__":
    sys.exit(main())
