"""How far apart the logged steps of each metric stand, row by row of a log: where it breaks off, skips, or changes.

Of each metric of an attempt only its last three runs of equal distances are carried. A break is told when the distance
before it (SETTLED times) has come back as often, a change when another one has lasted (LASTING times): what is told
depends on the rows up to there alone, not on how they were batched.
"""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from detectors.series import Array

SETTLED = 8  # equal distances on either side, before a break between them is one
LASTING = 20  # equal distances, before they are another rhythm
MOST_LOOKED_AT = 256  # breaks whose surroundings are looked at, an attempt: each takes a look at all metrics

Ints = NDArray[np.int64]


class Break(NamedTuple):
    """A metric without values between two steps. `sisters` metrics of the same rhythm have all of them; `empty` says
    that no metric at all has a value there."""

    name: str
    after: float
    before: float
    stride: float
    sisters: int
    empty: bool


class Change(NamedTuple):
    """A metric whose steps stood `old` apart and stand `new` apart from step `at` on."""

    name: str
    at: float
    old: float
    new: float


@dataclass
class Strides:
    """Of each metric its highest step, and distance and length of its last three runs of equal distances."""

    names: list[str] = field(default_factory=list)
    last: Array = field(default_factory=lambda: np.empty(0))
    stride: Array = field(
        default_factory=lambda: np.empty((0, 3))
    )  # NaN where there is none; the newest run is the last
    count: Ints = field(default_factory=lambda: np.empty((0, 3), np.int64))
    looked_at: int = 0

    def dump(self) -> dict[str, Any]:
        """For JSON; metrics that stand alike are named together."""
        alike: dict[tuple[Any, ...], list[str]] = {}
        table = zip(self.names, self.last.tolist(), self.stride.tolist(), self.count.tolist(), strict=True)
        for name, last, stride, count in table:
            alike.setdefault((last, *(None if math.isnan(d) else d for d in stride), *count), []).append(name)
        return {"alike": [[*key, names] for key, names in alike.items()], "looked_at": self.looked_at}

    @staticmethod
    def load(raw: dict[str, Any]) -> "Strides":
        """What `dump` wrote; fresh ones for {}."""
        rows = [(name, row[:-1]) for row in raw.get("alike", []) for name in row[-1]]
        table = np.array([row for _, row in rows], dtype=float).reshape(len(rows), 7)
        return Strides(
            [name for name, _ in rows],
            table[:, 0],
            table[:, 1:4],
            table[:, 4:].astype(np.int64),
            raw.get("looked_at", 0),
        )


@dataclass(frozen=True)
class _Runs:
    """Elements (a carried run, or one distance) of all metrics one after the other, and the runs that they make."""

    metric: Ints  # of each element
    position: Ints  # its row in the log, -1 if carried
    end: Array  # the step at which it ends
    total: Ints  # how many distances its run has up to and with it
    run: Ints  # number of its run
    first: Ints  # of each run: its first element
    owner: Ints  # its metric
    stride: Array  # NaN: no distance, for the first step of a metric
    length: Ints
    carried: Ints  # how much of it was known before


def advance(known: Strides, names: pl.Series, steps: Array) -> tuple[list[Break], list[Change]]:
    """The next rows of the attempt, in the order of the log; what came to be known by them."""
    if not len(names):
        return [], []
    metric = _numbered(known, names)
    position = np.argsort(metric, kind="stable")
    metric, step = metric[position], steps[position]
    onward = step > _highest_before(metric, step, known.last)  # a step again, or an earlier one, says nothing here
    runs = _runs(known, metric[onward], step[onward], position[onward])
    breaks, changes = _breaks(known, runs), _changes(known, runs)
    _remember(known, runs)
    return breaks, changes


def _numbered(known: Strides, names: pl.Series) -> Ints:
    """The place of each name among those that are known; new ones are added."""
    fresh = names.unique(maintain_order=True)
    fresh = fresh.filter(~fresh.is_in(pl.Series(known.names, dtype=pl.String).implode()))
    if len(fresh):
        known.names = [*known.names, *fresh]
        known.last = np.concatenate([known.last, np.full(len(fresh), -np.inf)])
        known.stride = np.concatenate([known.stride, np.full((len(fresh), 3), np.nan)])
        known.count = np.concatenate([known.count, np.zeros((len(fresh), 3), np.int64)])
    return names.cast(pl.Enum(known.names)).to_physical().to_numpy().astype(np.int64)


def _highest_before(metric: Ints, step: Array, last: Array) -> Array:
    """The highest step of the metric before each sample; metrics lie one after the other."""
    before = np.where(np.diff(metric, prepend=-1) != 0, last[metric], np.roll(step, 1))
    if (step > before).all():
        return before
    table = pl.DataFrame({"metric": metric, "before": before})
    return table.select(pl.col("before").cum_max().over("metric"))["before"].to_numpy()


