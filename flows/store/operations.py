"""The log of incidents: rows are added, none is changed. Every function works inside a transaction of the caller."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import duckdb
import polars as pl

from flows.records import Operation
from flows.store.connection import statement
from flows.store.frames import execute, given, rows, timestamp

_TIME = pl.Datetime("us")
OPERATION: dict[str, Any] = {
    "turn": pl.Int64, "run": pl.String, "incident_id": pl.String, "kind": pl.String, "metric": pl.String,
    "pattern": pl.String, "until_time": _TIME, "until_step": pl.Float64, "step": pl.Float64, "severity": pl.Int32,
    "findings": pl.Int32, "silent": pl.Boolean, "who": pl.String, "why": pl.String, "done_at": _TIME,
}  # fmt: skip


def add(connection: duckdb.DuckDBPyConnection, operations: Iterable[Operation]) -> None:
    """Append to the log, in the order given."""
    lines = [
        {**vars(each), "turn": turn, "done_at": timestamp(each.at), "until_time": _moment(each.until_time)}
        for turn, each in enumerate(operations, 1)
    ]
    if lines:
        with given(
            connection,
            given=pl.DataFrame([{name: line[name] for name in OPERATION} for line in lines], schema=OPERATION),
        ):
            execute(connection, statement("insert_operations"))


def close(connection: duckdb.DuckDBPyConnection, operation: Operation, now: datetime) -> None:
    """Let the row of an incident say at once that somebody resolved it."""
    about = {"run": operation.run, "incident": operation.incident_id, "step": operation.step, "now": now}
    execute(connection, statement("close_incident"), about)


def of_run(connection: duckdb.DuckDBPyConnection, run: str | None) -> list[Operation]:
    """The log of one run with every mute, or of all, in the order in which it was written."""
    return [_operation(row) for row in rows(connection, statement("operations_of_run"), {"run": run})]


def _operation(row: dict[str, Any]) -> Operation:
    times = {"at": _seconds(row.pop("done_at")), "until_time": _seconds(row["until_time"])}
    return Operation(**{**row, **times})


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else timestamp(seconds)


def _seconds(moment: datetime | None) -> Any:
    return None if moment is None else moment.replace(tzinfo=UTC).timestamp()
