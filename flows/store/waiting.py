"""What waits for the judge, with everything that judging it needs, as it was at one moment."""

from dataclasses import dataclass

import duckdb
import polars as pl

from flows.records import Attempt, Event
from flows.store import judgements, runs, samples
from flows.store.frames import one, select


@dataclass(frozen=True)
class Waiting:
    """`rows` (UNJUDGED_SCHEMA) up to batch `upto_batch`, the run as it stands, and what the judge left the last time.

    `states` are the judge's bytes by metric and attempt, of the attempts that have rows and of their parents.
    """

    rows: pl.DataFrame
    upto_batch: int
    attempts: list[Attempt]
    metrics: pl.DataFrame
    events: list[Event]
    run_state: str | None
    states: dict[tuple[str, int], bytes]


def waiting(connection: duckdb.DuckDBPyConnection, run: str, limit: int) -> Waiting:
    """Whole batches of about `limit` rows together."""
    run_id = runs.id_of(connection, run)
    found = samples.unjudged(connection, run_id, limit)
    line = runs.attempts(connection, run)
    parents = {each.attempt: each.parent for each in line}
    touched = found.rows["attempt"].unique()
    family = {number for each in touched for number in (each, parents.get(each)) if number is not None}
    return Waiting(
        rows=found.rows,
        upto_batch=found.upto_batch,
        attempts=line,
        metrics=metrics(connection, run),
        events=runs.events(connection, run),
        run_state=run_state(connection, run_id),
        states=judgements.states(connection, run_id, attempts=sorted(family)) if family else {},
    )


def metrics(connection: duckdb.DuckDBPyConnection, run: str) -> pl.DataFrame:
    """name, role, unit, healthy, group_name, samples, first_step, last_step, last_value; by name."""
    return select(connection, "SELECT * EXCLUDE (run) FROM metrics WHERE run = ? ORDER BY name", [run])


def run_state(connection: duckdb.DuckDBPyConnection, run_id: int) -> str | None:
    """The judge's state of the whole run; None before the first judgement."""
    row = one(connection, "SELECT state FROM judge_run_states WHERE run_id = ?", [run_id])
    return row[0] if row else None