def _runs(known: Strides, metric: Ints, step: Array, position: Ints) -> _Runs:
    """The carried runs of every metric and the new distances behind them; equal ones that follow each other are a run."""
    three = np.repeat(np.arange(len(known.names)), 3)
    gone = np.nan_to_num(known.stride) * known.count  # how far each carried run reaches
    ends = known.last[:, None] - np.c_[gone[:, 1] + gone[:, 2], gone[:, 2], np.zeros(len(gone))]
    before = np.where(np.diff(metric, prepend=-1) != 0, known.last[metric], np.roll(step, 1))
    distance = np.where(np.isfinite(before), step - np.where(np.isfinite(before), before, 0), np.nan)
    order = np.argsort(np.r_[three, metric], kind="stable")
    owner = np.r_[three, metric][order]
    stride = np.r_[known.stride.ravel(), distance][order]
    length = np.r_[known.count.ravel(), np.isfinite(distance).astype(np.int64)][order]
    new = np.r_[np.zeros(len(three), np.int64), np.ones(len(metric), np.int64)][order]
    changed = (np.diff(owner, prepend=-1) != 0) | ~(stride == np.roll(stride, 1))
    first, run = np.flatnonzero(changed), np.cumsum(changed) - 1
    whole = np.cumsum(length)
    return _Runs(
        owner,
        np.r_[np.full(len(three), -1), position][order],
        np.r_[ends.ravel(), step][order],
        whole - (whole - length)[first][run],
        run,
        first,
        owner[first],
        stride[first],
        np.add.reduceat(length, first),
        np.add.reduceat(length * (1 - new), first),
    )


def _reached(runs: _Runs, length: int) -> tuple[Ints, Ints]:
    """Runs that have become so long by the new rows, and the element of each by which they did; in the order of the log."""
    found = np.flatnonzero((runs.length >= length) & (runs.carried < length))
    element = runs.first[found] + length - np.maximum(runs.carried[found], 1)
    order = np.argsort(runs.position[element], kind="stable")
    return found[order], element[order]


def _breaks(known: Strides, runs: _Runs) -> list[Break]:
    """Runs that have lasted SETTLED times behind one longer distance behind a run that had."""
    out = []
    for k, element in zip(*_reached(runs, SETTLED), strict=True):
        gap, before = k - 1, k - 2
        if before < 0 or runs.owner[before] != runs.owner[k] or runs.length[gap] != 1 or runs.length[before] < SETTLED:
            continue
        stride = max(runs.stride[k], runs.stride[before])
        if runs.stride[gap] < (2 if runs.stride[k] == runs.stride[before] else 3) * stride:
            continue
        if known.looked_at >= MOST_LOOKED_AT:
            break
        known.looked_at += 1
        end = runs.end[element] - SETTLED * runs.stride[k]
        start = end - runs.stride[gap]
        sisters, empty = _around(known, runs, element, (start, end), stride)
        name = known.names[runs.owner[k]]
        out.append(Break(name, float(start), float(end), float(stride), sisters, empty))
    return out


def _around(known: Strides, runs: _Runs, element: int, between: tuple[float, float], stride: float) -> tuple[int, bool]:
    """Of a break that is known by an element: how many metrics of its rhythm go on through it, and whether none has
    anything there. Each is seen as it stood at that row of the log."""
    after, before = between
    width = int(runs.position.max()) + 2
    key = runs.metric * width + runs.position + 1
    everyone = np.arange(len(known.names))
    at = np.searchsorted(key, everyone * width + runs.position[element] + 1, side="right") - 1
    run, length, end = runs.run[at], runs.total[at], runs.end[at]
    sisters, anything = 0, False
    for back in range(3):
        distance = runs.stride[run]
        start = end - np.nan_to_num(distance) * length
        if not back:
            whole = (distance == stride) & (start <= after) & (end >= before - stride)
            sisters = int((whole & (np.mod(np.where(whole, after - start, 1), stride) == 0)).sum())
        step = np.where(distance > 0, distance, np.inf)
        with np.errstate(invalid="ignore"):
            next_one = start + np.maximum(np.floor((after - start) / step) + 1, 0) * np.nan_to_num(distance)
        anything = anything or bool(((next_one > after) & (next_one < before) & (next_one <= end)).any())
        inside = (run > 0) & (runs.owner[run - 1] == everyone)
        run, end = np.where(inside, run - 1, run), start
        length = np.where(inside, runs.length[run], 0)
    return sisters, not anything


def _changes(known: Strides, runs: _Runs) -> list[Change]:
    """Runs that have lasted LASTING times behind one of another distance that had, with at most one run between."""
    out = []
    for k, element in zip(*_reached(runs, LASTING), strict=True):
        old = next((j for j in (k - 1, k - 2) if j >= 0 and runs.length[j] >= LASTING), None)
        if old is not None and runs.owner[old] == runs.owner[k] and runs.stride[old] != runs.stride[k]:
            at = float(runs.end[element] - LASTING * runs.stride[k])
            out.append(Change(known.names[runs.owner[k]], at, float(runs.stride[old]), float(runs.stride[k])))
    return out


def _remember(known: Strides, runs: _Runs) -> None:
    everyone = np.arange(len(known.names))
    three = np.searchsorted(runs.owner, everyone, side="right")[:, None] - np.array([3, 2, 1])
    known.stride, known.count = runs.stride[three], runs.length[three]
    known.last = runs.end[np.searchsorted(runs.metric, everyone, side="right") - 1]
