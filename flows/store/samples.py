"""Samples in and samples out. Every function works inside a transaction that the caller opened."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

import duckdb
import polars as pl

from flows.records import STORED_SCHEMA, Role
from flows.store.connection import statement
from flows.store.dedupe import KEY, TRACKS, Change, change
from flows.store.frames import execute, given, number, select

UNJUDGED_SCHEMA: dict[str, pl.DataType] = {
    "name": pl.Enum([]),  # of the run's metrics in the order in which they came; so are role and unit
    "role": pl.Enum([]),
    "unit": pl.Enum([]),
    "attempt": pl.Int32(),
    "step": pl.Float64(),
    "seconds": pl.Float64(),
    "value": pl.Float64(),
}
_REWRITTEN = "the same step was written again with another value; the last one is kept"


@dataclass(frozen=True)
class Appended:
    """What an append changed: samples added, values that replaced another one, and the number of this batch."""

    new_rows: int
    rewritten: int
    batch: int


@dataclass(frozen=True)
class Unjudged:
    """Rows (UNJUDGED_SCHEMA) in the order in which the run wrote them, and the batch up to which they go."""

    rows: pl.DataFrame
    upto_batch: int


def append(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    rows: pl.DataFrame,
    role_of: Callable[[str], Role],
    now: datetime,
) -> tuple[Appended, dict[str, int]]:
    """Store `rows` (STORED_SCHEMA) as the next batch; also returns how many values of each metric replaced another."""
    batch = 1 + number(connection, "SELECT coalesce(max(batch), 0) FROM batch_rows WHERE run_id = ?", [run_id])
    keyed, ids = _with_ids(connection, run_id, _open_steps(connection, run_id, rows), role_of)
    found = change(keyed, _tracks(connection, run_id), lambda keys: _lookup(connection, run_id, keys))
    _write(connection, run_id, batch, found)
    execute(
        connection,
        "INSERT INTO batch_rows (run_id, batch, new_rows, appended_at) VALUES (?, ?, ?, ?)",
        [run_id, batch, len(found.rows), now],
    )
    again = found.remembered.filter(pl.col("ordinal") > 1) if len(found.remembered) else found.remembered
    counts = again.join(ids, on="metric_id", how="left")["name"].value_counts() if len(again) else None
    rewritten = dict(counts.iter_rows()) if counts is not None else {}
    return Appended(len(found.rows), len(again), batch), rewritten


def _open_steps(connection: duckdb.DuckDBPyConnection, run_id: int, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows without those of steps that were thinned: what was left out on purpose must not come back as news."""
    closed = execute(connection, "SELECT attempt, first_step, last_step FROM thinned_rows WHERE run_id = ?", [run_id])
    for attempt, first, last in closed:
        rows = rows.filter(~((pl.col("attempt") == attempt) & pl.col("step").is_between(first, last)))
    return rows


