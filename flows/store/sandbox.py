"""What users may ask: a SELECT or EXPLAIN, judged by DuckDB's own parser, on a connection that reaches nothing else."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb
import polars as pl

from flows.errors import BadQuery
from flows.store.connection import LOCKED, Database, Settings
from flows.store.frames import one, taken

# functions in FROM that read nothing but their arguments; every other one is refused (files, settings, query())
TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "repeat", "json_each", "json_tree"})
# they tell settings with paths, or write
REFUSED_FUNCTIONS = frozenset(
    {"current_setting", "getenv", "getvariable", "write_log", "nextval", "currval", "which_secret"}
)
# of the catalogue only what describes tables and functions
CATALOGUE = frozenset(
    {"duckdb_tables", "duckdb_columns", "duckdb_views", "duckdb_functions", "duckdb_types", "duckdb_schemas"}
)
_HIDDEN = re.compile(r"^(duckdb_|pragma_|pg_settings$)")
_EXPLAIN = re.compile(r"^\s*EXPLAIN\s+(?:ANALYZE\s+|\(\s*ANALYZE\s*\)\s*)?(?=\S)", re.IGNORECASE)
_MAX_LENGTH = 100_000


@dataclass(frozen=True)
class Limits:
    """What one query may cost."""

    seconds: float = 30.0
    memory_mb: int = 1024
    threads: int = 2
    rows: int | None = 100_000  # of the answer; None for all that fit the memory


@dataclass(frozen=True)
class Answer:
    """The rows, and a note if there were more."""

    rows: pl.DataFrame
    note: str = ""


def settings(limits: Limits) -> Settings:
    """What locks a connection down: no files, no network, no extension, no spilling, no change of all this."""
    return {
        **LOCKED,
        "memory_limit": f"{limits.memory_mb}MB",
        "threads": limits.threads,
        "temp_directory": "",
        "max_temp_directory_size": "0GB",
    }


def admit(sql: str) -> None:
    """Raise BadQuery unless `sql` is a single SELECT, or EXPLAIN of one, that names nothing beyond the store."""
    if len(sql) > _MAX_LENGTH:
        raise BadQuery(f"the query has {len(sql):,} characters; {_MAX_LENGTH:,} are allowed.")
    kinds = _statement_kinds(sql)
    if len(kinds) != 1:
        raise BadQuery(f"one statement at a time, please: this text holds {len(kinds)}.")
    if kinds[0] == "EXPLAIN":
        inner = _EXPLAIN.sub("", sql, count=1)
        if inner == sql:
            raise BadQuery("EXPLAIN must stand first and may have no options but ANALYZE.")
        sql = inner
    elif kinds[0] != "SELECT":
        raise BadQuery(
            f"the store is read-only here: {kinds[0]} is refused. Ask with SELECT, DESCRIBE, SUMMARIZE or EXPLAIN."
        )
    for what, name in _names(_tree(sql)):
        _admit_name(what, name)


def _statement_kinds(sql: str) -> list[str]:
    try:
        return [item.type.name for item in _parser().extract_statements(sql)]
    except duckdb.Error as error:
        raise BadQuery(f"{error}") from error


def _tree(sql: str) -> Any:
    row = one(_parser(), "SELECT json_serialize_sql(?::VARCHAR)", [sql])
    tree = json.loads(row[0]) if row else {"error": True}
    if tree.get("error"):
        why = tree.get("error_message", "it cannot be read")
        raise BadQuery(f"only a plain SELECT (or EXPLAIN of one) is allowed here: {why}")
    return tree


@cache
def _parser() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:", config=LOCKED)


def _names(tree: Any) -> Iterator[tuple[str, str]]:
    """What a parsed query refers to: ("table function" | "table" | "function", name)."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(node)
        elif isinstance(node, dict):
            waiting.extend(node.values())
            if node.get("type") == "TABLE_FUNCTION":
                called = node.get("function") or {}
                yield "table function", str(called.get("function_name", ""))
            elif node.get("type") == "BASE_TABLE":
                yield "table", str(node.get("table_name", ""))
            elif node.get("class") == "FUNCTION":
                yield "function", str(node.get("function_name", ""))


def _admit_name(what: str, name: str) -> None:
    lowered = name.lower()
    if what == "table function" and lowered not in TABLE_FUNCTIONS:
        raise BadQuery(
            f"{name}() is refused: in FROM stand the store's tables and {', '.join(sorted(TABLE_FUNCTIONS))}()."
        )
    if what == "function" and lowered in REFUSED_FUNCTIONS:
        raise BadQuery(f"{name}() is refused: it tells or changes more than the store's data.")
    if what == "table" and _HIDDEN.match(lowered) and lowered not in CATALOGUE:
        raise BadQuery(f"{name} is refused: it tells settings and paths of this machine.")


def answer(database: Database, sql: str, limits: Limits) -> Answer:
    """Run a query if it is admitted; raises BadQuery with DuckDB's words, or when it takes too long or too much.

    DuckDB heeds neither its memory limit nor an interruption inside one call of repeat() or range(): where that matters
    use flows.store.confined, which runs this in a process of its own.
    """
    admit(sql)
    with database.reading(settings(limits)) as connection, _deadline(connection, limits.seconds):
        try:
            return _fetched(connection.sql(sql), limits.rows)
        except duckdb.InterruptException as error:
            raise BadQuery(too_slow(limits)) from error
        except (duckdb.OutOfMemoryException, MemoryError) as error:
            raise BadQuery(too_big(limits)) from error
        except duckdb.Error as error:
            raise BadQuery(f"{error}") from error


def too_slow(limits: Limits) -> str:
    """What to say of a query that was stopped by the clock."""
    return (
        f"the query took more than {limits.seconds:g} s and was stopped. Narrow it (`watchkeeper sql` takes --timeout)."
    )


def too_big(limits: Limits) -> str:
    """What to say of a query that wanted too much memory."""
    return f"the query needs more than {limits.memory_mb} MB. Narrow it, or aggregate."


def _fetched(found: duckdb.DuckDBPyRelation, most: int | None) -> Answer:
    if most is None:
        return Answer(taken(found))
    frame = taken(found.limit(most + 1))
    if len(frame) <= most:
        return Answer(frame)
    return Answer(frame.head(most), f"only the first {most:,} rows are shown; add LIMIT, or raise --rows.")


@contextmanager
def _deadline(connection: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
