"""trackio's project database (SQLite, `PROJECT.db`): a run for each run in it.

Nothing of it is locked, changed or left behind: a database without a log beside it is read as immutable, which takes no lock
and makes no file, and read again where it changed meanwhile; one with a log (`-wal`) has a writer, which readers do not
hinder. A statement is over before its rows are given on.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from flows.errors import SourceUnavailable
from flows.records import Batch, Description
from flows.sources.contract import MAX_LINE_BYTES, SYSTEM, refuse
from flows.sources.cursor import decode
from flows.sources.objects import ObjectRows
from flows.sources.rows import FLUSH_ROWS, Rows
from flows.sources.streams import open_file
from flows.sources.timestamps import to_micros

MAGIC = b"SQLite format 3\0"
_CHUNK_ROWS, _CHUNK_BYTES = 20_000, 32 << 20
_TRIES = 5
_COLUMNS = frozenset({"id", "run_id", "run_name", "timestamp", "step", "metrics"})
# of a table alone: a view may be a statement that never ends
_COLUMNS_OF = "SELECT i.name FROM sqlite_master m, pragma_table_info(m.name) i WHERE m.type = 'table' AND m.name = ?"
_NO_STEP = "\0"  # no name of a metric: the step is that of the table


@dataclass(frozen=True)
class _Place:
    """Last rows read of the two tables (0: none), digest of the metrics' one, what ObjectRows goes on from."""

    metrics: int = 0
    system: int = 0
    mark: str = ""
    last_step: float | None = None


@dataclass(frozen=True)
class TrackioRun:
    """One run of the database. Its metrics have a step; the system's are placed at the last one before them."""

    path: Path
    run: str
    source: str
    run_id: str
    wanted: str | None = None

    def describe(self) -> Description:
        return Description(self.run, self.source, "trackio", self.wanted or "step")

    def pull(self, cursor: str | None) -> Iterator[Batch]:
        state = decode(cursor, "trackio")
        place = _Place(*(state.get(name, default) for name, default in vars(_Place()).items()))
        known = state.get("run_id") == self.run_id and state.get("step_key") == self.wanted
        restart = bool(cursor) and not (known and self._mark(place.metrics) == place.mark)
        place = _Place() if restart else place
        start, objects = place, ObjectRows(Rows(self.path), self.wanted or _NO_STEP, place.last_step)
        for place in self._rows(start, objects):
            if len(objects.rows) >= FLUSH_ROWS:
                yield self._batch(objects, place, restart)
                start, restart = place, False
        if restart or place != start:
            yield self._batch(objects, place, restart)

    def _rows(self, place: _Place, objects: ObjectRows) -> Iterator[_Place]:
        """Adds chunk by chunk; the place behind each."""
        system = _rows_of(self.path, "system_metrics", self.run_id, place.system)
        waiting = next(system, None)
        for row in _rows_of(self.path, "metrics", self.run_id, place.metrics):
            number, time, step, text = row
            while waiting is not None and objects.last_step is not None and waiting[1] < time:
                place = _add_system(objects, waiting, place)
                waiting = next(system, None)
            item = _item(text, objects)
            if self.wanted is None:
                objects.add(item, step, to_micros(time))
                objects.last_step = float(step) if isinstance(step, int) else objects.last_step
            else:
                objects.add(item, time=to_micros(time))
            place = replace(place, metrics=number, mark=_digest(row), last_step=objects.last_step)
            yield place
        while waiting is not None and objects.last_step is not None:
            place = _add_system(objects, waiting, place)
            waiting = next(system, None)
            yield place

    def _mark(self, number: int) -> str:
        return (
            next((_digest(row) for row in _rows_of(self.path, "metrics", self.run_id, number - 1)), "")
            if number
            else ""
        )

    def _batch(self, objects: ObjectRows, place: _Place, restart: bool) -> Batch:
        rows, notes = objects.rows.take()
        state = {"format": "trackio", "run_id": self.run_id, "step_key": self.wanted, **vars(place)}
        return Batch(rows, json.dumps(state), restart, notes)


