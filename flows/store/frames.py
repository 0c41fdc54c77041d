"""Polars frames in and out of DuckDB."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa  # here, not at its first use: that would be while others wait for their turn at the file

from flows.store.literals import Parameters, written_out

Moment = float | datetime

_ROW_GROUP = 122_880


@contextmanager
def given(connection: duckdb.DuckDBPyConnection, **frames: pl.DataFrame) -> Iterator[None]:
    """Let SQL read `frames` by their names inside the block."""
    for name, frame in frames.items():
        connection.register(name, _in_row_groups(frame))
    try:
        yield
    finally:
        for name in frames:
            connection.unregister(name)


def _in_row_groups(frame: pl.DataFrame) -> Any:
    # DuckDB's threads share a table by its batches: a single one of a million rows is inserted at half the speed
    table = frame.to_arrow()
    return pa.Table.from_batches(table.to_batches(max_chunksize=_ROW_GROUP), schema=table.schema)


def execute(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
    """Run one statement and take all it answers: DuckDB 2 refuses the next one while an answer is unread."""
    return connection.execute(written_out(sql, parameters)).fetchall()


def one(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = ()) -> tuple[Any, ...] | None:
    """The first row of an answer, None if there is none."""
    return next(iter(execute(connection, sql, parameters)), None)


def number(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = ()) -> int:
    """The single number that a query answers."""
    row = one(connection, sql, parameters)
    if row is None:
        raise LookupError(f"no row for {sql}")
    return int(row[0])


def select(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = ()) -> pl.DataFrame:
    """The answer of one query as a frame."""
    return taken(connection.sql(written_out(sql, parameters)))


def taken(relation: duckdb.DuckDBPyRelation) -> pl.DataFrame:
    """All rows of a relation."""
    frame = pl.from_arrow(relation.to_arrow_table())
    assert isinstance(frame, pl.DataFrame)
    return frame


def rows(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = ()) -> list[dict[str, Any]]:
    """The answer of one query as dicts by column name; times are naive UTC."""
    relation = connection.sql(written_out(sql, parameters))
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


def timestamp(moment: Moment) -> datetime:
    """Unix seconds, or a datetime with or without a zone, as the naive UTC that the tables hold."""
    if isinstance(moment, datetime):
        return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    return datetime.fromtimestamp(moment, UTC).replace(tzinfo=None)
