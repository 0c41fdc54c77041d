"""A case's log as every baseline reads it: through the project's own sources and attempts, and the moves they share.

What a practitioner would point a generic rule at is WATCHED: every metric whose role is known, leaves of the norms
included, without the schedules and progress counters (learning rate, batch size, sequence length, tokens).
"""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from cases import Alarm, Case

from flows.records import SAMPLE_SCHEMA
from flows.sources.catalogue import open_sources
from flows.sources.roles import ROLES, role_of
from flows.stages.attempts import Tracker, assign

WATCHED = frozenset(ROLES) - {"learning_rate", "batch_size", "sequence_length", "tokens", "other"}
HERO_SECONDS = 17.0  # a step of the hero run; what a step is taken to last where nothing tells


class Line(NamedTuple):
    """One metric in log order."""

    name: str
    role: str
    attempt: np.ndarray
    step: np.ndarray
    seconds: np.ndarray
    value: np.ndarray
    unit: str = ""


def samples(case: Case) -> pl.DataFrame:
    """attempt, step, logged_at, seconds, name, value, role, unit, group: what was logged, by attempt and step.

    Rows that came late or were written again are as the judge sees them: left out, and as first written. `seconds` is
    the case's clock, from 0 on. It is the log's own; with `seconds_per_step` a step takes that long at least, so that
    a pause longer than the steps it spans stays one. Without either clock a step takes HERO_SECONDS.
    """
    return _samples(str(case.log), Path(case.log).stat().st_mtime_ns, case.seconds_per_step)


@lru_cache(maxsize=1)  # ten systems read one case in turn
def _samples(log: str, written: int, seconds_per_step: float | None) -> pl.DataFrame:
    del written
    (source,) = open_sources(log)
    rows = pl.concat([pl.DataFrame(schema=SAMPLE_SCHEMA), *(batch.rows for batch in source.pull(None))])
    rows = assign(rows, Tracker(), final=True).filter(~pl.col("late"))
    rows = rows.unique(["name", "attempt", "step"], keep="first", maintain_order=True)
    rows = rows.with_columns(pl.col("value").fill_null(float("nan"))).sort("attempt", "step", maintain_order=True)
    moments = rows.group_by("attempt", "step", maintain_order=True).agg(pl.col("logged_at").max())
    rows = rows.join(_clock(moments, seconds_per_step), on=["attempt", "step"], how="left", maintain_order="left")
    names = rows["name"].unique(maintain_order=True)
    roles = [role_of(name) for name in names]
    fields = {"role": [r.role for r in roles], "unit": [r.unit for r in roles], "group": [r.group for r in roles]}
    rows = rows.join(pl.DataFrame({"name": names, **fields}), on="name", how="left", maintain_order="left")
    return rows.select("attempt", "step", "logged_at", "seconds", "name", "value", "role", "unit", "group")


def _clock(moments: pl.DataFrame, seconds_per_step: float | None) -> pl.DataFrame:
    """attempt, step and the seconds since the first row; never goes back."""
    own = moments.select(pl.col("logged_at").dt.epoch("us") / 1e6).to_series().fill_null(float("nan")).to_numpy()
    if seconds_per_step is None and np.isfinite(own).any():
        heard = np.isfinite(own)
        own = np.interp(np.arange(len(own)), np.flatnonzero(heard), own[heard])
        seconds = np.maximum.accumulate(own - own[0])
    else:
        steps = np.diff(moments["step"].to_numpy(), prepend=np.nan)
        steps[np.diff(moments["attempt"].to_numpy(), prepend=-1) != 0] = 1.0
        least = steps * (seconds_per_step or HERO_SECONDS)
        took = np.fmax(least, np.diff(own, prepend=np.nan))
        took[0] = 0.0
        seconds = np.cumsum(took)
    return moments.select("attempt", "step", seconds=pl.Series(seconds))


def lines(frame: pl.DataFrame, roles: frozenset[str] = WATCHED) -> Iterator[Line]:
    """The metrics of these roles, each over all attempts as it was logged."""
    for (name,), part in frame.filter(pl.col("role").is_in(list(roles))).group_by("name", maintain_order=True):
        columns = (part[key].to_numpy() for key in ("attempt", "step", "seconds", "value"))
        yield Line(str(name), str(part["role"][0]), *columns, str(part["unit"][0]))


def main_line(frame: pl.DataFrame, role: str, like: str = "") -> Line | None:
    """The whole run's metric of a role: one whose name has `like` in it if there is one, else the first logged."""
    found = frame.filter(pl.col("role") == role).unique("name", keep="first", maintain_order=True)
    if not len(found):
        return None
    liked = pl.col("name").str.contains(like, literal=True)
    name = found.sort(~liked, pl.col("group") != "", maintain_order=True)["name"][0]
    return next(lines(frame.filter(pl.col("name") == name), frozenset({role})))


def resumed(line: Line) -> Iterator[tuple[Line, int]]:
    """Each attempt of a metric behind what stood before it, and where the attempt's own samples begin.

    For rules whose window is part of the checkpoint: abandoned steps are not in it.
    """
    for attempt in np.unique(line.attempt):
        first = line.step[line.attempt == attempt].min()
        keep = line.attempt == attempt
        for older in np.unique(line.attempt[line.attempt < attempt])[::-1]:
            mine = (line.attempt == older) & (line.step < first)
            keep |= mine
            first = min(first, line.step[line.attempt == older].min())
        own = line._replace(**{k: getattr(line, k)[keep] for k in ("attempt", "step", "seconds", "value")})
        yield own, int((own.attempt < attempt).sum())


def trailing(value: np.ndarray, size: int, ddof: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the `size` samples before each; NaN for the first, and where one is not finite."""
    mean, spread = np.full(len(value), np.nan), np.full(len(value), np.nan)
    if len(value) > size:
        windows = np.lib.stride_tricks.sliding_window_view(value, size)[:-1]
        with np.errstate(invalid="ignore", over="ignore"):
            mean[size:], spread[size:] = windows.mean(axis=1), windows.std(axis=1, ddof=ddof)
    return mean, spread


def begins(hot: np.ndarray) -> np.ndarray:
    """Where a condition becomes true: one alarm an episode, silence while it lasts."""
    return np.flatnonzero(hot & ~np.concatenate([[False], hot[:-1]]))


def alarm(line: Line, at: int, severity: int, kind: str, onset: float | None = None) -> Alarm:
    """An alarm on a metric at its sample `at`."""
    step = int(line.step[at])
    return Alarm(step, step if onset is None else int(onset), line.name, line.role, severity, kind)


def in_order(alarms: list[Alarm]) -> list[Alarm]:
    """By step, as the contract asks."""
    return sorted(alarms, key=lambda each: (each.step, each.metric, each.onset))
