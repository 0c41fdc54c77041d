"""Lines of a table that hold nothing but numbers and empty cells, read by Polars: ten times quicker than cell by cell."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.sources.layout import Layout
from flows.sources.rows import Rows
from flows.sources.timestamps import PLAUSIBLE_SECONDS

_FEWEST = 16  # lines; below that it is not worth it


def add_plain(
    rows: Rows,
    lines: Sequence[bytes],
    layout: Layout,
    delimiter: str,
    width: int,
    columns: Sequence[int],
    ids: Sequence[int],
) -> NDArray[np.float64] | None:
    """Adds the `columns` of the lines, whose metrics are `ids`, and answers the steps; None, with nothing added, where a
    line needs a closer look: a quote, a text, a missing or further cell, no step, a time that is no unix time."""
    if len(lines) < _FEWEST or layout.step is None or layout.name is not None:
        return None
    text = b"\n".join(lines)
    if b'"' in text or text.count(delimiter.encode()) != len(lines) * (width - 1):
        return None
    schema = {str(at): pl.Float64() for at in range(width)}
    try:
        frame = pl.read_csv(text, has_header=False, separator=delimiter, schema=schema, quote_char=None)
    except pl.exceptions.PolarsError:
        return None
    steps = frame[str(layout.step)]
    times = None if layout.time is None else frame[str(layout.time)]
    if len(frame) != len(lines) or steps.null_count() or not steps.is_finite().all():
        return None
    if times is not None and (times.null_count() or not times.is_between(*PLAUSIBLE_SECONDS, closed="left").all()):
        return None
    cells = frame.select(str(at) for at in columns)
    logged = ~cells.select(pl.all().is_null()).to_numpy().ravel()
    place = np.repeat(np.arange(len(lines)), len(columns))[logged]
    if times is None:
        micros = np.full(len(lines), np.iinfo(np.int64).min)
    else:
        micros = np.round(times.to_numpy() * 1e6).astype(np.int64)
    numbers = np.tile(np.array(ids, np.int64), len(lines))[logged]
    found = steps.to_numpy()
    rows.add_many(found[place], micros[place], 1, numbers, cells.to_numpy(order="c").ravel()[logged])
    return found
