"""Old samples by the owner's rule: thinned, never in an incident or around one, and told as that.

A range of steps is thinned once. What is written of it again later is passed over, and a new attempt that goes back behind
it begins without a memory of it, so that thinner samples never look like a change.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

import duckdb

from flows.store import runs
from flows.store.connection import statement
from flows.store.frames import execute, number, one

Range = tuple[float, float]
LEAST = 4  # parts of 4 * keep samples; a shorter range is not worth a row
MOST_ROWS = 1_000_000  # of one transaction
TOLD = "older samples are thinned to one in {keep}, extremes kept; incidents and what surrounds them are whole"


@dataclass(frozen=True)
class Rule:
    """Samples that were stored before `before` are thinned to one in `keep`, and the extremes among them."""

    before: datetime
    keep: int = 16


@dataclass(frozen=True)
class Part:
    """One range of one attempt to thin: first (inclusive) to last (exclusive), of the appends up to `batch`."""

    attempt: int
    first: float
    last: float
    batch: int


def parts(connection: duckdb.DuckDBPyConnection, run: str, rule: Rule) -> list[Part]:
    """What of a run may be thinned now, cut so that one transaction stays short."""
    run_id = runs.id_of(connection, run)
    batch = number(
        connection,
        "SELECT coalesce(max(b.batch), 0) FROM batch_rows b JOIN runs r ON r.run_id = b.run_id"
        " WHERE b.run_id = ? AND b.appended_at < ? AND b.batch <= r.judged_batch",
        [run_id, rule.before],
    )
    kept = _windows(connection, run, run_id)
    found: list[Part] = []
    for attempt, low, high in _settled(connection, run_id, batch):
        done = execute(
            connection,
            "SELECT first_step, last_step FROM thinned_rows WHERE run_id = ? AND attempt = ?",
            [run_id, attempt],
        )
        taken = [*kept, *((first, math.nextafter(last, math.inf)) for first, last in done)]
        for first, last in without((low, high), taken):
            found += [
                Part(attempt, *piece, batch)
                for piece in _pieces(connection, run_id, attempt, (first, last), batch, rule)
            ]
    return found


def thin(connection: duckdb.DuckDBPyConnection, run: str, part: Part, rule: Rule, now: datetime) -> int:
    """Thin one part inside a transaction of the caller; returns how many samples were left out."""
    run_id = runs.id_of(connection, run)
    about = {"run_id": run_id, "attempt": part.attempt, "first": part.first, "last": part.last, "batch": part.batch}
    where = "run_id = $run_id AND attempt = $attempt AND step >= $first AND step < $last"
    edges = one(connection, f"SELECT min(step), max(step), count(*) FROM sample_rows WHERE {where}", about)
    if edges is None or edges[0] is None:
        return 0
    execute(connection, statement("delete_thinned"), {**about, "keep": rule.keep})
    removed = int(edges[2]) - number(connection, f"SELECT count(*) FROM sample_rows WHERE {where}", about)
    execute(
        connection,
        "INSERT INTO thinned_rows (run_id, attempt, first_step, last_step, keep_one_of, removed, thinned_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [run_id, part.attempt, edges[0], edges[1], rule.keep, removed, now],
    )
    total = number(connection, "SELECT sum(removed) FROM thinned_rows WHERE run_id = ?", [run_id])
    execute(connection, "DELETE FROM coverage WHERE run = ? AND check_name = 'retention'", [run])
    execute(
        connection,
        "INSERT INTO coverage (run, check_name, metric, reason, count, updated_at) VALUES (?, 'retention', '', ?, ?, ?)",
        [run, TOLD.format(keep=rule.keep), total, now],
    )
    return removed


def without(whole: Range, taken: Iterable[Range]) -> Iterator[Range]:
    """What is left of a half-open range without the half-open ones in `taken`."""
    first, end = whole
    for low, high in sorted(taken):
        if low > first:
            yield first, min(low, end)
        first = max(first, high)
        if first >= end:
            return
    if first < end:
        yield first, end


def _settled(connection: duckdb.DuckDBPyConnection, run_id: int, batch: int) -> list[tuple[int, float, float]]:
    """Of each attempt the steps up to the first one that a younger append holds."""
    return [
        (attempt, low, min(high if high is not None else math.inf, math.nextafter(top, math.inf)))
        for attempt, low, top, high in execute(
            connection,
            "SELECT attempt, min(step) FILTER (batch <= $batch), max(step) FILTER (batch <= $batch),"
            " min(step) FILTER (batch > $batch)"
            " FROM sample_rows WHERE run_id = $run_id GROUP BY attempt ORDER BY attempt",
            {"run_id": run_id, "batch": batch},
        )
        if low is not None
    ]


def _windows(connection: duckdb.DuckDBPyConnection, run: str, run_id: int) -> list[Range]:
    """Every incident with as much before and after it as a chart may show; one that is open has no end."""
    found = execute(
        connection,
        "SELECT i.onset_step, i.resolved_step, i.detected_step, i.status,"
        " coalesce(max((t.last_step - t.first_step) / greatest(t.samples - 1, 1)), 1)"
        " FROM incidents i LEFT JOIN findings f ON f.run = i.run AND f.incident_id = i.incident_id"
        " LEFT JOIN metric_rows m ON m.run_id = $run_id AND m.name = f.metric"
        " LEFT JOIN track_rows t ON t.run_id = m.run_id AND t.metric_id = m.metric_id"
        " WHERE i.run = $run GROUP BY i.incident_id, i.onset_step, i.resolved_step, i.detected_step, i.status",
        {"run": run, "run_id": run_id},
    )
    windows = []
    for onset, resolved, detected, status, cadence in found:
        end = detected if resolved is None else max(resolved, detected)
        reach = max(6 * max(end - onset, 0.0), 800 * cadence)
        windows.append((onset - reach, math.inf if status != "resolved" else end + reach))
    return windows


def _pieces(
    connection: duckdb.DuckDBPyConnection, run_id: int, attempt: int, whole: Range, batch: int, rule: Rule
) -> Iterator[Range]:
    """A range in equal parts of about MOST_ROWS; nothing of one that is too short."""
    longest = one(
        connection,
        "SELECT max(samples), sum(samples) FROM (SELECT count(*) AS samples FROM sample_rows WHERE run_id = ? AND attempt = ?"
        " AND step >= ? AND step < ? AND batch <= ? GROUP BY metric_id)",
        [run_id, attempt, *whole, batch],
    )
    if longest is None or longest[0] is None or longest[0] < LEAST * 4 * rule.keep:
        return
    count = math.ceil(longest[1] / MOST_ROWS)
    edges = [whole[0] + (whole[1] - whole[0]) * k / count for k in range(count)] + [whole[1]]
    yield from pairwise(edges)
