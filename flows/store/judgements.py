"""What the judge said and how far it came. Every function works inside a transaction that the caller opened."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import duckdb
import polars as pl

from flows.store.connection import statement
from flows.store.frames import execute, given, rows, timestamp

Row = Mapping[str, Any]

_TIME = pl.Datetime("us")
FINDING: dict[str, Any] = {
    "run": pl.String, "finding_id": pl.String, "incident_id": pl.String, "attempt": pl.Int32, "detector": pl.String,
    "version": pl.String, "parameters": pl.String, "kind": pl.String, "metric": pl.String, "role": pl.String,
    "direction": pl.String, "onset_step": pl.Float64, "detected_step": pl.Float64, "magnitude": pl.Float64,
    "unit": pl.String, "severity": pl.Int32, "episode": pl.String, "evidence": pl.String, "recorded_at": _TIME,
}  # fmt: skip
INCIDENT: dict[str, Any] = {
    "run": pl.String, "incident_id": pl.String, "attempt": pl.Int32, "severity": pl.Int32, "status": pl.String,
    "title": pl.String, "pattern": pl.String, "confidence": pl.Float64, "onset_step": pl.Float64,
    "detected_step": pl.Float64, "resolved_step": pl.Float64, "severity_history": pl.String, "hypotheses": pl.String,
    "suggestions": pl.String, "opened_at": _TIME, "updated_at": _TIME, "state": pl.String,
}  # fmt: skip
DELIVERY: dict[str, Any] = {
    "delivery_id": pl.String, "run": pl.String, "incident_id": pl.String, "transition": pl.String, "channel": pl.String,
    "message": pl.String, "message_id": pl.String, "next_try_at": _TIME, "created_at": _TIME,
}  # fmt: skip
COVERAGE: dict[str, Any] = {"check_name": pl.String, "metric": pl.String, "reason": pl.String, "count": pl.Int64}

# what a row may leave out
_DEFAULTS: dict[str, Any] = {
    "attempt": 1, "version": "", "parameters": "{}", "direction": "none", "unit": "", "evidence": "{}", "pattern": "",
    "confidence": 0.0, "severity_history": "[]", "hypotheses": "[]", "suggestions": "[]", "metric": "", "count": 1,
}  # fmt: skip


def frame(items: Iterable[Row], columns: Mapping[str, Any], fixed: Row) -> pl.DataFrame:
    """Rows as dicts to a frame of exactly `columns`; raises ValueError naming a column that the store does not have."""
    items = list(items)
    allowed = {*columns, "run", "state", "attempts", "repeats", "updated_at"}
    if unknown := {key for item in items for key in item} - allowed:
        raise ValueError(f"unknown columns {sorted(unknown)}; the store has {sorted(columns)}")
    times = {name for name, kind in columns.items() if kind == _TIME}

    def cell(item: Row, name: str) -> Any:
        value = item.get(name)
        if value is None:
            value = fixed.get(name, _DEFAULTS.get(name))
        return timestamp(value) if name in times and value is not None else value

    return pl.DataFrame([{name: cell(item, name) for name in columns} for item in items], schema=dict(columns))


def save(
    connection: duckdb.DuckDBPyConnection,
    run: str,
    now: datetime,
    *,
    findings: Iterable[Row],
    incidents: Iterable[Row],
    deliveries: Iterable[Row],
    coverage: Iterable[Row],
) -> None:
    """Write what was found; findings and deliveries that are there stay, incidents and coverage take the new words."""
    times = {"run": run, "recorded_at": now, "opened_at": now, "updated_at": now, "created_at": now}
    _write(connection, frame(findings, FINDING, times), "link_findings", "insert_findings")
    _write(connection, frame(incidents, INCIDENT, times), "update_incidents", "insert_incidents")
    _write(connection, frame(deliveries, DELIVERY, times), "insert_deliveries")
    said = frame(coverage, COVERAGE, {})
    if len(said):
        with given(connection, given=said):
            execute(
                connection,
                "DELETE FROM coverage WHERE run = $run AND EXISTS (SELECT 1 FROM given g"
                " WHERE g.check_name = coverage.check_name AND g.metric = coverage.metric)",
                {"run": run},
            )
            execute(connection, statement("insert_coverage"), {"run": run, "now": now})


def _write(connection: duckdb.DuckDBPyConnection, items: pl.DataFrame, *statements: str) -> None:
    if len(items):
        with given(connection, given=items):
            for name in statements:
                execute(connection, statement(name))


def save_states(
    connection: duckdb.DuckDBPyConnection, run_id: int, run_state: str, states: Mapping[tuple[str, int], bytes]
) -> None:
    """Replace the judge's state of the run, and those of the metrics and attempts in `states`."""
    execute(connection, "DELETE FROM judge_run_states WHERE run_id = ?", [run_id])
    execute(connection, "INSERT INTO judge_run_states (run_id, state) VALUES (?, ?)", [run_id, run_state])
    if not states:
        return
    table = pl.DataFrame(
        [(name, attempt, state) for (name, attempt), state in states.items()],
        schema={"name": pl.String, "attempt": pl.Int32, "state": pl.Binary},
        orient="row",
    )
    with given(connection, given=table):
        execute(
            connection,
            "DELETE FROM judge_states WHERE run_id = $run_id"
            " AND EXISTS (SELECT 1 FROM given g WHERE g.name = judge_states.name AND g.attempt = judge_states.attempt)",
            {"run_id": run_id},
        )
        execute(
            connection,
            "INSERT INTO judge_states (run_id, name, attempt, state)"
            " SELECT $run_id::INTEGER, name, attempt, state FROM given",
            {"run_id": run_id},
        )


def states(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    names: Sequence[str] | None = None,
    attempts: Sequence[int] | None = None,
) -> dict[tuple[str, int], bytes]:
    """The judge's states by metric and attempt, of `names` and `attempts` or of all."""
    found = execute(
        connection,
        "SELECT name, attempt, state FROM judge_states WHERE run_id = $run_id"
        " AND ($attempts IS NULL OR list_contains($attempts, attempt))",
        {"run_id": run_id, "attempts": attempts},
    )
    wanted = None if names is None else set(names)
    return {(name, attempt): state for name, attempt, state in found if wanted is None or name in wanted}


def incidents(
    connection: duckdb.DuckDBPyConnection, run: str | None, status: str | None = None
) -> list[dict[str, Any]]:
    """Incidents of one run or of all, oldest onset first."""
    return rows(
        connection,
        "SELECT * FROM incidents WHERE ($run IS NULL OR run = $run) AND ($status IS NULL OR status = $status)"
        " ORDER BY run, onset_step, incident_id",
        {"run": run, "status": status},
    )


def findings(connection: duckdb.DuckDBPyConnection, run: str, incident_id: str | None = None) -> list[dict[str, Any]]:
    """Findings of a run in the canonical order of their detection."""
    return rows(
        connection,
        "SELECT * FROM findings WHERE run = $run AND ($incident IS NULL OR incident_id = $incident)"
        " ORDER BY detected_step, metric, detector, onset_step, finding_id",
        {"run": run, "incident": incident_id},
    )
