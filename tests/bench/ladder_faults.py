"""How soon faults are found with a ladder and without one. `python tests/bench/ladder_faults.py` prints the tables.

Two halves: slow and small faults injected into the largest rung of data/ladder, judged by the four smaller ones; and the
recorded faults of data/faults, judged by three healthy runs of the same recipe and other seeds. Without a ladder: every
detector that looks at one metric. With it: those, and `departure`. The first finding from S1 on, at or behind the onset, that
the healthy run does not have as well.
"""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from detectors import Finding, Series, departure, inspect, ladder_fit
from detectors.ladder_rungs import Line, Rung
from detectors.series import Array
from flows.sources.roles import role_of

DATA = Path(__file__).parents[2] / "data"
PARAMETERS = {"w24": 14_976, "w32": 25_088, "w48": 52_992, "w64": 91_136, "w96": 198_144}
STEPS = {"w24": 1755, "w32": 1960, "w48": 2760, "w64": 3560, "w96": 5805}
METRICS = (
    "train/loss", "moe/drop_fraction", "train/router/routing_entropy_mean", "grad/norm/total", "params/norm/total",
    "eval/loss", "optim/learning_rate",
)  # fmt: skip

Values = Mapping[str, tuple[Array, Array]]  # metric -> steps, values


def read(path: Path) -> Values:
    """The whole-run metrics of a log, the last value of a step."""
    frame = pl.read_parquet(path)
    out = {}
    for name in METRICS:
        rows = frame.select("global_step", name).drop_nulls().unique("global_step", keep="last").sort("global_step")
        out[name] = rows["global_step"].to_numpy().astype(float), rows[name].to_numpy().astype(float)
    return out


def rung(name: str, values: Values, parameters: float, steps: float) -> Rung:
    """A log as a rung."""
    lines = {m: Line(role_of(m).role, step / steps, value) for m, (step, value) in values.items()}
    return Rung(name, parameters, lines)


def with_ladder(body: Mapping[str, Any], values: Values, steps: float, name: str) -> list[Finding]:
    """What `departure` says of one metric."""
    if name not in body["metrics"]:
        return []
    one = body["metrics"][name]
    if one["role"] not in departure.GATES:
        return []
    expected = {**one, "at": body["at"], "per_step": 1 / steps, "parameters": body["parameters"]}
    answers, _ = departure.scan(*values[name], name, one["role"], expected, {})
    return [a for a in answers if isinstance(a, Finding)]


def without(values: Values, name: str) -> list[Finding]:
    """What the detectors of one metric say."""
    return [a for a in inspect(Series(*values[name], role=role_of(name).role, name=name)) if isinstance(a, Finding)]


def first(found: list[Finding], onset: float, usual: list[Finding]) -> float:
    """Steps from the onset to the first finding that is more than an annotation and not usual; infinity without one."""
    known = {(f.detector, f.kind, f.detected_step) for f in usual}
    new = (f for f in found if f.severity and (f.detector, f.kind, f.detected_step) not in known)
    return min((f.detected_step - onset for f in new if f.detected_step >= onset), default=math.inf)


def injected() -> Iterator[tuple[str, str, float, Callable[[Array, Array], Array]]]:
    """(fault, metric, onset share, step and value -> value)."""
    for at in (0.35, 0.6):
        start = at * STEPS["w96"]
        far = lambda step, start=start: np.maximum(step - start, 0) / STEPS["w96"]  # noqa: E731
        for size in (0.1, 0.2, 0.4):
            yield (
                f"loss rises {size:g} (log) a schedule",
                "train/loss",
                start,
                lambda s, v, r=size, f=far: v * np.exp(r * f(s)),
            )
        for size in (0.03, 0.05, 0.1):
            yield (
                f"loss {size:.0%} higher",
                "train/loss",
                start,
                lambda s, v, r=size, f=far: np.where(f(s) > 0, v * (1 + r), v),
            )
        for size in (1.0, 3.0):
            yield (
                f"drops grow by e^{size:g} a schedule", "moe/drop_fraction", start,
                lambda s, v, r=size, f=far: np.minimum(v * np.exp(r * f(s)), 0.9),
            )  # fmt: skip
        for size in (0.05, 0.2):
            yield (
                f"router entropy falls by {size:g} nat a schedule", "train/router/routing_entropy_mean", start,
                lambda s, v, r=size, f=far: v - r * f(s),
            )  # fmt: skip
        for size in (0.5, 1.5):
            yield (
                f"gradient norm rises {size:g} (log) a schedule",
                "grad/norm/total",
                start,
                lambda s, v, r=size, f=far: v * np.exp(r * f(s)),
            )
        for size in (0.05, 0.2):
            yield (
                f"parameter norm rises {size:g} (log) a schedule",
                "params/norm/total",
                start,
                lambda s, v, r=size, f=far: v * np.exp(r * f(s)),
            )


