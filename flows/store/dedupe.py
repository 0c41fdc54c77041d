"""Which rows of a frame are new, and which write a step again: arithmetic on frames, no database.

A key is metric, attempt, step. The same value again is nothing. Another value replaces the sample, and every distinct
value of such a key is remembered in its order, so that replaying the same rows changes nothing. NaN equals NaN.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

KEY = ["metric_id", "attempt", "step"]
TRACK = ["metric_id", "attempt"]
TRACKS = pl.Schema(
    {
        "metric_id": pl.Int32, "attempt": pl.Int32, "samples": pl.Int64,
        "first_step": pl.Float64, "last_step": pl.Float64, "last_value": pl.Float64,
    }
)  # fmt: skip

_EMPTY = pl.DataFrame(schema={"metric_id": pl.Int32, "attempt": pl.Int32, "step": pl.Float64, "value": pl.Float64})

# stored values (KEY, value) and remembered ones (KEY, value, ordinal) of the keys asked for
Lookup = Callable[[pl.DataFrame], tuple[pl.DataFrame, pl.DataFrame]]


@dataclass(frozen=True)
class Change:
    """What an append has to do. `rows` keeps the frame's order."""

    rows: pl.DataFrame  # to insert
    updates: pl.DataFrame  # KEY, value: stored samples that take another value
    remembered: pl.DataFrame  # KEY, value, ordinal: to add to the rewritten
    tracks: pl.DataFrame  # TRACKS: the marks of every track that was touched, as they are afterwards


