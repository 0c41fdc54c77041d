"""Samples gathered column by column and handed over as one frame."""

from array import array
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.records import SAMPLE_SCHEMA
from flows.sources.contract import MAX_METRICS, MAX_NAME_CHARS, refuse

_NO_TIME = -(1 << 63)  # numpy's NaT, which Polars reads as null
FLUSH_ROWS = 400_000  # one block of text adds at most 500,000 rows to it
BATCH_SECONDS = 10.0  # of a server that is slow: what was stored need not be asked for again


class Rows:
    """A growing batch. Lines come as (step, time, metric ids, values); `take` empties it into a SAMPLE_SCHEMA frame."""

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self.notes: Counter[str] = Counter()
        self._names: list[str] = []
        self._ids: dict[str, int] = {}
        self._empty()

    def _empty(self) -> None:
        self._frames: list[pl.DataFrame] = []
        self._framed = 0
        self._begin()

    def _begin(self) -> None:
        self._values = array("d")
        self._metrics = array("q")
        self._steps = array("d")
        self._times = array("q")
        self._counts = array("q")

    def __len__(self) -> int:
        return self._framed + len(self._values)

    def id_of(self, name: str) -> int | None:
        """Number of a metric; None for a name that cannot be kept. Raises BadInput beyond MAX_METRICS names."""
        number = self._ids.get(name)
        if number is not None:
            return number
        if not name or len(name) > MAX_NAME_CHARS:
            self.notes["unusable metric name"] += 1
            return None
        if len(self._names) >= MAX_METRICS:
            what = f"more than {MAX_METRICS:,} different metric names (such as {name[:60]!r})"
            raise refuse(self.path, what, "log one name a quantity, not one a step or an example")
        self._names.append(name.encode("utf-8", "replace").decode("utf-8"))
        self._ids[name] = len(self._names) - 1
        return self._ids[name]

    def add(self, step: float, micros: int | None, metrics: "array[int]", values: list[float]) -> None:
        """Append one line. Raises TypeError or OverflowError, with nothing appended, if a value is no float."""
        self._values.fromlist(values)
        self._metrics.extend(metrics)
        self._steps.append(step)
        self._times.append(_NO_TIME if micros is None else micros)
        self._counts.append(len(values))

    def add_many(
        self,
        steps: NDArray[np.float64],
        micros: NDArray[np.int64],
        counts: NDArray[np.int64] | int,
        metrics: NDArray[np.int64],
        values: NDArray[np.float64],
    ) -> None:
        """Append lines: step, time (NaT for none) and number of values of each, then ids and values of all in order."""
        counts = np.broadcast_to(counts, len(steps))
        self._steps.frombytes(np.ascontiguousarray(steps, dtype=np.float64).tobytes())
        self._times.frombytes(np.ascontiguousarray(micros, dtype=np.int64).tobytes())
        self._counts.frombytes(np.ascontiguousarray(counts, dtype=np.int64).tobytes())
        self._metrics.frombytes(np.ascontiguousarray(metrics, dtype=np.int64).tobytes())
        self._values.frombytes(np.ascontiguousarray(values, dtype=np.float64).tobytes())

    def add_table(
        self,
        steps: NDArray[np.float64],
        micros: NDArray[np.int64] | None,
        metrics: NDArray[np.int64],
        table: pl.DataFrame,
    ) -> None:
        """Append lines that all have the same metrics: step and time of each, a column of numbers a metric. Null says
        that nothing was logged."""
        self._frame()
        rows, width = table.shape
        values = table.to_numpy(order="c").ravel()
        row, metric = np.repeat(np.arange(rows), width), np.tile(metrics, rows)
        if any(column.null_count() for column in table.iter_columns()):
            logged = ~table.select(pl.all().is_null()).to_numpy(order="c").ravel()
            values, row, metric = values[logged], row[logged], metric[logged]
        self._put(steps[row], None if micros is None else micros[row], metric, values)

    def take(self) -> tuple[pl.DataFrame, dict[str, int]]:
        """The gathered rows and notes; both start from nothing again."""
        if self._values or not self._frames:
            self._frame()
        frame = pl.concat(self._frames) if len(self._frames) > 1 else self._frames[0]
        notes = dict(self.notes)
        self.notes.clear()
        self._empty()
        return frame, notes

    def _frame(self) -> None:
        """Make a frame of the lines that were gathered one by one."""
        counts = np.array(self._counts, dtype=np.int64)
        times = np.repeat(np.array(self._times, dtype=np.int64), counts)
        steps = np.repeat(np.array(self._steps, dtype=np.float64), counts)
        self._put(steps, times, np.array(self._metrics, dtype=np.int64), np.array(self._values, dtype=np.float64))
        self._begin()

    def _put(
        self,
        steps: NDArray[np.float64],
        micros: NDArray[np.int64] | None,
        metrics: NDArray[np.int64],
        values: NDArray[np.float64],
    ) -> None:
        when = pl.Datetime("us")
        times = (
            pl.Series([None], dtype=when).new_from_index(0, len(steps))
            if micros is None
            else pl.Series(micros.view("datetime64[us]"), dtype=when)
        )
        names = pl.Series(self._names, dtype=pl.String).gather(pl.Series(metrics))
        columns = {"step": steps, "logged_at": times, "name": names, "value": values}
        self._frames.append(pl.DataFrame(columns, schema=SAMPLE_SCHEMA))
        self._framed += len(steps)
