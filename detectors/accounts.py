"""Tokens that are not batch times sequence: what a step adds to the count against the sizes that are logged.

Sees: how tokens a step, batch sizes and sequence lengths stood to each other, to 1e-5 for 20 samples. From then on tokens
a step may only change as some batch size, some sequence length, or the product of two of them does: three samples in a row
that differ by more than 0.1 % are S1 (patterns P72, P40): the schedule of one is not that of the other, or tokens are
dropped. Only ratios count: a size by device, or tokens in millions, does as well.
Silent: without a logged size, on counts that a step adds varying amounts to (tokens without padding), on a count that falls.
Fooled by: another accumulation of gradients that is not logged.
False alarms: none by construction while sizes and count follow each other. Units: fraction.
"""

import math
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from detectors.finding import Answer, Finding, Recovery
from detectors.sections import Blocks, Leaves
from detectors.series import Array

DETECTOR = ("accounts", 1)
SEEN = 20  # samples
EXACT, APART = 1e-5, 1e-3  # relative: what holds, what does not
ROW = 3  # samples
ROUNDING = 2.0**-22  # of a difference of two 32-bit floats, in units of the value
SIZES = ("batch_size", "sequence_length")


def carry(state: Mapping[str, Any], step: float) -> dict[str, Any]:
    """How they stood to each other; where the count stands it is told anew."""
    sizes = {name: rows[rows[:, 0] < step] for name, rows in state.get("sizes", {}).items()}
    counts = {name: {**mine, "waiting": np.empty((0, 2)), "off": 0} for name, mine in state.get("counts", {}).items()}
    return {"sizes": {name: rows for name, rows in sizes.items() if len(rows)}, "counts": counts}


def scan(new: Blocks, leaves: Leaves, state: Mapping[str, Any]) -> tuple[list[Answer], dict[str, Any]]:
    """Findings `invariant` (S1), each with its recovery. A row is one sample: any number, its step, its value.

    A count is judged when the next one is there: the sizes of its step may stand behind it in the log.
    """
    sizes = dict(state.get("sizes", {}))
    for name in (name for name in new if leaves[name][0] in SIZES):
        rows = new[name][:, 1:]
        good = rows[np.isfinite(rows[:, 1]) & (rows[:, 1] > 0)]
        sizes[name] = np.concatenate([sizes.get(name, np.empty((0, 2))), good])
    counts = dict(state.get("counts", {}))
    for name in (name for name in new if leaves[name][0] == "tokens"):
        rows = new[name][:, 1:]
        mine = counts.get(
            name, {"waiting": np.empty((0, 2)), "rate": math.nan, "base": {}, "held": 0, "off": 0, "since": 0.0}
        )
        counts[name] = {**mine, "waiting": np.concatenate([mine["waiting"], rows[np.isfinite(rows[:, 1])]])}
    said: list[Answer] = []
    for name, mine in sorted(counts.items()):
        found, counts[name] = _count(name, mine, sizes, leaves)
        said += found
    first = min((mine["waiting"][0, 0] for mine in counts.values() if len(mine["waiting"])), default=math.inf)
    sizes = {name: rows[max(0, int(np.searchsorted(rows[:, 0], first)) - 1) :] for name, rows in sizes.items()}
    return said, {"sizes": sizes, "counts": counts}


def _count(
    name: str, mine: Mapping[str, Any], sizes: Mapping[str, Array], leaves: Leaves
) -> tuple[list[Answer], dict[str, Any]]:
    """Judge the counts that have a later one; the last two stay."""
    now = dict(mine)
    rows = mine["waiting"]
    if len(rows) < 3:
        return [], now
    now["waiting"] = rows[-2:]
    step, value = rows[1:-1, 0], rows[1:-1, 1]
    taken = np.diff(rows[:-1, 0])
    rate = np.diff(rows[:-1, 1]) / taken
    rounding = np.where(value.astype(np.float32) == value, ROUNDING * np.abs(value) / taken, 0.0)
    known = {each: _at(lines, step) for each, lines in sizes.items()}
    said: list[Answer] = []
    for k in range(len(step)):
        here = {each: float(line[k]) for each, line in known.items() if math.isfinite(line[k])}
        if not here or rate[k] <= 0:
            continue
        expected = _expected(float(rate[k]), here, now, leaves)
        apart = abs(float(rate[k]) / expected - 1) - float(rounding[k] / rate[k]) if expected > 0 else math.inf
        known_well = now["held"] >= SEEN
        if apart <= (APART if known_well else EXACT):
            now.update(held=now["held"] + 1, off=0)
            continue
        now.update(off=now["off"] + 1, since=float(step[k]) if now["off"] == 0 else now["since"])
        if known_well and now["off"] < ROW:
            continue
        if known_well:
            said += _finding(name, now["since"], float(rows[k + 2, 0]), expected, float(rate[k]), float(taken[k]))
        now.update(rate=float(rate[k]), base=here, held=0, off=0)
    return said, now


def _at(lines: Array, step: Array) -> Array:
    """The value that a size had at each step; NaN before its first."""
    at = np.searchsorted(lines[:, 0], step, side="right") - 1
    return np.where(at >= 0, lines[np.maximum(at, 0), 1] if len(lines) else np.nan, np.nan)


def _expected(rate: float, here: Mapping[str, float], now: Mapping[str, Any], leaves: Leaves) -> float:
    """Tokens a step by the sizes: of all that they may mean, what is nearest to `rate`. NaN while nothing is known.

    A batch may be logged in tokens, so each size may count alone. That none counts is no option where all have moved.
    """
    if not now["rate"] > 0:
        return math.nan
    moves = [
        {here[n] / now["base"][n] for n in here if n in now["base"] and leaves[n][0] == role} or {1.0} for role in SIZES
    ]
    options = {a * b for a, b in product(*moves)} | {a for each in moves for a in each if a != 1.0}
    return float(min((now["rate"] * each for each in sorted(options)), key=lambda each: abs(rate / each - 1)))


def _finding(name: str, onset: float, known: float, before: float, rate: float, cadence: float) -> list[Answer]:
    """`before` is what the sizes say."""
    evidence = {"before": before, "after": rate, "invariant": "tokens are batch times sequence", "cadence": cadence}
    way, change, episode = "up" if rate > before else "down", rate / before - 1, f"accounts:{known:.15g}"
    found = Finding(
        *DETECTOR, "invariant", name, "tokens", way, onset, known, change, "fraction", 1, episode, evidence
    )  # fmt: skip
    return [found, Recovery(DETECTOR[0], name, episode, known)]
