"""The outbox: a message stays pending until its channel has given a receipt.

The mark `sending_since` is set before a message leaves and cleared by its receipt or its failure. Found set, it was
left by a kill in between: the message may have arrived, so sending it again is counted as a repeat.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import duckdb

from flows.store.frames import execute, number, rows


def pending(connection: duckdb.DuckDBPyConnection, now: datetime, run: str | None) -> list[dict[str, Any]]:
    """Deliveries whose turn has come, oldest first."""
    return rows(
        connection,
        "SELECT * FROM deliveries WHERE state = 'pending' AND (next_try_at IS NULL OR next_try_at <= $now)"
        " AND ($run IS NULL OR run = $run) ORDER BY created_at, delivery_id",
        {"now": now, "run": run},
    )


def mark_sending(connection: duckdb.DuckDBPyConnection, delivery_id: str, now: datetime) -> None:
    """Count the attempt, and a repeat if an earlier one never said how it ended."""
    _known(connection, delivery_id)
    execute(
        connection,
        "UPDATE deliveries SET attempts = attempts + 1, sending_since = $now,"
        " repeats = repeats + CASE WHEN sending_since IS NULL THEN 0 ELSE 1 END"
        " WHERE delivery_id = $id AND state = 'pending'",
        {"id": delivery_id, "now": now},
    )


def mark_delivered(connection: duckdb.DuckDBPyConnection, delivery_id: str, now: datetime, receipt: str = "") -> None:
    """The channel has given its receipt: what the service calls the message, if anything."""
    _known(connection, delivery_id)
    execute(
        connection,
        "UPDATE deliveries SET state = 'delivered', delivered_at = $now, sending_since = NULL, next_try_at = NULL,"
        " error = NULL, receipt = $receipt WHERE delivery_id = $id AND state <> 'delivered'",
        {"id": delivery_id, "now": now, "receipt": receipt},
    )


def mark_failed(
    connection: duckdb.DuckDBPyConnection, delivery_id: str, error: str, next_try_at: datetime | None
) -> None:
    """The channel did not take it: try again at `next_try_at`, or never (None)."""
    _known(connection, delivery_id)
    execute(
        connection,
        "UPDATE deliveries SET state = CASE WHEN $next::TIMESTAMP IS NULL THEN 'dead' ELSE 'pending' END,"
        " next_try_at = $next, sending_since = NULL, error = $error WHERE delivery_id = $id AND state <> 'delivered'",
        {"id": delivery_id, "next": next_try_at, "error": error},
    )


def told(
    connection: duckdb.DuckDBPyConnection, run: str, channel: str, incidents: Sequence[str]
) -> list[dict[str, Any]]:
    """message, receipt, delivered_at of what a channel has taken of any of these incidents, oldest first."""
    return rows(
        connection,
        "SELECT message, coalesce(receipt, '') AS receipt, delivered_at FROM deliveries"
        " WHERE state = 'delivered' AND run = $run AND channel = $channel AND (list_contains($ids, incident_id)"
        " OR json_valid(message) AND list_has_any(json_extract_string(message, '$.incidents[*]'), $ids))"
        " ORDER BY delivered_at, created_at, delivery_id",
        {"run": run, "channel": channel, "ids": list(incidents)},
    )


def known(connection: duckdb.DuckDBPyConnection, delivery_ids: Sequence[str]) -> set[str]:
    """Which of these are in the outbox, whatever became of them."""
    found = execute(
        connection,
        "SELECT delivery_id FROM deliveries WHERE list_contains($ids, delivery_id)",
        {"ids": list(delivery_ids)},
    )
    return {name for (name,) in found}


def hold(connection: duckdb.DuckDBPyConnection, delivery_id: str, why: str, now: datetime) -> None:
    """It waits at the door, for another reason than before or for the first time: no longer for its channel."""
    _known(connection, delivery_id)
    execute(
        connection,
        "UPDATE deliveries SET held_by = $why, held_since = coalesce(held_since, $now), error = NULL"
        " WHERE delivery_id = $id AND state = 'pending'",
        {"id": delivery_id, "why": why, "now": now},
    )


def withdraw(connection: duckdb.DuckDBPyConnection, delivery_id: str, why: str) -> None:
    """Nobody needs it any more; the reason is kept, and `sending_since`: set by a kill, it says that it may have arrived."""
    _known(connection, delivery_id)
    execute(
        connection,
        "UPDATE deliveries SET state = 'withdrawn', held_by = $why, error = NULL, next_try_at = NULL"
        " WHERE delivery_id = $id AND state = 'pending'",
        {"id": delivery_id, "why": why},
    )


def of_run(connection: duckdb.DuckDBPyConnection, run: str, states: Sequence[str]) -> list[dict[str, Any]]:
    """The deliveries of a run in some states, oldest first."""
    return rows(
        connection,
        "SELECT * FROM deliveries WHERE run = ? AND list_contains(?, state) ORDER BY created_at, delivery_id",
        [run, list(states)],
    )


def sent_since(connection: duckdb.DuckDBPyConnection, channel: str, since: datetime) -> int:
    """How many messages a channel has taken after a moment, of all runs."""
    return number(
        connection, "SELECT count(*) FROM deliveries WHERE channel = ? AND delivered_at > ?", [channel, since]
    )


def undelivered(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """channel, dead, failed, held, error, held_by: what was refused for good, what waits for the channel, and at the door."""
    return rows(
        connection,
        "SELECT channel, count(*) FILTER (state = 'dead') AS dead,"
        " count(*) FILTER (state = 'pending' AND (error IS NOT NULL OR held_by IS NULL)) AS failed,"
        " count(*) FILTER (state = 'pending' AND error IS NULL AND held_by IS NOT NULL) AS held,"
        " arg_max(error, created_at) AS error,"
        " arg_max(held_by, created_at) FILTER (state = 'pending') AS held_by"
        " FROM deliveries WHERE state IN ('dead', 'pending') GROUP BY channel ORDER BY channel",
    )


def failing(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """channel, error, dead, count: channels whose newest word is a failure, `dead` messages being lost for good."""
    return rows(
        connection,
        "SELECT channel, arg_max(error, created_at) AS error, count(*) FILTER (state = 'dead') AS dead, count(*) AS count"
        " FROM deliveries d WHERE error IS NOT NULL AND state <> 'delivered' AND created_at > coalesce("
        "(SELECT max(delivered_at) FROM deliveries o WHERE o.channel = d.channel), TIMESTAMP '1970-01-01')"
        " GROUP BY channel ORDER BY channel",
    )


def _known(connection: duckdb.DuckDBPyConnection, delivery_id: str) -> None:
    if not number(connection, "SELECT count(*) FROM deliveries WHERE delivery_id = ?", [delivery_id]):
        raise LookupError(f"no delivery {delivery_id!r} in the outbox")
