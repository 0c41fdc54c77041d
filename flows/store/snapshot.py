"""A read-only connection for notebooks that blocks nobody: to a copy of the store as it stood when it was asked for."""

import fcntl
import os
import shutil
import tempfile
import tomllib
from pathlib import Path

import duckdb

from flows.errors import BadConfig
from flows.store.connection import Database, told_as_ours
from flows.store.sandbox import Limits, settings
from flows.store.store import path_of
from flows.store.turnstile import turn

_FICLONE = 0x40049409  # Linux: share the blocks of another file, copied only when one of the two changes
_MEMORY_MB = 4096


def connect(url: str | Path | None = None) -> duckdb.DuckDBPyConnection:
    """A read-only, sandboxed DuckDB connection to the store at `url`, or to the one that ./watchkeeper.toml names.

    It sees the store as it stands now; connect again for what came since. The copy behind it is cloned where the file
    system can, and has no name any more when this returns, so nothing is left behind. Raises BadConfig, StoreBusy.
    """
    path = path_of(url if url is not None else _configured_url(Path("watchkeeper.toml")))
    if path is None or not path.exists():
        raise BadConfig(
            f"store {url or path}: there is no such file to connect to. Run `watchkeeper watch --once` first."
        )
    patience = Database(path).patience_seconds
    with told_as_ours(path), tempfile.TemporaryDirectory(prefix=".watchkeeper-", dir=_folder_for(path)) as folder:
        with turn(path, writing=False, patience_seconds=patience):
            for part in [*sorted(path.parent.glob(f"{path.name}.wal*")), path]:
                _clone(part, Path(folder) / part.name)
        limits = Limits(memory_mb=_MEMORY_MB, threads=os.cpu_count() or 1)
        return duckdb.connect(str(Path(folder) / path.name), read_only=True, config=settings(limits))


def _folder_for(path: Path) -> Path | None:
    # beside the store the copy can share its blocks; a folder that we may not write to leaves the system's own
    return path.parent if os.access(path.parent, os.W_OK) else None


def _clone(source: Path, target: Path) -> None:
    with source.open("rb") as old, target.open("wb") as new:
        try:
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
        except OSError:
            shutil.copyfile(source, target)


def _configured_url(config: Path) -> str:
    try:
        settings_of_user = tomllib.loads(config.read_text(encoding="utf-8"))
        return str(config.resolve().parent / settings_of_user["store"]["url"])
    except FileNotFoundError:
        raise BadConfig(
            "connect(): there is no watchkeeper.toml here; give the path of the store: connect(path)."
        ) from None
    except (KeyError, TypeError, tomllib.TOMLDecodeError) as error:
        raise BadConfig(f"connect(): {config} names no store ([store] url = ...): {error}") from error
