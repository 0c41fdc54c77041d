"""Which schema a store has, and how an older one becomes today's: on a copy that takes its place when it is whole."""

import os
import shutil
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources
from pathlib import Path

import duckdb

from flows.errors import StoreTooNew
from flows.store.connection import LOCKED, STORAGE_VERSION, Database, told_as_ours
from flows.store.frames import execute, number
from flows.store.turnstile import turn


@dataclass(frozen=True)
class Migration:
    """One numbered step; `sql` may hold several statements."""

    version: int
    name: str
    sql: str


@cache
def migrations() -> tuple[Migration, ...]:
    """All steps that this program knows, in order."""
    files = [f for f in resources.files("flows.store").joinpath("migrations").iterdir() if f.name.endswith(".sql")]
    steps = [Migration(int(f.name[:4]), f.name[5:-4], f.read_text(encoding="utf-8")) for f in files]
    return tuple(sorted(steps, key=lambda step: step.version))


def bring_up_to_date(database: Database, now: datetime, steps: tuple[Migration, ...] | None = None) -> Path | None:
    """Create or migrate the store; returns the backup that an older one was kept as. Raises StoreTooNew."""
    steps = migrations() if steps is None else steps
    if database.path is None:
        with database.writing() as connection:
            for step in steps:
                _apply(connection, step, now)
        return None
    if database.path.exists():
        with database.reading() as connection:
            if _checked(schema_version(connection), steps, database.path) == steps[-1].version:
                return None
    database.path.parent.mkdir(parents=True, exist_ok=True)
    with told_as_ours(database.path), turn(database.path, writing=True, patience_seconds=database.patience_seconds):
        return _migrate_file(database.path, steps, now)


def schema_version(connection: duckdb.DuckDBPyConnection) -> int:
    """The number of the last applied step; 0 for a database without any."""
    if not number(connection, "SELECT count(*) FROM information_schema.tables WHERE table_name = 'schema_migrations'"):
        return 0
    return number(connection, "SELECT coalesce(max(version), 0) FROM schema_migrations")


def _checked(version: int, steps: tuple[Migration, ...], path: Path) -> int:
    if version > steps[-1].version:
        raise StoreTooNew(
            f"store {path}: it has schema {version}, this watchkeeper knows {steps[-1].version}. "
            "Upgrade watchkeeper, or give another path as store.url."
        )
    return version


def _migrate_file(path: Path, steps: tuple[Migration, ...], now: datetime) -> Path | None:
    draft = path.with_name(f"{path.name}.migrating")
    for leftover in (draft, draft.with_name(f"{draft.name}.wal")):
        leftover.unlink(missing_ok=True)  # of a migration that was killed
    version = 0
    if path.exists():
        # opening for writing takes a killed writer's log into the file, so that one file is everything
        with _open_file(path) as connection:
            version = _checked(schema_version(connection), steps, path)
            execute(connection, "CHECKPOINT")
        if version == steps[-1].version:
            return None  # another process was here first
        shutil.copyfile(path, draft)
    with _open_file(draft) as connection:
        for step in steps:
            if step.version > version:
                execute(connection, "BEGIN TRANSACTION")
                _apply(connection, step, now)
                execute(connection, "COMMIT")
    _flush(draft)
    backup = None
    if path.exists():
        backup = path.with_name(f"{path.stem}.schema-{version}.{now:%Y%m%dT%H%M%S}.backup{path.suffix}")
        shutil.copyfile(path, backup)
        _flush(backup)
    draft.replace(path)
    return backup


def _apply(connection: duckdb.DuckDBPyConnection, step: Migration, now: datetime) -> None:
    execute(
        connection,
        "CREATE TABLE IF NOT EXISTS schema_migrations"
        " (version INTEGER NOT NULL, name VARCHAR NOT NULL, applied_at TIMESTAMP NOT NULL)",
    )
    execute(connection, step.sql)
    execute(
        connection,
        "INSERT INTO schema_migrations (version, name, applied_at) VALUES (?, ?, ?)",
        [step.version, step.name, now],
    )


def _open_file(path: Path) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(str(path), config={**LOCKED, "storage_compatibility_version": STORAGE_VERSION})


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
