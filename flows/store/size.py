"""How large a store is, how fast it grows, how old it is, and how much of it is free."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import duckdb

from flows.store.frames import one

RECENT = timedelta(days=7)


@dataclass(frozen=True)
class Size:
    """`samples` are stored; `daily` of them came a day of late; `oldest` is the first append; `free` the share of free blocks."""

    samples: int
    daily: float
    oldest: datetime | None
    free: float


def size(connection: duckdb.DuckDBPyConnection, now: datetime) -> Size:
    """Read from what is kept of each append, and from the file's own blocks."""
    row = one(
        connection,
        "SELECT min(appended_at), sum(new_rows) FILTER (appended_at >= ?), min(appended_at) FILTER (appended_at >= ?)"
        " FROM batch_rows",
        [now - RECENT, now - RECENT],
    )
    oldest, recent, since = row if row is not None else (None, None, None)
    days = max((now - since).total_seconds() / 86400, 1.0) if since is not None else 1.0
    stored = one(connection, "SELECT count(*) FROM sample_rows")
    blocks = one(connection, "SELECT total_blocks, free_blocks FROM pragma_database_size()")
    free = blocks[1] / blocks[0] if blocks is not None and blocks[0] else 0.0
    return Size(int(stored[0]) if stored else 0, float(recent or 0) / days, oldest, float(free))
