"""Parquet, wide or long, streamed: a slice of rows at a time, whatever the file's size."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import polars as pl

from flows.errors import BadInput
from flows.records import SAMPLE_SCHEMA, Batch, Description
from flows.sources.contract import MAX_BATCH_ROWS, MAX_METRICS, refuse
from flows.sources.cursor import decode
from flows.sources.frames import Shape, shape_of, to_samples
from flows.sources.streams import open_file
from flows.sources.timestamps import TIME_KEYS

if TYPE_CHECKING:
    import pyarrow.parquet as pq

MAGIC = b"PAR1"
MAX_FOOTER_BYTES = 48 << 20
FREE_BYTES = 256 << 20  # a file that unpacks to less may be compressed as well as it likes
MAX_EXPANSION = 200
MAX_RUN_LENGTH = 1_000  # bytes of samples a byte of file: constants compress far, nothing real does
_MARKED_CELLS, _MARKED_ROWS = 4_096, 64
_READ_AHEAD = 32 << 20  # bytes, shared by all columns: without it a whole row group is held


@dataclass(frozen=True)
class Parquet:
    """One run. The file may be rewritten longer; if the first or last rows that were read differ, it begins anew."""

    path: Path
    run: str
    source: str
    wanted: str | None = None

    def describe(self) -> Description:
        with open_file(self.path) as file:
            shape = _shape(self.path, _open(self.path, file), self.wanted)
        return Description(self.run, self.source, "parquet", shape.step_key)

    def pull(self, cursor: str | None) -> Iterator[Batch]:
        state = decode(cursor, "parquet")
        with open_file(self.path) as file:
            table = _open(self.path, file)
            shape = _shape(self.path, table, self.wanted)
            restart = bool(cursor) and not _goes_on(self.path, table, shape, state)
            state = {} if restart else state
            done, names = int(state.get("rows", 0)), set[str]()
            first: dict[str, Any] = {name: state[name] for name in ("first", "headed") if name in state}
            for part in _parts(self.path, table, shape, done):
                start, last = part.head(_marked(shape)), part.tail(_marked(shape))
                first = first or {"first": _digest(start), "headed": len(start)}
                notes: Counter[str] = Counter()
                rows = to_samples(part, shape, done, notes)
                _check_names(self.path, shape, rows, names)
                done += len(part)
                state = {"rows": done, **first, "last": _digest(last), "marked": len(last)}
                yield Batch(rows, _cursor(shape, state), restart, dict(notes))
                restart = False
            if restart:
                yield Batch(pl.DataFrame(schema=SAMPLE_SCHEMA), _cursor(shape, {}), restart)


def open_parquet(path: Path, run: str, source: str, wanted: str | None) -> Parquet:
    """Raises BadInput for a broken file, a bomb, or one without a number to watch."""
    table = Parquet(path, run, source, wanted)
    table.describe()
    return table


def _open(path: Path, file: BinaryIO) -> "pq.ParquetFile":
    """The file with its footer read and its sizes believed. Raises BadInput where they are not those of a log."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = file.seek(0, 2)
    file.seek(max(0, size - 8))
    end = file.read()
    if size < 12 or not end.endswith(MAGIC):
        raise refuse(path, "a Parquet file without its end", "wait until its writer has closed it, or copy it again")
    footer = int.from_bytes(end[:4], "little")
    if footer > min(size, MAX_FOOTER_BYTES):
        what = f"its footer claims {footer >> 20} MB, the limit is {MAX_FOOTER_BYTES >> 20} MB"
        raise refuse(path, what, "write fewer columns and larger row groups, or the long form (step, name, value)")
    try:
        table = pq.ParquetFile(file, pre_buffer=False, thrift_container_size_limit=20_000_000)
        columns = max(1, len(table.schema_arrow.names))
        buffer = max(1 << 14, min(1 << 20, _READ_AHEAD // columns))
        table = pq.ParquetFile(file, metadata=table.metadata, pre_buffer=False, buffer_size=buffer)
        names = table.schema_arrow.names
    except (pa.ArrowException, OSError) as error:
        raise _broken(path, error) from None
    meta = table.metadata
    if len(names) > MAX_METRICS:
        raise refuse(path, f"{len(names):,} columns, more than {MAX_METRICS:,}", "log one column a quantity")
    unpacked = sum(meta.row_group(at).total_byte_size for at in range(meta.num_row_groups))
    cells = 8 * meta.num_rows * len(names)
    if unpacked > max(FREE_BYTES, MAX_EXPANSION * size) or cells > max(16 * FREE_BYTES, MAX_RUN_LENGTH * size):
        what = f"{size:,} bytes claim to hold {meta.num_rows:,} rows, like a compressed bomb"
        raise refuse(path, what, "write it with real samples, uncompressed if need be")
    return table


def _broken(path: Path, error: Exception) -> BadInput:
    return refuse(path, f"a broken Parquet file ({str(error)[:120]})", "write it again")


def _shape(path: Path, table: "pq.ParquetFile", wanted: str | None) -> Shape:
    schema = _schema(table)
    times = [name for name in schema if name.lower() in TIME_KEYS]
    first = next(_slices(path, table, times, 0, _MARKED_ROWS), None) if times else None
    shape = shape_of(schema, first if first is not None else pl.DataFrame({}), wanted)
    columns = ", ".join(table.schema_arrow.names[:12])
    if wanted is not None and shape.step_key != wanted:
        raise refuse(path, f"no column of numbers {wanted!r}", f"name one of these with --step-key: {columns}")
    if not shape.metrics and shape.value is None:
        what = f"no column of numbers beside the step (there is {columns or 'none'})"
        raise refuse(path, what, "write metrics as numbers, wide or as step, name, value")
    return shape


def _schema(table: "pq.ParquetFile") -> dict[str, pl.DataType]:
    """Types of the columns that can be read: flat, of one value, and with a name of their own."""
    import pyarrow as pa

    fields = list(table.schema_arrow)
    seen = Counter(field.name for field in fields)
    flat = [f for f in fields if not pa.types.is_nested(f.type) and not pa.types.is_null(f.type) and seen[f.name] == 1]
    flat = [f for f in flat if not pa.types.is_binary(f.type) and not pa.types.is_large_binary(f.type)]
    frame = pl.from_arrow(pa.schema(flat).empty_table())
    assert isinstance(frame, pl.DataFrame)
    return dict(frame.schema)


def _slices(path: Path, table: "pq.ParquetFile", columns: list[str], done: int, size: int) -> Iterator[pl.DataFrame]:
    """Rows behind the first `done`, at most `size` a slice, of these columns."""
    meta, skip = table.metadata, done
    groups: list[int] = []
    for group in range(meta.num_row_groups):
        if groups or skip < meta.row_group(group).num_rows:
            groups.append(group)
        else:
            skip -= meta.row_group(group).num_rows
    for frame in _read(path, table, groups, columns, size) if groups else ():
        if skip < len(frame):
            yield frame.slice(skip)
        skip = max(0, skip - len(frame))


def _read(
    path: Path, table: "pq.ParquetFile", groups: list[int], columns: list[str], size: int
) -> Iterator[pl.DataFrame]:
    import pyarrow as pa

    try:
        for part in table.iter_batches(batch_size=size, row_groups=groups, columns=columns, use_threads=False):
            frame = pl.from_arrow(part)
            assert isinstance(frame, pl.DataFrame)
            yield frame
    except (pa.ArrowException, OSError) as error:
        raise _broken(path, error) from None


def _parts(path: Path, table: "pq.ParquetFile", shape: Shape, done: int) -> Iterator[pl.DataFrame]:
    width = 1 if shape.value is not None else len(shape.metrics)
    return _slices(path, table, list(shape.read), done, max(1, MAX_BATCH_ROWS // width))


def _goes_on(path: Path, table: "pq.ParquetFile", shape: Shape, state: dict[str, Any]) -> bool:
    """Whether the rows that were read still stand at the beginning, by its first and its last ones."""
    done, marked = int(state.get("rows", 0)), int(state.get("marked", 0))
    if state.get("step_key") != shape.step_key or done > table.metadata.num_rows:
        return False
    if done == 0:
        return True
    columns = list(shape.read)
    first = _rows_between(path, table, columns, 0, int(state.get("headed", 0)))
    last = _rows_between(path, table, columns, done - marked, done)
    return _digest(first) == state.get("first") and _digest(last) == state.get("last")


def _rows_between(path: Path, table: "pq.ParquetFile", columns: list[str], start: int, stop: int) -> pl.DataFrame:
    size = max(stop - start, 65_536 // max(len(columns), 1))
    found: list[pl.DataFrame] = []
    for part in _slices(path, table, columns, start, size):
        found.append(part)
        if sum(map(len, found)) >= stop - start:
            break
    return pl.concat(found).head(stop - start)


def _marked(shape: Shape) -> int:
    return max(1, min(_MARKED_ROWS, _MARKED_CELLS // len(shape.read)))


def _digest(part: pl.DataFrame) -> str:
    """Of the values, not of how the file stores them."""
    return hashlib.blake2b(repr(part.rows()).encode("utf-8", "replace"), digest_size=12).hexdigest()


def _check_names(path: Path, shape: Shape, rows: pl.DataFrame, names: set[str]) -> None:
    if shape.name is None:
        return
    names.update(rows["name"].unique())
    if len(names) > MAX_METRICS:
        what = f"more than {MAX_METRICS:,} different metric names (such as {next(iter(names))[:60]!r})"
        raise refuse(path, what, "log one name a quantity, not one a step or an example")


def _cursor(shape: Shape, state: dict[str, Any]) -> str:
    return json.dumps({"format": "parquet", "step_key": shape.step_key, **state})
