"""Runs, their attempts, events and cursors. Every function works inside a transaction that the caller opened."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import duckdb
import polars as pl

from flows.errors import BadInput
from flows.records import Attempt, Description, Event, Expected, Role
from flows.store.connection import statement
from flows.store.frames import execute, given, number, one, rows, select

_SEGMENT: dict[str, Any] = {
    "attempt": pl.Int32, "source": pl.String, "first_step": pl.Float64, "valid_until": pl.Float64,
    "parent": pl.Int32, "reason": pl.String, "started_at": pl.Datetime("us"),
}  # fmt: skip


def register(connection: duckdb.DuckDBPyConnection, found: Description, now: datetime) -> int:
    """The id of a run, added if it is new; what is known of its source is kept up to date."""
    known = one(connection, "SELECT run_id FROM runs WHERE run = ?", [found.run])
    about = [found.source, found.format, found.step_key]
    if known:
        execute(
            connection,
            "UPDATE runs SET source = ?, format = ?, step_key = ? WHERE run_id = ?"
            " AND (source, format, step_key) IS DISTINCT FROM (?, ?, ?)",
            [*about, known[0], *about],
        )
        return int(known[0])
    run_id = 1 + number(connection, "SELECT coalesce(max(run_id), 0) FROM runs")
    execute(
        connection,
        "INSERT INTO runs (run_id, run, source, format, step_key, created_at, pulled_at, judged_at, judged_batch)"
        " VALUES (?, ?, ?, ?, ?, ?, NULL, NULL, 0)",
        [run_id, found.run, *about, now],
    )
    return run_id


def id_of(connection: duckdb.DuckDBPyConnection, run: str) -> int:
    """The id of a registered run; raises BadInput with the names that exist."""
    known = one(connection, "SELECT run_id FROM runs WHERE run = ?", [run])
    if known:
        return int(known[0])
    names = [name for (name,) in execute(connection, "SELECT run FROM runs ORDER BY run LIMIT 20")]
    raise BadInput(f"run {run!r}: not in the store. Known runs: {', '.join(names) or 'none yet'}.")


def save_pull_state(
    connection: duckdb.DuckDBPyConnection, run_id: int, cursor: str, tracker: str, now: datetime
) -> None:
    """Put down how far the pull came."""
    execute(connection, "UPDATE runs SET pulled_at = ? WHERE run_id = ?", [now, run_id])
    execute(connection, "DELETE FROM pull_states WHERE run_id = ?", [run_id])
    execute(connection, "INSERT INTO pull_states (run_id, cursor, tracker) VALUES (?, ?, ?)", [run_id, cursor, tracker])


def save_segments(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    attempts: Sequence[Attempt],
    first_logged: Mapping[int, datetime | None],
) -> None:
    """Replace the attempts of a run; each keeps the earliest time that any batch (`first_logged`) heard of it."""
    before = select(connection, statement("segments_of_run"), {"run_id": run_id})
    started = dict(before.select("attempt", "started_at").iter_rows())
    source = one(connection, "SELECT source FROM runs WHERE run_id = ?", [run_id])
    found = []
    for item in sorted(attempts, key=lambda item: item.attempt):
        times = [at for at in (started.get(item.attempt), first_logged.get(item.attempt)) if at is not None]
        row = {
            "attempt": item.attempt,
            "source": item.source or (source[0] if source else ""),
            "first_step": item.first_step,
        }
        row |= {"valid_until": item.valid_until, "parent": item.parent, "reason": item.reason}
        found.append(row | {"started_at": min(times, default=None)})
    after = pl.DataFrame(found, schema=_SEGMENT)
    if after.rows() != before.rows():
        execute(connection, "DELETE FROM segment_rows WHERE run_id = ?", [run_id])
        with given(connection, given=after):
            execute(connection, statement("insert_segments"), {"run_id": run_id})


def pull_state(connection: duckdb.DuckDBPyConnection, run: str) -> tuple[str | None, str | None]:
    """Cursor and tracker of the last append, None before the first."""
    row = one(
        connection,
        "SELECT p.cursor, p.tracker FROM pull_states p JOIN runs r ON r.run_id = p.run_id WHERE r.run = ?",
        [run],
    )
    return (row[0], row[1]) if row else (None, None)


def attempts(connection: duckdb.DuckDBPyConnection, run: str) -> list[Attempt]:
    """The attempts of a run in their order."""
    found = execute(
        connection,
        "SELECT attempt, first_step, parent, reason, valid_until, source FROM segments WHERE run = ? ORDER BY attempt",
        [run],
    )
    return [Attempt(*row) for row in found]


def assign_roles(connection: duckdb.DuckDBPyConnection, run: str, role_of: Callable[[str], Role]) -> int:
    """Give every metric of the run the role that `role_of` says today; returns how many changed."""
    run_id = id_of(connection, run)
    found = rows(connection, "SELECT name, role, unit, healthy, group_name FROM metric_rows WHERE run_id = ?", [run_id])
    changed = 0
    for row in found:
        role = role_of(row["name"])
        wanted = [role.role, role.unit, role.healthy, role.group]
        if wanted != [row["role"], row["unit"], row["healthy"], row["group_name"]]:
            execute(
                connection,
                "UPDATE metric_rows SET role = ?, unit = ?, healthy = ?, group_name = ? WHERE run_id = ? AND name = ?",
                [*wanted, run_id, row["name"]],
            )
            changed += 1
    return changed


def add_event(connection: duckdb.DuckDBPyConnection, run: str, event: Event, now: datetime) -> str:
    """Store an event once: the same kind, steps, note and source again is the same event. Returns its id."""
    id_of(connection, run)
    detail = json.dumps(dict(event.detail), sort_keys=True)
    same = json.dumps([run, event.kind, event.step, event.end_step, event.note, event.source, detail])
    event_id = hashlib.sha256(same.encode()).hexdigest()[:16]
    if number(connection, "SELECT count(*) FROM events WHERE run = ? AND event_id = ?", [run, event_id]):
        return event_id
    recorded = now if event.recorded_at is None else datetime.fromtimestamp(event.recorded_at, UTC).replace(tzinfo=None)
    execute(
        connection,
        "INSERT INTO events (run, event_id, kind, step, end_step, note, source, detail, recorded_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [run, event_id, event.kind, event.step, event.end_step, event.note, event.source, detail, recorded],
    )
    return event_id


def keep_events(
    connection: duckdb.DuckDBPyConnection, run: str, source: str, told: Sequence[Event], now: datetime
) -> None:
    """The events of one source are `told`, and those before the last step of the run that were told earlier."""
    ids = [add_event(connection, run, event, now) for event in told]
    execute(
        connection,
        "DELETE FROM events WHERE run = ? AND source = ? AND NOT list_contains(?, event_id)"
        " AND step > (SELECT coalesce(max(last_step), -1) FROM metrics WHERE run = ?)",
        [run, source, ids, run],
    )


def events(connection: duckdb.DuckDBPyConnection, run: str) -> list[Event]:
    """The events of a run by step."""
    found = rows(connection, "SELECT * FROM events WHERE run = ? ORDER BY step, recorded_at, event_id", [run])
    return [_event(row) for row in found]


def expect(connection: duckdb.DuckDBPyConnection, run: str, name: str, body: Mapping[str, Any], now: datetime) -> str:
    """Add an expectation with the step after which it judges: the last one that is stored. Returns its version."""
    reached = one(connection, "SELECT max(last_step) FROM metrics WHERE run = ?", [run])
    known = number(connection, "SELECT count(*) FROM expectations WHERE run = ? AND name = ?", [run, name])
    version = str(known + 1)
    told = {**body, "from_step": None if reached is None else reached[0]}
    execute(
        connection,
        "INSERT INTO expectations (run, name, version, recorded_at, body) VALUES (?, ?, ?, ?, ?)",
        [run, name, version, now, json.dumps(told, sort_keys=True)],
    )
    return version


def expectations(connection: duckdb.DuckDBPyConnection, run: str | None) -> list[Expected]:
    """Of one run or of all, as they were recorded."""
    found = rows(
        connection,
        "SELECT * FROM expectations WHERE ? IS NULL OR run = ? ORDER BY recorded_at, run, name, length(version), version",
        [run, run],
    )
    return [
        Expected(
            row["run"], row["name"], row["version"], row["recorded_at"].replace(tzinfo=UTC).timestamp(),
            json.loads(row["body"]),
        )
        for row in found
    ]  # fmt: skip


def _event(row: dict[str, Any]) -> Event:
    return Event(
        kind=row["kind"], step=row["step"], end_step=row["end_step"], note=row["note"], source=row["source"],
        recorded_at=row["recorded_at"].replace(tzinfo=UTC).timestamp(), detail=json.loads(row["detail"]),
    )  # fmt: skip
