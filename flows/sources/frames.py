"""Columnar tables as samples: a wide slice becomes rows step by step, without a loop over rows."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from flows.records import SAMPLE_SCHEMA
from flows.sources.contract import NO_STEP_NOTE, ROW_NUMBER
from flows.sources.layout import NAME_COLUMNS
from flows.sources.stepkey import choose_step_key
from flows.sources.timestamps import MICROS_PER_UNIT, PLAUSIBLE_SECONDS, TIME_KEYS, to_micros

NO_STEP = "row without a finite step"


@dataclass(frozen=True)
class Shape:
    """Which columns are read, and as what. Long: `name` and `value` are set instead of `metrics`."""

    step: str | None
    step_key: str
    time: str | None
    metrics: tuple[str, ...] = ()
    name: str | None = None
    value: str | None = None
    read: tuple[str, ...] = ()


def shape_of(schema: Mapping[str, pl.DataType], first: pl.DataFrame, wanted: str | None = None) -> Shape:
    """From the columns' types and the first rows, which tell a time from a duration."""
    numbers = [name for name, kind in schema.items() if kind.is_numeric() or kind == pl.Boolean]
    key = choose_step_key(numbers, wanted)
    time = next((name for name in schema if name.lower() in TIME_KEYS and name != key and _is_time(first, name)), None)
    texts = [n for n, kind in schema.items() if kind in (pl.String, pl.Categorical) or isinstance(kind, pl.Enum)]
    name = next((text for text in texts if text.lower() in NAME_COLUMNS), None)
    value = next((number for number in numbers if number.lower() == "value"), None)
    if name is not None and value is not None:
        read = tuple(column for column in (key, time, name, value) if column is not None)
        return Shape(key, key or ROW_NUMBER, time, name=name, value=value, read=read)
    metrics = tuple(number for number in numbers if number not in (key, time) and number)
    read = tuple(column for column in (key, time, *metrics) if column is not None)
    return Shape(key, key or ROW_NUMBER, time, metrics, read=read)


def to_samples(part: pl.DataFrame, shape: Shape, before: int, notes: Counter[str]) -> pl.DataFrame:
    """SAMPLE_SCHEMA rows of a slice that stands behind `before` rows. Nulls are not logged; NaN and infinities stay."""
    if shape.step is None:
        step = pl.Series("step", np.arange(before + 1, before + 1 + len(part), dtype=np.float64))
        notes[NO_STEP_NOTE] += len(part)
    else:
        step = part[shape.step].cast(pl.Float64).alias("step")
    good = step.is_finite().fill_null(value=False)
    if not good.all():
        notes[NO_STEP] += int((~good).sum())
        part, step = part.filter(good), step.filter(good)
    if shape.time is None:
        times = pl.Series("logged_at", [None], dtype=pl.Datetime("us")).new_from_index(0, len(part))
    else:
        times = _times(part[shape.time]).alias("logged_at")
    if shape.name is not None and shape.value is not None:
        name = part[shape.name].cast(pl.String).alias("name")
        frame = pl.DataFrame([step, times, name, part[shape.value].cast(pl.Float64).alias("value")])
        logged = frame["value"].is_not_null() & frame["name"].is_not_null() if _has_nulls(frame) else None
        return frame if logged is None else frame.filter(logged)
    return _row_by_row(part.select(shape.metrics), step, times)


def _has_nulls(frame: pl.DataFrame) -> bool:
    return bool(frame["value"].null_count() or frame["name"].null_count())


def _row_by_row(part: pl.DataFrame, step: pl.Series, times: pl.Series) -> pl.DataFrame:
    """Unpivot in row order: (rows, metrics) arrays filled a column at a time, far quicker than a sort."""
    rows, width = part.shape
    values = np.empty((rows, width))
    logged = np.ones((rows, width), dtype=bool) if any(part.null_count().row(0) if width else ()) else None
    for at, column in enumerate(part.iter_columns()):
        values[:, at] = column.cast(pl.Float64).to_numpy()
        if logged is not None and column.null_count():
            logged[:, at] = column.is_not_null().to_numpy()
    chosen = np.flatnonzero(logged) if logged is not None else np.arange(rows * width)
    row, metric = np.divmod(chosen, max(width, 1))
    return pl.DataFrame(
        {
            "step": step.to_numpy()[row],
            "logged_at": times.gather(row) if times.null_count() < len(times) else times.clear(len(row)),
            "name": pl.Series(part.columns, dtype=pl.String).gather(metric),
            "value": values.ravel()[chosen] if logged is not None else values.ravel(),
        },
        schema=SAMPLE_SCHEMA,
    )


def _is_time(first: pl.DataFrame, name: str) -> bool:
    kind = first.schema.get(name)
    if kind is None:
        return False
    if kind.is_temporal():
        return kind in (pl.Date, pl.Datetime)
    if not (kind.is_numeric() or kind == pl.String):
        return False
    seen = first[name].drop_nulls()
    return len(seen) > 0 and to_micros(seen[0]) is not None


def _times(column: pl.Series) -> pl.Series:
    """Naive UTC microseconds; null for what is no time."""
    kind = column.dtype
    if isinstance(kind, pl.Datetime):
        return (column.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if kind.time_zone else column).cast(
            pl.Datetime("us")
        )
    if kind == pl.Date:
        return column.cast(pl.Datetime("us"))
    if kind == pl.String:
        return pl.Series([to_micros(text) for text in column], dtype=pl.Int64).cast(pl.Datetime("us"))
    low, high = PLAUSIBLE_SECONDS
    number = column.cast(pl.Float64)
    found = pl.Series([None], dtype=pl.Float64).new_from_index(0, len(column))
    for units, micros in MICROS_PER_UNIT.items():
        found = (number * micros).zip_with(
            (number / units).is_between(low, high, closed="left").fill_null(False), found
        )
    return found.round().cast(pl.Int64).cast(pl.Datetime("us"))
