"""What the operating record needs beside the documents: how far attempts came, how fresh a run is, its samples as logged."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import duckdb
import polars as pl

from flows.store import runs
from flows.store.connection import statement
from flows.store.frames import execute, number, one, rows, select


@dataclass(frozen=True)
class Facts:
    """`reached` is the last step of each attempt, `started` its earliest time, `batch` the newest append with rows.

    `replaced` counts what was passed over or replaced of the samples as they were stored.
    """

    reached: dict[int, float]
    started: dict[int, datetime | None]
    batch: int
    replaced: int
    fresh_at: datetime | None
    expectations: list[dict[str, Any]]


def facts(connection: duckdb.DuckDBPyConnection, run: str) -> Facts:
    """Read from marks that are kept current, so that it costs the same however long the run is."""
    run_id = runs.id_of(connection, run)
    ends = execute(
        connection, "SELECT attempt, max(last_step) FROM track_rows WHERE run_id = ? GROUP BY attempt", [run_id]
    )
    began = execute(connection, "SELECT attempt, started_at FROM segment_rows WHERE run_id = ?", [run_id])
    newest = one(
        connection, "SELECT max(batch), max(appended_at) FROM batch_rows WHERE run_id = ? AND new_rows > 0", [run_id]
    )
    expected = rows(
        connection,
        "SELECT name, version, recorded_at, body FROM expectations WHERE run = ? ORDER BY recorded_at, name, version",
        [run],
    )
    batch, fresh = newest if newest is not None else (None, None)
    replaced = number(
        connection, "SELECT coalesce(sum(count), 0) FROM coverage WHERE run = ? AND check_name = 'samples'", [run]
    )
    return Facts(dict(ends), dict(began), int(batch or 0), replaced, fresh, expected)


def first_since(connection: duckdb.DuckDBPyConnection, run: str, batch: int) -> float | None:
    """The lowest step of any metric and attempt that was stored after an append; None where nothing was."""
    sql = "SELECT min(step) FROM sample_rows WHERE run_id = ? AND batch > ?"
    found = one(connection, sql, [runs.id_of(connection, run), batch])
    return None if found is None else found[0]


def as_logged(connection: duckdb.DuckDBPyConnection, run: str) -> pl.DataFrame:
    """step, logged_at, name, value in the order in which the run wrote them, each value as the judge first saw it."""
    return select(connection, statement("as_logged"), {"run_id": runs.id_of(connection, run)})
