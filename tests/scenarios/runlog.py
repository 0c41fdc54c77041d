"""A stretch of training as rows in the order in which a trainer logs them, and the file they stand in.

Wide Parquet with `_step` and `_timestamp`, as a W&B history is exported: it carries wall times and is read ten times faster
than json_logger lines, whose objects have no time of their own. What a step did not log is null; NaN is logged.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

Array = np.ndarray


def logged(values: Array, where: Array) -> pl.Series:
    """A column that is logged at some steps only."""
    return pl.select(pl.when(pl.Series(where)).then(pl.Series(np.asarray(values, dtype=float)))).to_series()


def stretch(steps: Array, started: float, seconds: Array, columns: Mapping[str, Array | pl.Series]) -> pl.DataFrame:
    """Rows of consecutive steps of one process; a row is stamped when its step is done."""
    return pl.DataFrame({"_step": steps, "_timestamp": started + np.cumsum(seconds), **columns})


def ended(rows: pl.DataFrame) -> float:
    """When the newest row was written."""
    return float(rows["_timestamp"][-1])


def in_log_order(*stretches: pl.DataFrame) -> pl.DataFrame:
    """One log; a later attempt stands behind the one that it replaces, however far it goes back."""
    return pl.concat(stretches, how="diagonal")


def save(rows: pl.DataFrame, path: Path, about: Mapping[str, str]) -> None:
    """`about` goes into the metadata of the file."""
    rows.write_parquet(path, metadata={"generated": "true", **about}, compression="lz4", row_group_size=4096)