def change(rows: pl.DataFrame, tracks: pl.DataFrame, lookup: Lookup) -> Change:
    """Sort out `rows` (KEY, value, any other columns) against the stored `tracks`; `lookup` is asked only if needed."""
    code, keys = _codes(rows)
    marks = keys.join(tracks, on=TRACK, how="left", maintain_order="left")
    order = np.argsort(code, kind="stable")
    ordered, step = code[order], rows["step"].to_numpy()[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else np.empty(0, dtype=np.int64)
    before = np.empty_like(step)
    before[1:] = step[:-1]
    before[starts] = marks["last_step"].fill_null(-np.inf).to_numpy()[ordered[starts]]
    suspects = np.unique(ordered[step <= before])
    if not len(suspects):
        return Change(rows, _EMPTY, _EMPTY, _advanced(marks[ordered[starts]], rows, order, starts))
    return _settled(rows, np.isin(code, suspects), tracks, lookup)


def _codes(rows: pl.DataFrame) -> tuple[NDArray[np.integer], pl.DataFrame]:
    """An integer for each row's track, and the tracks by that integer."""
    if not len(rows):
        return np.empty(0, dtype=np.int64), rows.select(TRACK)
    metric, attempt = rows["metric_id"].to_numpy(), rows["attempt"].to_numpy()
    metrics, first, last = int(metric.max()) + 1, int(attempt.min()), int(attempt.max())
    if metrics * (last - first + 1) <= 1 << 16:  # a stable sort of 16 bits is a radix sort
        code = metric.astype(np.uint16)
        if last > first:
            code += ((attempt - first) * metrics).astype(np.uint16)
        every = np.arange(metrics * (last - first + 1))
        return code, _tracks_of(every % metrics, every // metrics + first)
    keys, wide = np.unique((metric.astype(np.int64) << 32) | attempt.astype(np.int64), return_inverse=True)
    return wide, _tracks_of(keys >> 32, keys & 0xFFFFFFFF)


def _tracks_of(metric: NDArray[np.int64], attempt: NDArray[np.int64]) -> pl.DataFrame:
    return pl.DataFrame({"metric_id": metric.astype(np.int32), "attempt": attempt.astype(np.int32)})


def _advanced(
    marks: pl.DataFrame, rows: pl.DataFrame, order: NDArray[np.intp], starts: NDArray[np.intp]
) -> pl.DataFrame:
    """The marks after rows that only go forward."""
    if not len(rows):
        return pl.DataFrame(schema=TRACKS)
    ends = np.r_[starts[1:], len(order)] - 1
    first, last = rows["step"].gather(order[starts]), rows["step"].gather(order[ends])
    return marks.select(
        *TRACK,
        samples=pl.col("samples").fill_null(0) + pl.Series(ends - starts + 1),
        first_step=pl.min_horizontal("first_step", first),
        last_step=last,
        last_value=rows["value"].gather(order[ends]),
    ).cast(TRACKS)


def _settled(rows: pl.DataFrame, suspect: NDArray[np.bool_], tracks: pl.DataFrame, lookup: Lookup) -> Change:
    """The slow way, for tracks in which some step does not go forward."""
    numbered = rows.with_row_index("_at")
    doubtful = numbered.filter(pl.Series(suspect))
    keys = doubtful.select(KEY).unique()
    known = keys.join(tracks, on=TRACK, how="inner").filter(pl.col("step") <= pl.col("last_step")).select(KEY)
    stored, remembered = lookup(known) if len(known) else (_EMPTY, _EMPTY)
    grouped = _grouped(doubtful, stored)
    fresh = grouped.filter(pl.col("_at") >= 0).select(pl.col("_at").cast(pl.UInt32), last="last")
    kept = (
        numbered.filter(pl.Series(~suspect) | pl.col("_at").is_in(fresh["_at"].implode()))
        .join(fresh, on="_at", how="left", maintain_order="left")
        .with_columns(value=pl.when(pl.lit(pl.Series(suspect)).gather(pl.col("_at"))).then("last").otherwise("value"))
        .drop("_at", "last")
    )
    updates = grouped.filter((pl.col("_at") < 0) & pl.col("first").ne_missing(pl.col("last")))
    updates = updates.select(*KEY, value=pl.col("last"))
    return Change(kept, updates, _to_remember(grouped, remembered), _marks_after(kept, updates, tracks))


def _grouped(doubtful: pl.DataFrame, stored: pl.DataFrame) -> pl.DataFrame:
    """One row a key: where it first stands (-1: stored), its first, last and distinct values in their order."""
    new = doubtful.select(*KEY, "value", _at=pl.col("_at").cast(pl.Int64))
    old = stored.select(*KEY, "value", _at=pl.lit(-1, dtype=pl.Int64))
    return (
        pl.concat([old, new])
        .group_by(KEY, maintain_order=True)
        .agg(
            pl.col("_at").first(),
            first=pl.col("value").first(),
            last=pl.col("value").last(),
            distinct=pl.col("value").unique(maintain_order=True),
        )
    )


def _to_remember(grouped: pl.DataFrame, remembered: pl.DataFrame) -> pl.DataFrame:
    several = grouped.filter(pl.col("distinct").list.len() > 1).select(*KEY, value="distinct").explode("value")
    if not len(several) or not len(remembered):
        return several.with_columns(ordinal=(pl.int_range(1, pl.len() + 1).over(KEY)).cast(pl.Int32))
    highest = remembered.group_by(KEY).agg(highest=pl.col("ordinal").max())
    return (
        several.join(remembered, on=[*KEY, "value"], how="anti", nulls_equal=True, maintain_order="left")
        .join(highest, on=KEY, how="left", maintain_order="left")
        .with_columns(ordinal=(pl.col("highest").fill_null(0) + pl.int_range(1, pl.len() + 1).over(KEY)).cast(pl.Int32))
        .drop("highest")
    )


def _marks_after(kept: pl.DataFrame, updates: pl.DataFrame, tracks: pl.DataFrame) -> pl.DataFrame:
    fresh = kept.group_by(TRACK).agg(
        new=pl.len(),
        low=pl.col("step").min(),
        high=pl.col("step").max(),
        high_value=pl.col("value").sort_by("step").last(),
    )
    touched = pl.concat([fresh.select(TRACK), updates.select(TRACK)]).unique()
    at_the_mark = updates.rename({"step": "last_step", "value": "rewritten_value"}).with_columns(was_rewritten=True)
    ahead = pl.col("high") > pl.col("last_step").fill_null(-np.inf)
    return (
        touched.join(tracks, on=TRACK, how="left")
        .join(fresh, on=TRACK, how="left")
        .join(at_the_mark, on=[*TRACK, "last_step"], how="left")
        .select(
            *TRACK,
            samples=pl.col("samples").fill_null(0) + pl.col("new").fill_null(0),
            first_step=pl.min_horizontal("first_step", "low"),
            last_step=pl.max_horizontal("last_step", "high"),
            last_value=pl.when(ahead)
            .then("high_value")
            .when("was_rewritten")
            .then("rewritten_value")
            .otherwise("last_value"),
        )
        .cast(TRACKS)
    )