def _with_ids(
    connection: duckdb.DuckDBPyConnection, run_id: int, rows: pl.DataFrame, role_of: Callable[[str], Role]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows with metric_id for their name; and metric_id, name of every metric of the run, new ones included."""
    if missing := rows["step"].null_count() + int(rows["step"].is_nan().sum()) + rows["name"].null_count():
        raise ValueError(f"append: {missing} rows have no step or no name; a source must not yield them")
    ids = select(connection, "SELECT metric_id, name FROM metric_rows WHERE run_id = ? ORDER BY metric_id", [run_id])
    coded = rows["name"].cast(pl.Enum(ids["name"]), strict=False).to_physical()
    if coded.null_count():
        fresh = rows["name"].filter(coded.is_null()).unique(maintain_order=True)
        ids = pl.concat([ids, _add_metrics(connection, run_id, fresh, len(ids), role_of)])
        coded = rows["name"].cast(pl.Enum(ids["name"])).to_physical()
    # ids are given without a gap from 1 on, in the order of this list
    metric_id = (coded.cast(pl.Int32) + 1).alias("metric_id")
    value = pl.col("value").fill_null(float("nan"))
    return rows.select(metric_id, "attempt", "step", "logged_at", value, "late"), ids


def _add_metrics(
    connection: duckdb.DuckDBPyConnection, run_id: int, names: pl.Series, known: int, role_of: Callable[[str], Role]
) -> pl.DataFrame:
    roles = [role_of(name) for name in names]
    added = pl.DataFrame(
        {
            "metric_id": pl.Series(range(known + 1, known + 1 + len(names)), dtype=pl.Int32),
            "name": names,
            "role": [role.role for role in roles],
            "unit": [role.unit for role in roles],
            "healthy": [role.healthy for role in roles],
            "group_name": [role.group for role in roles],
        }
    )
    with given(connection, fresh=added):
        execute(connection, statement("insert_metrics"), {"run_id": run_id})
    return added.select("metric_id", "name")


def _tracks(connection: duckdb.DuckDBPyConnection, run_id: int) -> pl.DataFrame:
    columns = ", ".join(TRACKS)
    return select(connection, f"SELECT {columns} FROM track_rows WHERE run_id = ?", [run_id]).cast(TRACKS)


def _lookup(
    connection: duckdb.DuckDBPyConnection, run_id: int, keys: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    with given(connection, asked=keys):
        stored = select(connection, statement("stored_keys"), {"run_id": run_id, **_range(keys)})
        remembered = select(connection, statement("remembered_keys"), {"run_id": run_id})
    return stored, remembered


def _range(keys: pl.DataFrame) -> dict[str, float]:
    return {"low": keys["step"].min(), "high": keys["step"].max()}  # type: ignore[dict-item]


def _write(connection: duckdb.DuckDBPyConnection, run_id: int, batch: int, found: Change) -> None:
    if len(found.rows):
        with given(connection, fresh=found.rows):
            execute(connection, statement("insert_samples"), {"run_id": run_id, "batch": batch})
    if len(found.updates):
        with given(connection, updates=found.updates):
            execute(connection, statement("update_samples"), {"run_id": run_id, **_range(found.updates)})
    if len(found.remembered):
        with given(connection, remembered=found.remembered):
            execute(connection, statement("insert_rewrites"), {"run_id": run_id})
    if len(found.tracks):
        with given(connection, tracks=found.tracks):
            execute(connection, statement("update_tracks"), {"run_id": run_id})
            execute(connection, statement("insert_tracks"), {"run_id": run_id})


def count_rewritten(
    connection: duckdb.DuckDBPyConnection, run: str, rewritten: Mapping[str, int], now: datetime
) -> None:
    """Say in coverage how many values of each metric were replaced."""
    for metric, count in rewritten.items():
        add_coverage(connection, run, check_name="samples", metric=metric, counts={_REWRITTEN: count}, now=now)


def add_coverage(
    connection: duckdb.DuckDBPyConnection,
    run: str,
    *,
    check_name: str,
    metric: str,
    counts: Mapping[str, int],
    now: datetime,
) -> None:
    """Add `counts` (reason -> how many more) to the coverage of the run."""
    for reason, count in counts.items():
        key = [run, check_name, metric, reason]
        where = "WHERE run = ? AND check_name = ? AND metric = ? AND reason = ?"
        total = count + number(connection, f"SELECT coalesce(sum(count), 0) FROM coverage {where}", key)
        execute(connection, f"DELETE FROM coverage {where}", key)
        execute(
            connection,
            "INSERT INTO coverage (run, check_name, metric, reason, count, updated_at) VALUES (?, ?, ?, ?, ?, ?)",
            [*key, total, now],
        )


def replace_coverage(
    connection: duckdb.DuckDBPyConnection, run: str, *, check_name: str, reasons: Mapping[str, int], now: datetime
) -> None:
    """Make `reasons` (reason -> count) all that the coverage says of a check of the whole run."""
    which = "WHERE run = ? AND check_name = ? AND metric = ''"
    key = [run, check_name]
    if dict(execute(connection, f"SELECT reason, count FROM coverage {which}", key)) == dict(reasons):
        return
    execute(connection, f"DELETE FROM coverage {which}", key)
    add_coverage(connection, run, check_name=check_name, metric="", counts=reasons, now=now)


def unjudged(connection: duckdb.DuckDBPyConnection, run_id: int, limit: int, after: int | None = None) -> Unjudged:
    """The rows after the judging watermark, or after batch `after`: whole batches, as many as fit into `limit` rows, but
    at least one; values as they were first written."""
    if after is None:
        after = number(connection, "SELECT judged_batch FROM runs WHERE run_id = ?", [run_id])
    waiting = execute(
        connection,
        "SELECT batch, new_rows FROM batch_rows WHERE run_id = ? AND batch > ? ORDER BY batch",
        [run_id, after],
    )
    upto, rows = after, 0
    for batch, new_rows in waiting:
        if rows and rows + new_rows > limit:
            break
        upto, rows = batch, rows + new_rows
    if not rows:
        return Unjudged(pl.DataFrame(schema=UNJUDGED_SCHEMA), upto)
    found = select(connection, statement("unjudged"), {"run_id": run_id, "after": after, "upto": upto})
    if not len(found):
        return Unjudged(pl.DataFrame(schema=UNJUDGED_SCHEMA), upto)
    first = select(connection, statement("first_values"), {"run_id": run_id, **_range(found)})
    if len(first):
        found = found.join(first, on=KEY, how="left", maintain_order="left").with_columns(
            value=pl.when("was_rewritten").then("first_value").otherwise("value")
        )
    metrics = select(
        connection, "SELECT metric_id, name, role, unit FROM metric_rows WHERE run_id = ? ORDER BY metric_id", [run_id]
    )
    place = pl.Series(found["metric_id"].to_numpy() - 1)  # ids are given without a gap from 1 on
    return Unjudged(
        found.select(
            *(as_enum(metrics[column]).gather(place).alias(column) for column in ("name", "role", "unit")),
            "attempt",
            "step",
            (pl.col("logged_at").dt.epoch("us") / 1e6).fill_null(float("nan")).alias("seconds"),
            "value",
        ),
        upto,
    )


def as_enum(texts: pl.Series) -> pl.Series:
    """Numbers instead of texts: a million of them are gathered and sorted at little cost."""
    return texts.cast(pl.Enum(texts.unique(maintain_order=True)))


def check_schema(rows: pl.DataFrame) -> None:
    """Raise ValueError unless `rows` has the columns and types of STORED_SCHEMA."""
    if dict(rows.schema) != STORED_SCHEMA:
        raise ValueError(f"append takes rows of STORED_SCHEMA, got {dict(rows.schema)}")
