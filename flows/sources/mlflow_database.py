"""A run in MLflow's SQLite database, `sqlite:///mlflow.db#RUN_ID`: read directly and read-only.

MLflow's own store would bring the tables of a database up to date, which is not for a watch to do. The rows are in the
order in which they were inserted (`rowid`).
"""

import json
import math
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import polars as pl

from flows.errors import BadInput, SourceUnavailable
from flows.records import SAMPLE_SCHEMA, Batch, Description
from flows.sources.contract import refuse
from flows.sources.cursor import decode
from flows.sources.mlflow_files import FORMAT, run_label
from flows.sources.rows import FLUSH_ROWS
from flows.sources.timestamps import to_micros

# a view in their place may be a statement that never ends
_TABLES = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('metrics', 'runs')"
_NEW = """
SELECT rowid, step, timestamp, key, CASE WHEN is_nan THEN NULL ELSE value END FROM metrics
WHERE run_uuid = ? AND rowid > ? ORDER BY rowid LIMIT ?
"""
_LAST = "SELECT key, timestamp, step, value FROM metrics WHERE run_uuid = ? AND rowid = ?"


@dataclass(frozen=True)
class DatabaseRun:
    """One run. The cursor is the row that was read last."""

    path: Path
    run_id: str
    run: str
    source: str

    def describe(self) -> Description:
        return Description(self.run, self.source, FORMAT, "step")

    def pull(self, cursor: str | None) -> Iterator[Batch]:
        state = decode(cursor, FORMAT)
        last, mark = int(state.get("rowid", 0)), state.get("mark")
        restart = bool(cursor) and (not last or self._mark(last) != mark)
        if restart:
            last = 0
        while rows := _asked(self.path, self.source, _NEW, (self.run_id, last, FLUSH_ROWS)):
            last = rows[-1][0]
            yield Batch(_frame(rows), self._cursor(last), restart)
            restart = False
        if restart:
            yield Batch(pl.DataFrame(schema=SAMPLE_SCHEMA), self._cursor(last), restart)

    def _cursor(self, last: int) -> str:
        return json.dumps({"format": FORMAT, "rowid": last, "mark": self._mark(last)})

    def _mark(self, last: int) -> str:
        return repr(_asked(self.path, self.source, _LAST, (self.run_id, last)))


def open_database(target: str, run: str | None) -> DatabaseRun:
    """Raises BadInput where the address names no run of an MLflow database."""
    address, _, run_id = target.partition("#")
    path = Path(unquote(address.split(":///", maxsplit=1)[-1]))
    if not path.is_file():
        raise refuse(
            target, "no such database", "write sqlite:///relative/mlflow.db#RUN_ID (four slashes: from the root)"
        )
    if _asked(path, target, _TABLES, ()) != [(2,)]:
        raise _no_database(target)
    runs = _asked(path, target, "SELECT run_uuid, name FROM runs ORDER BY start_time DESC", ())
    found = next((str(name or "") for uuid, name in runs if uuid == run_id), None)
    if found is None:
        known = ", ".join(f"{uuid} ({name})" for uuid, name in runs[:8]) or "none"
        raise refuse(target, "no such run in it", f"put one of its runs behind a #: {known}")
    return DatabaseRun(path, run_id, run or run_label(found, run_id), target)


def _asked(path: Path, source: str, query: str, given: tuple[object, ...]) -> list[tuple[Any, ...]]:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, timeout=5.0)) as database:
            return database.execute(query, given).fetchall()
    except sqlite3.OperationalError as error:
        if "no such" in str(error):
            raise _no_database(source) from None
        raise SourceUnavailable(f"{source}: the database does not answer ({error}); the next pass asks again") from None
    except sqlite3.DatabaseError as error:
        raise refuse(source, f"no sound SQLite database ({error})", "name the file of MLflow's backend store") from None


def _no_database(source: str) -> BadInput:
    return refuse(source, "no MLflow database", "name the file of `mlflow server --backend-store-uri`")


def _frame(rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "step": [row[1] for row in rows],
            "logged_at": pl.Series([to_micros(row[2]) for row in rows], dtype=pl.Int64).cast(pl.Datetime("us")),
            "name": [row[3] for row in rows],
            "value": [_value(row[4]) for row in rows],
        },
        schema=SAMPLE_SCHEMA,
        strict=False,
    )


def _value(stored: object) -> float:
    """MLflow keeps NaN as a flag beside 0, infinities as the largest double."""
    if not isinstance(stored, int | float):
        return math.nan
    value = float(stored)
    return math.copysign(math.inf, value) if abs(value) == sys.float_info.max else value
