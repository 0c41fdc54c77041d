from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from flows.records import STORED_SCHEMA, Attempt, Description, Role
from flows.store import Store, open_store
from flows.store.frames import select

NOW = 1_700_000_000.0
FIRST = [Attempt(1, 0.0, None, "start")]


def frame(*rows: tuple) -> pl.DataFrame:
    """Rows (step, name, value[, attempt[, late]]) in the shape that append takes; logged a second a step."""
    full = [(*row, *(1, False)[len(row) - 3 :]) for row in rows]
    return pl.DataFrame(
        [(float(step), None, name, value, attempt, late) for step, name, value, attempt, late in full],
        schema=STORED_SCHEMA,
        orient="row",
    ).with_columns(logged_at=pl.datetime(2026, 1, 1, time_unit="us") + pl.duration(seconds=pl.col("step")))


def role_of(name: str) -> Role:
    return Role("loss", "nats", "down") if "loss" in name else Role("other")


def put(store: Store, *rows: tuple, attempts: list[Attempt] = FIRST, cursor: str = "c", run: str = "hero", **more):
    return store.append(run, frame(*rows), attempts, cursor, "t", more.get("notes", {}), role_of)


@pytest.fixture(scope="session")
def rows() -> Callable[..., pl.DataFrame]:
    return frame


def read(store: Store, sql: str) -> pl.DataFrame:
    """The answer of SQL, without the process that a user's query gets."""
    with store._database.reading() as connection:
        return select(connection, sql)


@pytest.fixture(scope="session")
def look() -> Callable[[Store, str], pl.DataFrame]:
    return read


@pytest.fixture(scope="session")
def append() -> Callable:
    return put


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    opened = open_store(":memory:" if request.param == "memory" else tmp_path / "store.duckdb", clock=lambda: NOW)
    opened.register_run(Description("hero", "runs/hero.jsonl", "jsonl", "_step"))
    return opened


@pytest.fixture
def file_store(tmp_path: Path) -> Store:
    opened = open_store(tmp_path / "store.duckdb", clock=lambda: NOW)
    opened.register_run(Description("hero", "runs/hero.jsonl", "jsonl", "_step"))
    return opened
