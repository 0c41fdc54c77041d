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
    text: bytes,
    layout: Layout,
    delimiter: str,
    width: int,
    columns: Sequence[int],
    ids: Sequence[int],
) -> NDArray[np.float64] | None:
    """Adds the `columns` of whole lines, whose metrics are `ids`, and answers the steps; None, with nothing added, where a
    line needs a closer look: a quote, a text, a missing or further cell, no step, a time that is no unix time."""
    size = text.count(b"\n")
    if size < _FEWEST or layout.step is None or layout.name is not None or not columns:
        return None
    if b'"' in text or b"\0" in text or text.count(delimiter.encode()) != size * (width - 1):
        return None
    schema = {str(at): pl.Float64() for at in range(width)}
    try:
        frame = pl.read_csv(text, has_header=False, separator=delimiter, schema=schema, quote_char=None)
    except pl.exceptions.PolarsError:
        return None
    steps = frame[str(layout.step)].to_numpy()
    if len(frame) != size or not np.isfinite(steps).all():
        return None
    micros = None
    if layout.time is not None:
        seconds = frame[str(layout.time)].to_numpy()
        low, high = PLAUSIBLE_SECONDS
        if not ((seconds >= low) & (seconds < high)).all():
            return None
        micros = np.round(seconds * 1e6).astype(np.int64)
    found = frame.get_columns()
    rows.add_table(steps, micros, np.array(ids, np.int64), pl.DataFrame([found[at] for at in columns]))
    return steps
