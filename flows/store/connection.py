"""Opening and closing the database: one short transaction at a time, with DuckDB's errors told as ours."""

import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb

from flows.errors import BadConfig, StoreBusy, StoreFull
from flows.store.turnstile import turn

Settings = dict[str, str | bool | int | float | list[str]]

# 1.5 and 2.x open each other's files only in this format
STORAGE_VERSION = "v1.2.0"

# nothing in the store reads or writes any other file, so nobody else may either
LOCKED: Settings = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "lock_configuration": "true",
}

_FULL = ("No space left on device", "File too large", "Disk quota exceeded")
_HELD = re.compile(r"Conflicting lock is held in (?P<program>.*?) \(PID (?P<pid>\d+)\)")
_FOREIGN_PAUSE_SECONDS = 0.1


class Database:
    """A database file, opened anew for each transaction; or one in memory, which lives as long as this object."""

    def __init__(
        self,
        path: Path | None,
        *,
        patience_seconds: float = 60.0,
        foreign_patience_seconds: float = 5.0,
        on_open: Callable[[], None] = lambda: None,
    ) -> None:
        self.path = path
        self.patience_seconds = patience_seconds
        self.foreign_patience_seconds = foreign_patience_seconds
        self._on_open = on_open
        self._memory = duckdb.connect(":memory:", config=LOCKED) if path is None else None
        self._memory_turn = threading.RLock()

    @contextmanager
    def writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A transaction that is committed at the end of the block and rolled back by any exception."""
        with self._opened(
            writing=True, settings={**LOCKED, "storage_compatibility_version": STORAGE_VERSION}
        ) as connection:
            connection.execute("BEGIN TRANSACTION").fetchall()
            try:
                yield connection
                connection.execute("COMMIT").fetchall()
            except BaseException:
                _roll_back(connection)
                raise

    @contextmanager
    def reading(self, settings: Settings | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
        """A read-only connection; `settings` are added to those that lock it."""
        with self._opened(writing=False, settings={**LOCKED, **(settings or {})}) as connection:
            yield connection

    @contextmanager
    def _opened(self, *, writing: bool, settings: Settings) -> Iterator[duckdb.DuckDBPyConnection]:
        with told_as_ours(self.path):
            if self._memory is not None:
                with self._memory_turn, _pandas_unseen():
                    yield self._memory
                return
            assert self.path is not None
            with self._connected(self.path, writing, settings) as connection:
                yield connection

    @contextmanager
    def _connected(self, path: Path, writing: bool, settings: Settings) -> Iterator[duckdb.DuckDBPyConnection]:
        give_up = time.monotonic() + self.foreign_patience_seconds
        while True:
            with turn(path, writing=writing, patience_seconds=self.patience_seconds):
                try:
                    connection = duckdb.connect(str(path), read_only=not writing, config=settings)
                except duckdb.IOException as error:
                    # a program that knows no turnstile: let our own people pass while it is there
                    if not _HELD.search(str(error)) or time.monotonic() >= give_up:
                        raise
                else:
                    try:
                        self._on_open()
                        yield connection
                    finally:
                        connection.close()
                    return
            time.sleep(_FOREIGN_PAUSE_SECONDS)


@contextmanager
def _pandas_unseen() -> Iterator[None]:
    """Reading an Arrow table makes DuckDB import pyarrow.dataset, and that pandas: 0.7 s that a one-shot check need not wait.

    Only for the store in memory, which one thread of a command line uses.
    """
    if "pandas" in sys.modules:
        yield
        return
    modules: dict[str, Any] = sys.modules  # None says that there is no such module
    modules["pandas"] = None
    try:
        yield
    finally:
        del sys.modules["pandas"]


@contextmanager
def told_as_ours(path: Path | None) -> Iterator[None]:
    """Turn DuckDB's errors that a user can mend into ours; leave the others alone."""
    try:
        yield
    except duckdb.Error as error:
        text = str(error)
        if held := _HELD.search(text):
            raise StoreBusy(
                f"store {path}: {held['program']} (PID {held['pid']}) has it open, so nobody else can. "
                "Close it there; `watchkeeper sql` and flows.store.connect() read without blocking anybody."
            ) from error
        if any(phrase in text for phrase in _FULL):
            raise StoreFull(
                f"store {path}: no room on the disk; the pass was rolled back and nothing is lost. "
                "Free some space, or move the file and change store.url."
            ) from error
        if "not a valid DuckDB database file" in text or "Cannot launch in-memory database" in text:
            raise BadConfig(
                f"store {path}: this is no DuckDB file. Give another path as --store or store.url."
            ) from error
        raise


def _roll_back(connection: duckdb.DuckDBPyConnection) -> None:
    with suppress(duckdb.Error):  # the failure that brought us here may have ended the transaction already
        connection.execute("ROLLBACK")


@cache
def statement(name: str) -> str:
    """The text of queries/<name>.sql, as it lies in the installed package."""
    return resources.files("flows.store").joinpath("queries", f"{name}.sql").read_text(encoding="utf-8")
