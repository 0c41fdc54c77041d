"""A smaller file: the whole database is written anew beside the old one, which it then replaces in one step.

Killed at any moment, the old file is still there and whole; what was begun is removed the next time.
"""

import os
from pathlib import Path

import duckdb

from flows.errors import BadConfig
from flows.store.connection import LOCKED, STORAGE_VERSION, Database, told_as_ours
from flows.store.frames import execute
from flows.store.literals import literal
from flows.store.schema import migrations
from flows.store.turnstile import turn


def compact(database: Database) -> tuple[int, int]:
    """Bytes before and after. Nobody else has the file meanwhile. Raises StoreBusy, StoreFull; nothing is lost by either."""
    if database.path is None:
        raise BadConfig("a store in memory has no file to make smaller.")
    path = database.path
    draft = path.with_name(f"{path.name}.compacting")
    with told_as_ours(path), turn(path, writing=True, patience_seconds=database.patience_seconds):
        _forget(draft)
        before = path.stat().st_size
        try:
            _absorb(path)
            _rewrite(path, draft)
            _flush(draft)
            draft.replace(path)
            _flush(path.parent)
        finally:
            _forget(draft)
        return before, path.stat().st_size


def _absorb(path: Path) -> None:
    """Take the write-ahead log into the file, so that the file is everything."""
    with duckdb.connect(str(path), config={**LOCKED, "storage_compatibility_version": STORAGE_VERSION}) as connection:
        execute(connection, "CHECKPOINT")


def _rewrite(path: Path, draft: Path) -> None:
    """Copy every table, row by row in its order, into a file that the migrations made."""
    with duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false"}) as connection:
        execute(connection, f"ATTACH {literal(str(path))} AS old (READ_ONLY)")
        execute(connection, f"ATTACH {literal(str(draft))} AS new (STORAGE_VERSION {literal(STORAGE_VERSION)})")
        execute(connection, "USE new")
        execute(
            connection,
            "CREATE TABLE schema_migrations (version INTEGER NOT NULL, name VARCHAR NOT NULL, applied_at TIMESTAMP NOT NULL)",
        )
        for step in migrations():
            execute(connection, step.sql)
        names = "SELECT table_name FROM duckdb_tables() WHERE database_name = ? ORDER BY table_name"
        tables = execute(connection, names, ["old"])
        if tables != execute(connection, names, ["new"]):
            raise BadConfig(f"store {path}: it holds tables that are not ours; it was left as it is.")
        for (name,) in tables:
            execute(connection, f'INSERT INTO new."{name}" BY NAME SELECT * FROM old."{name}"')
            counts = f'SELECT (SELECT count(*) FROM old."{name}") = (SELECT count(*) FROM new."{name}")'
            if execute(connection, counts) != [(True,)]:
                raise RuntimeError(
                    f"compaction of {path}: table {name} did not come over whole; the file was left as it is"
                )
        execute(connection, "CHECKPOINT new")
        execute(connection, "USE memory")
        execute(connection, "DETACH new")


def _forget(draft: Path) -> None:
    for leftover in (draft, draft.with_name(f"{draft.name}.wal")):
        leftover.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