def open_trackio(path: Path, run: str | None, source: str, wanted: str | None) -> list[TrackioRun]:
    """The runs, by their beginning. Raises BadInput where it is no database of trackio's, or an empty one."""
    columns = {name for (name,) in _query(path, _COLUMNS_OF, ("metrics",))}
    if not columns >= _COLUMNS:
        what = "an SQLite database without trackio's table of metrics"
        raise refuse(path, what, "export its metrics as CSV or Parquet")
    columns_of = "COALESCE(CAST(run_id AS TEXT), ''), COALESCE(CAST(MAX(run_name) AS TEXT), '')"
    runs = _query(path, f"SELECT {columns_of} FROM metrics GROUP BY run_id ORDER BY MIN(id)")
    if not runs:
        raise refuse(path, "no metrics in it yet", "name the database of a run that has logged")
    names = [name for _, name in runs]
    called = [name if names.count(name) == 1 else f"{name} {run_id[:8]}" for run_id, name in runs]
    if run is not None:
        called = [run] if len(runs) == 1 else [f"{run}/{name}" for name in called]
    found = [TrackioRun(path, name, source, run_id, wanted) for name, (run_id, _) in zip(called, runs, strict=True)]
    for each in found if wanted is not None else ():
        first = next(_rows_of(path, "metrics", each.run_id, 0))
        names = list(_item(first[3], ObjectRows(Rows(path), _NO_STEP)))
        if wanted not in names:
            what = f"no {wanted!r} in the first row of {each.run} (there is {', '.join(names[:12])})"
            raise refuse(path, what, "name one of these with --step-key")
    return found


def _rows_of(path: Path, table: str, run_id: str, after: int) -> Iterator[tuple[int, str, int, Any]]:
    """id, timestamp, step (0 in the system's table) and JSON text of the rows behind `after`, a chunk in memory."""
    if not _query(path, _COLUMNS_OF, (table,)):
        return
    step = "step" if table == "metrics" else "0"
    text = f"CASE WHEN length(metrics) <= {MAX_LINE_BYTES} THEN metrics END"
    columns = f"id, substr(CAST(timestamp AS TEXT), 1, 64), {step}, {text}"
    sql = f"SELECT {columns} FROM {table} WHERE run_id = ? AND id > ? ORDER BY id LIMIT {_CHUNK_ROWS}"
    while chunk := _query(path, sql, (run_id, after)):
        yield from chunk
        after = chunk[-1][0]


def _query(path: Path, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
    """The rows, _CHUNK_BYTES of text at most. Raises BadInput for a broken database, SourceUnavailable for a busy one."""
    for _ in range(_TRIES):
        before = _looks(path)
        if not before[0] and _is_cut(path, before[2]):
            raise refuse(path, "a part of an SQLite database", "copy it again, with its writer stopped")
        how = "mode=ro" if before[0] else "immutable=1"
        try:
            with closing(
                sqlite3.connect(f"file:{quote(str(path.resolve()))}?{how}", uri=True, timeout=5)
            ) as connection:
                rows, size = [], 0
                for row in connection.execute(sql, values):
                    rows.append(row)
                    size += len(row[-1] or "") if isinstance(row[-1], str | bytes) else 8
                    if size > _CHUNK_BYTES:
                        break
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if isinstance(error, sqlite3.OperationalError) and before[0]:
                raise SourceUnavailable(f"{path}: the database cannot be read now ({error}); try again") from None
            if _looks(path) != before:
                continue
            raise refuse(path, f"a broken SQLite database ({str(error)[:80]})", "copy it again") from None
        if before[0] or _looks(path) == before:
            return rows
    raise SourceUnavailable(f"{path}: the database is being written all the time; try again")


def _looks(path: Path) -> tuple[bool, int, int, int]:
    """Whether there is a log beside it, and what tells whether the file was written meanwhile."""
    try:
        log, found = path.with_name(f"{path.name}-wal").exists(), path.stat()
    except OSError as error:
        raise SourceUnavailable(f"{path}: cannot be opened ({error.strerror}); is the file system there?") from None
    return log, found.st_mtime_ns, found.st_size, found.st_ino


def _is_cut(path: Path, size: int) -> bool:
    """Whether pages are missing at its end, which SQLite would take for empty ones (sqlite.org/fileformat2.html, 1.3)."""
    with open_file(path) as file:
        head = file.read(100)
    page = int.from_bytes(head[16:18])
    page = 65_536 if page == 1 else page
    counted = len(head) == 100 and head[24:28] == head[92:96]
    return size < 100 or (counted and int.from_bytes(head[28:32]) * page > size)


def _add_system(objects: ObjectRows, row: tuple[int, str, int, Any], place: _Place) -> _Place:
    number, time, _, text = row
    objects.add(_item(text, objects), objects.last_step, to_micros(time), SYSTEM)
    return replace(place, system=number)


def _item(text: str | bytes | None, objects: ObjectRows) -> dict[str, Any]:
    """The metrics of a row, without the objects that stand for media and histograms."""
    try:
        item = json.loads(text or "")
    except (ValueError, RecursionError):
        item = None
    if not isinstance(item, dict):
        objects.rows.notes["row that is no JSON object" if text is not None else "row of more than 8 MB"] += 1
        return {}
    media = [name for name, value in item.items() if isinstance(value, dict) and "_type" in value]
    for name in media:
        objects.rows.notes["histogram, image or other object that is no number"] += 1
        del item[name]
    return item


def _digest(row: tuple[Any, ...]) -> str:
    return hashlib.blake2b(repr(row).encode("utf-8", "replace"), digest_size=12).hexdigest()
