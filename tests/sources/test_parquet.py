"""Parquet as people write it: sparse, typed, nested, long."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from flows.errors import BadInput
from flows.sources.catalogue import open_sources


def read(tmp_path: Path, frame: pl.DataFrame, step_key: str | None = None) -> tuple[pl.DataFrame, dict[str, int]]:
    frame.write_parquet(tmp_path / "run.parquet", row_group_size=3)
    batches = list(open_sources(str(tmp_path / "run.parquet"), step_key=step_key)[0].pull(None))
    return pl.concat(batch.rows for batch in batches), {k: v for batch in batches for k, v in batch.notes.items()}


def test_a_null_was_not_logged_and_a_nan_was(tmp_path: Path) -> None:
    rows, notes = read(tmp_path, pl.DataFrame({"step": [1, 2], "loss": [None, float("nan")], "lr": [0.1, None]}))
    assert [(step, name) for step, _, name, _ in rows.rows()] == [(1.0, "lr"), (2.0, "loss")]
    assert np.isnan(rows["value"][1])
    assert notes == {}


def test_all_kinds_of_numbers_are_values_and_texts_are_passed_over(tmp_path: Path) -> None:
    frame = pl.DataFrame({"step": [1], "flag": [True], "small": [7], "note": ["x"], "list": [[1]]}).with_columns(
        pl.col("small").cast(pl.Int8),
        pl.lit(2.5).cast(pl.Decimal(10, 2)).alias("price"),
        pl.lit(1.5, pl.Float32).alias("half"),
    )
    rows, _ = read(tmp_path, frame)
    assert dict(rows.select("name", "value").iter_rows()) == {"flag": 1.0, "small": 7.0, "price": 2.5, "half": 1.5}


def test_long_tables_with_categories_and_zoned_times(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 1, 12, tzinfo=UTC)
    frame = pl.DataFrame({"timestamp": [moment] * 2, "step": [1, 1], "name": ["loss", "lr"], "value": [2.0, None]})
    rows, _ = read(tmp_path, frame.with_columns(pl.col("name").cast(pl.Categorical)))
    assert rows.rows() == [(1.0, datetime(2026, 1, 1, 12), "loss", 2.0)]


@pytest.mark.parametrize("unix", [1_767_268_800, 1_767_268_800_000, 1_767_268_800_000_000])
def test_unix_times_in_any_unit(unix: int, tmp_path: Path) -> None:
    rows, _ = read(tmp_path, pl.DataFrame({"_timestamp": [unix], "step": [1], "loss": [2.0]}))
    assert rows.rows() == [(1.0, datetime(2026, 1, 1, 12), "loss", 2.0)]


def test_a_duration_called_time_is_a_metric(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, pl.DataFrame({"time": [0.5], "step": [1], "loss": [2.0]}))
    assert rows["name"].to_list() == ["time", "loss"]


def test_rows_without_a_finite_step_are_counted(tmp_path: Path) -> None:
    frame = pl.DataFrame({"step": [1.0, None, float("nan"), 4.0], "loss": [1.0, 2.0, 3.0, 4.0]})
    rows, notes = read(tmp_path, frame)
    assert rows["value"].to_list() == [1, 4]
    assert notes == {"row without a finite step": 2}


def test_without_a_step_column_the_row_number_is_the_step(tmp_path: Path) -> None:
    rows, notes = read(tmp_path, pl.DataFrame({"loss": [3.0, 2.0, 1.0, 0.5]}))
    assert rows["step"].to_list() == [1, 2, 3, 4]
    assert list(notes) == ["no step column: the row number is the step"]


def test_a_wide_table_comes_step_by_step(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [1.0, 2.0], "step": [1, 2], "b": [3.0, 4.0]})
    rows, _ = read(tmp_path, frame)
    assert rows.drop("logged_at").rows() == [(1.0, "a", 1.0), (1.0, "b", 3.0), (2.0, "a", 2.0), (2.0, "b", 4.0)]


def test_a_chosen_step_column_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no column of numbers 'batch'.*--step-key: step, loss"):
        read(tmp_path, pl.DataFrame({"step": [1], "loss": [2.0]}), step_key="batch")