def main() -> None:
    """Print both tables and their medians."""
    logs = {name: read(DATA / "ladder" / f"{name}.parquet") for name in PARAMETERS}
    rungs = [rung(name, logs[name], PARAMETERS[name], STEPS[name]) for name in PARAMETERS if name != "w96"]
    body = ladder_fit.fit(rungs, PARAMETERS["w96"], {})
    print("| fault | onset | without, steps | with, steps |\n|---|---:|---:|---:|")
    gains = []
    usual = {name: without(logs["w96"], name) for name in METRICS}
    for fault, name, onset, change in injected():
        values = {name: (logs["w96"][name][0], change(*logs["w96"][name]))}
        alone = first(without(values, name), onset, usual[name])
        ladder = first(
            with_ladder(body, values, STEPS["w96"], name), onset, with_ladder(body, logs["w96"], STEPS["w96"], name)
        )
        gains.append(_row(fault, onset, alone, ladder))
    _median(gains)
    gains = []
    labels = {run["file"]: run for run in json.loads((DATA / "faults" / "labels.json").read_text())["runs"]}
    healthy = {n: read(DATA / "faults" / f"healthy-{n}.parquet") for n in (1, 2, 3, 4)}
    for seed, onset in ((1, 1400.0), (2, 1000.0)):
        own = [rung(f"healthy-{n}", healthy[n], 91_136, 2400) for n in healthy if n != seed]
        body = ladder_fit.fit(own, 91_136, {})
        usual = {name: without(healthy[seed], name) for name in METRICS}
        quiet = {name: [f for f in with_ladder(body, healthy[seed], 2400, name) if f.severity] for name in METRICS}
        print({name: [(f.severity, f.detected_step) for f in found] for name, found in quiet.items() if found})
        for file, label in sorted(labels.items()):
            if not file.endswith(f"-{seed}.parquet") or label["benign"]:
                continue
            values = read(DATA / "faults" / file)
            alone = min(first(without(values, name), onset, usual[name]) for name in METRICS)
            gains.append(
                _row(
                    file, onset, alone, min(first(with_ladder(body, values, 2400, name), onset, []) for name in METRICS)
                )
            )
    _median(gains)


def _row(fault: str, onset: float, without_it: float, ladder: float) -> tuple[float, float]:
    both = min(without_it, ladder)
    said = [f"{each:,.0f}" if each < math.inf else "missed" for each in (without_it, both)]
    print(f"| {fault} | {onset:,.0f} | {said[0]} | {said[1]} |")
    return without_it, both


def _median(gains: list[tuple[float, float]]) -> None:
    """A fault that is missed counts as one that is found at infinity."""
    a, b = np.array(gains).T
    found, more = np.isfinite(b), np.isfinite(b) & np.isinf(a)
    earlier = a[np.isfinite(a)] - b[np.isfinite(a)]
    print(f"\n{len(gains)} faults: {np.isfinite(a).sum()} found without and {found.sum()} with the ladder,")
    print(f"{more.sum()} only with it;")
    print(f"median delay {np.median(a):,.0f} and {np.median(b):,.0f} steps;")
    print(f"of those found without it {(earlier > 0).sum()} are found earlier and {(earlier < 0).sum()} later")


if __name__ == "__main__":
    sys.exit(main())
