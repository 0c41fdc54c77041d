"""Steps that start over with each epoch: such a log is one attempt, its epochs one behind the other.

A log goes back to its first step in two ways: the run was started anew, or its step counts within an epoch. A rollback goes
to a checkpoint behind the first step and is never asked here. An epoch it is where a metric that counts epochs has gone
up, or where none is logged, the clock shows no pause such as a new start takes, and the metrics go on where they had come
to, not where they once began: more of them than begin anew, of those that had moved far enough to tell.
Fooled by: a start with the weights of before and the step at 0, logged without a pause (its learning rate is then compared
with the one before, as in any run); a run that goes back over the end of an epoch, which looks like a leap ahead.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

import polars as pl

from flows.sources.contract import SYSTEM

EPOCH = re.compile(r"(^|[/.])epochs?$", re.IGNORECASE)
ENDS = 8  # samples of a metric, at its beginning, at its end, and after the step has started over
MOST = 64  # metrics of which these are kept
MOVED = 4.0  # scales of one sample that its beginning and its end must lie apart, to tell
NEAR = 1 / 3  # of that distance
NORMAL_MAD = 1.4826
PAUSE, PAUSE_SECONDS = 10.0, 900.0  # times between two rows, and seconds: longer than both is a pause
BACK_SECONDS = 5.0


@dataclass
class Axis:
    """What is added to the steps of the source, where those began, and what tells in an attempt that they start over.

    `epoch` is the newest value of each metric that counts epochs, `ends` the first and the last values of others, `clock`
    the unix seconds of the first and the last row.
    """

    offset: float = 0.0
    first: float | None = None
    epoch: dict[str, float] = field(default_factory=dict)
    ends: dict[str, list[list[float]]] = field(default_factory=dict)
    clock: list[float] = field(default_factory=list)

    def follow(self, rows: pl.DataFrame) -> None:
        """Further rows of the attempt, which go forward."""
        if self.first is None and len(rows):
            self.first = float(rows["step"][0])
        for name in rows["name"].unique(maintain_order=True):
            if len(self.ends) < MOST and not EPOCH.search(name) and not name.startswith(SYSTEM):
                self.ends.setdefault(name, [[], []])
        known = rows.filter(pl.col("value").is_finite() & (pl.col("name").is_in(list(self.ends)) | _counts_epochs()))
        parts = known.group_by("name").agg(first=pl.col("value").head(ENDS), last=pl.col("value").tail(ENDS))
        for name, first, last in parts.iter_rows():
            if name in self.ends:
                begin, end = self.ends[name]
                self.ends[name] = [(begin + first)[:ENDS], (end + last)[-ENDS:]]
            else:
                self.epoch[name] = last[-1]
        timed = rows["logged_at"].drop_nulls()
        if len(timed):
            seconds = timed.dt.epoch("us") / 1e6
            self.clock = [self.clock[0] if self.clock else float(seconds[0]), float(seconds[-1])]


def starts_over(rows: pl.DataFrame, axis: Axis, samples: Mapping[str, float]) -> bool | None:
    """Whether an epoch begins with `rows`, which go back to the first step; None while more of them must tell.

    `samples` is how many the attempt has of each metric.
    """
    ahead = rows.with_row_index("at").with_columns(
        count=pl.int_range(1, pl.len() + 1).over("name"),
        back=(pl.col("step").diff() < 0).over("name").fill_null(value=False),
    )
    full, back = (ahead.filter(each)["at"].min() for each in (pl.col("count") == ENDS, pl.col("back")))
    stop = min(int(each) if isinstance(each, int) else len(ahead) for each in (full, back))
    window = ahead[: stop + 1] if stop != back else ahead[:stop]
    for name, value in (
        window.filter(_counts_epochs() & pl.col("value").is_finite()).select("name", "value").iter_rows()
    ):
        if name in axis.epoch:
            return bool(value > axis.epoch[name])
    if stop == len(ahead):
        return None
    return stop != back and not _pauses(window, axis, max(samples.values())) and _goes_on(window, axis, samples)


def _counts_epochs() -> pl.Expr:
    return pl.col("name").str.contains(f"(?i){EPOCH.pattern}")


def _pauses(window: pl.DataFrame, axis: Axis, rows: float) -> bool:
    """Whether the run was away for a while, or the clock went back."""
    timed = window["logged_at"].drop_nulls()
    if not len(timed) or not axis.clock:
        return False
    gap = float(timed.dt.epoch("us")[0]) / 1e6 - axis.clock[1]
    usual = (axis.clock[1] - axis.clock[0]) / max(rows - 1, 1)
    return gap > max(PAUSE * usual, PAUSE_SECONDS) or gap < -BACK_SECONDS


def _goes_on(window: pl.DataFrame, axis: Axis, samples: Mapping[str, float]) -> bool:
    """Whether more metrics are where they had come to than where they began. What only grows would do so over any start."""
    now = dict(window.filter(pl.col("value").is_finite()).group_by("name").agg(pl.col("value").median()).iter_rows())
    votes = 0
    for name, (begin, end) in axis.ends.items():
        if name not in now or samples.get(name, 0) < 2 * ENDS or min(len(begin), len(end)) < ENDS:
            continue
        first, last = median(begin), median(end)
        moved = abs(last - first)
        grows = all(a < b for a, b in pairwise([*begin, *end]))
        if grows or moved <= MOVED * max(_scale(begin), _scale(end)):
            continue
        votes += int(abs(now[name] - last) <= NEAR * moved) - int(abs(now[name] - first) <= NEAR * moved)
    return votes > 0


def _scale(values: Sequence[float]) -> float:
    middle = median(values)
    return NORMAL_MAD * median(abs(value - middle) for value in values)
