"""What stood before a new attempt began: the end of the line of its parents."""

from collections.abc import Sequence

import duckdb
import polars as pl

from flows.records import Attempt
from flows.store.connection import statement
from flows.store.frames import given, select
from flows.store.samples import as_enum

RARE = 16  # a metric that is logged this much less often than another is looked for by itself


def lineage_tails(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    *,
    attempts: Sequence[Attempt],
    attempt: int,
    n: int,
    names: Sequence[str] | None,
) -> pl.DataFrame:
    """name, step, seconds, value: for each metric the last `n` samples that stood before `attempt` began.

    Only the end of a long run is read: back to twice the distance that `n` samples took so far, and for metrics with
    gaps there everything.
    """
    ancestors = _ancestors(attempts, attempt)
    asked = select(connection, "SELECT metric_id, name FROM metric_rows WHERE run_id = ? ORDER BY metric_id", [run_id])
    if names is not None:
        asked = asked.filter(pl.col("name").is_in(list(names)))
    asked = asked.with_columns(as_enum(asked["name"]))
    schema = {"name": asked["name"].dtype, "step": pl.Float64(), "seconds": pl.Float64(), "value": pl.Float64()}
    if not len(ancestors) or not len(asked):
        return pl.DataFrame(schema=schema)
    marks = select(
        connection,
        "SELECT metric_id, attempt, samples, first_step, last_step FROM track_rows WHERE run_id = ?",
        [run_id],
    )
    reach = (
        marks.join(ancestors, on="attempt")
        .join(asked.select("metric_id"), on="metric_id")
        .with_columns(width=(pl.col("last_step") - pl.col("first_step")) / pl.col("samples"))
        .group_by("metric_id")
        .agg(pl.col("first_step").min(), width=2 * n * pl.col("width").max())
        .with_columns(low=ancestors["before_step"][0] - pl.col("width"))
    )
    usual = pl.col("width").filter(pl.col("width") > 0).min()
    parts = reach.with_columns(rare=pl.col("width") > RARE * usual).partition_by("rare")
    found = pl.concat([_found(connection, run_id, n, ancestors, part) for part in parts])
    counts = found.group_by("metric_id").len()
    short = reach.join(counts, on="metric_id", how="left").filter(
        (pl.col("len").fill_null(0) < n) & (pl.col("low") > pl.col("first_step"))
    )
    if len(short):
        again = _found(connection, run_id, n, ancestors, short.with_columns(low=pl.col("first_step")))
        found = pl.concat([found.join(short, on="metric_id", how="anti"), again])
    found = found.sort("metric_id", "step").join(asked, on="metric_id", how="left", maintain_order="left")
    return found.select(list(schema)).cast(schema)  # type: ignore[arg-type]


def _found(
    connection: duckdb.DuckDBPyConnection, run_id: int, n: int, ancestors: pl.DataFrame, asked: pl.DataFrame
) -> pl.DataFrame:
    with given(connection, ancestors=ancestors, asked=asked.select("metric_id", "low")):
        return select(
            connection,
            statement("lineage_tails"),
            {"run_id": run_id, "n": n, "lowest": float(asked["low"].min())},  # type: ignore[arg-type]
        )


def _ancestors(attempts: Sequence[Attempt], attempt: int) -> pl.DataFrame:
    """The line of parents, each with the step before which its samples stood when `attempt` began."""
    by_number = {item.attempt: item for item in attempts}
    chain: list[tuple[int, float]] = []
    current = by_number.get(attempt)
    before = float("inf")
    while current is not None and current.parent is not None:
        before = min(before, current.first_step)
        chain.append((current.parent, before))
        current = by_number.get(current.parent)
    return pl.DataFrame(chain, schema={"attempt": pl.Int32, "before_step": pl.Float64}, orient="row")
