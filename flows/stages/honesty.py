"""What a log does not show, told by its own rows: thinned or missing steps, values left out, clocks, second writers.

Facts about the source, for the coverage: never findings about the run. They follow the rows in the order of the log, and
are the same whether the rows came at once or one by one. A machine's metrics (system/) have no step of their own and are
passed over.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from detectors.series import Array
from flows.records import Role
from flows.sources.contract import SYSTEM
from flows.stages.strides import Strides, advance

CLOCK_SECONDS = 5.0  # by less than that the writers of one log may differ
MOST_PLACES = 200
FEW_NAMES = 3
MANY_DISTANCES = 16  # that differ; a log of several rhythms has fewer
NEVER_ZERO = frozenset(("loss", "grad_norm", "param_norm", "eval_loss"))
JUMPS_BACK, FAR = 3, 5.0  # to where another strand of steps ended, from so many times as far away


@dataclass
class Facts:
    """What is known of a log so far; `strides` of its newest attempt, `counts` of each metric since the first row."""

    attempt: int = -1
    strides: Strides = field(default_factory=Strides)
    step: float | None = None  # of the last row
    seconds: float | None = None
    frontier: float | None = None  # the highest step of the attempt
    top: float | None = None  # and of all before it
    distance: float | None = None
    distances: list[float] = field(default_factory=list)  # different ones between rows, the first few
    rows: int = 0  # distances between rows
    changes: int = 0  # how often the distance was another one than before
    jumps: int = 0
    first: float | None = None  # step of the attempt
    again: bool = False  # the attempt began no later than the one before; its epoch is not known yet
    epoch: float | None = None  # the last one that was logged
    epochs: int = 0  # how often the steps started over with a new one, and were taken for a run that went back
    joined: int = 0  # the same, and the epoch was read behind the one before
    clock: list[float] = field(default_factory=list)  # how often it went back, by how many seconds at most, first step
    counts: dict[str, list[int]] = field(default_factory=dict)  # values, of one step again, behind a later step, zeros
    missing: list[list[Any]] = field(default_factory=list)  # [after, before, distance, metrics, names of the first]
    skipped: list[list[Any]] = field(default_factory=list)  # the same
    rhythms: list[list[Any]] = field(default_factory=list)  # [at, old, new, metrics, names of the first]
    sisters: dict[str, int] = field(
        default_factory=dict
    )  # of a place of `skipped`: how many metrics have what is skipped

    def dump(self) -> dict[str, Any]:
        """For JSON."""
        alike: dict[tuple[int, ...], list[str]] = {}
        for name, count in self.counts.items():
            alike.setdefault(tuple(count), []).append(name)
        return {**vars(self), "strides": self.strides.dump(), "counts": [[*key, names] for key, names in alike.items()]}

    @staticmethod
    def load(raw: dict[str, Any]) -> "Facts":
        """What `dump` wrote; no facts for {}."""
        counts = {name: row[:-1] for row in raw.get("counts", []) for name in row[-1]}
        return Facts(**{**raw, "strides": Strides.load(raw.get("strides", {})), "counts": counts})


def learn(facts: Facts, stored: pl.DataFrame, role_of: Callable[[str], Role]) -> None:
    """The next rows (STORED_SCHEMA, in the order of the log) of a run."""
    rows = stored.filter(~pl.col("name").str.starts_with(SYSTEM))
    attempts = rows["attempt"].to_numpy()
    cuts = [0, *(np.flatnonzero(np.diff(attempts)) + 1).tolist(), len(rows)] if len(rows) else []
    for start, stop in pairwise(cuts):
        part = rows[start:stop]
        if int(attempts[start]) != facts.attempt:
            facts.top = max((at for at in (facts.top, facts.frontier) if at is not None), default=None)
            facts.attempt, facts.strides = int(attempts[start]), Strides()
            facts.frontier = facts.distance = None
            begins = float(part["step"][0])
            facts.again, facts.first = facts.first is not None and begins <= facts.first, begins
        _clock(facts, part)
        _count(facts, part, role_of)
        _follow(facts, part["step"].to_numpy())
        _rhythm(facts, part)
        _epochs(facts, part)
        facts.step = float(part["step"][-1])


def _clock(facts: Facts, rows: pl.DataFrame) -> None:
    """Times that lie before that of the row before, although the steps go on, or a new attempt begins."""
    timed = rows.filter(pl.col("logged_at").is_not_null())
    if not len(timed):
        return
    seconds = timed["logged_at"].dt.epoch("us").to_numpy() / 1e6
    step = timed["step"].to_numpy()
    first = facts.seconds if facts.seconds is not None else seconds[0]
    back = np.r_[first, seconds[:-1]] - seconds
    onward = step >= np.r_[step[0] if facts.frontier is None or facts.step is None else facts.step, step[:-1]]
    found = np.flatnonzero((back > CLOCK_SECONDS) & onward)
    if len(found):
        times, most, at = facts.clock or [0, 0.0, float(step[found[0]])]
        facts.clock = [times + len(found), max(most, float(back[found].max())), at]
    facts.seconds = float(seconds[-1])


def _count(facts: Facts, rows: pl.DataFrame, role_of: Callable[[str], Role]) -> None:
    """How many values, and of them those of a step again, behind a later one, and zero."""
    last = dict(zip(facts.strides.names, facts.strides.last.tolist(), strict=True))
    table = rows.group_by("name", maintain_order=True).agg(
        pl.len(),
        again=(pl.col("step").cum_max().shift(1) == pl.col("step")).sum(),
        late=pl.col("late").sum(),
        zeros=(pl.col("value") == 0).sum(),
        first=pl.col("step").first(),
    )
    for name, size, again, late, zeros, first in table.iter_rows():
        before = facts.counts.get(name, [0, 0, 0, 0])
        new = (size, again + (last.get(name) == first), late, zeros if role_of(name).role in NEVER_ZERO else 0)
        facts.counts[name] = [old + more for old, more in zip(before, new, strict=True)]


def _follow(facts: Facts, steps: Array) -> None:
    """How far apart the rows of the attempt stand that go on, whatever their metrics."""
    before = -np.inf if facts.frontier is None else facts.frontier
    steps = steps[steps > np.maximum.accumulate(np.r_[before, steps])[:-1]]
    if not len(steps):
        return
    whole = np.r_[steps[:0] if facts.frontier is None else facts.frontier, steps]
    distance = np.diff(whole)
    if facts.top is not None and len(distance):
        over = (whole[1:] > facts.top) & (whole[:-1] <= facts.top)
        facts.jumps += int((over & (distance >= FAR * (whole[1:] - facts.top))).sum())
    previous = np.r_[np.nan if facts.distance is None else facts.distance, distance]
    facts.rows += len(distance)
    facts.changes += int((previous[1:] != previous[:-1]).sum())
    if len(facts.distances) <= MANY_DISTANCES:
        known = dict.fromkeys([*facts.distances, *pl.Series(distance).unique(maintain_order=True).to_list()])
        facts.distances = list(known)[: MANY_DISTANCES + 1]
    facts.frontier = float(whole[-1])
    facts.distance = float(distance[-1]) if len(distance) else facts.distance


def _epochs(facts: Facts, rows: pl.DataFrame) -> None:
    """An attempt that starts over at the first step, in a later epoch, is none: the steps count within an epoch."""
    found = rows.filter(pl.col("name").str.to_lowercase().str.contains(r"(^|[/.])epochs?$"))
    if not len(found):
        return
    value = float(found["value"][0])
    if facts.again and facts.epoch is not None and value > facts.epoch:
        facts.epochs += 1
    facts.again, facts.epoch = False, float(found["value"][-1])


def _rhythm(facts: Facts, rows: pl.DataFrame) -> None:
    """Breaks and changes in the rhythm of each metric, those of one place together."""
    breaks, changes = advance(facts.strides, rows["name"], rows["step"].to_numpy())
    for each in breaks:
        if each.sisters:
            if _put(facts.skipped, [each.after, each.before, each.stride], each.name):
                facts.sisters[str(len(facts.skipped) - 1)] = each.sisters
        elif each.empty:
            _put(facts.missing, [each.after, each.before, each.stride], each.name)
    for change in changes:
        _put(facts.rhythms, [change.at, change.old, change.new], change.name)


def _put(places: list[list[Any]], key: list[float], name: str) -> bool:
    """A metric more at a place; or a place more, if there is room: True."""
    for place in reversed(places[-8:]):  # the metrics of a row come to be known one after the other
        if place[:3] == key:
            place[3] += 1
            place[4] += [name] if len(place[4]) < FEW_NAMES else []
            return False
    if len(places) == MOST_PLACES:
        return False
    places.append([*key, 1, [name]])
    return True
