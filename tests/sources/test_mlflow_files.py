"""MLflow's file store as it may lie on a disk, and the order of metrics that are kept one by one."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.errors import BadInput
from flows.sources import merge, mlflow_files
from flows.sources.catalogue import open_sources
from flows.sources.merge import Piece, merged


def write_run(folder: Path, files: dict[str, bytes], name: str = "hero") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "meta.yaml").write_text(f"run_id: x\nrun_name: {name}\n")
    for metric, text in files.items():
        path = folder / "metrics" / metric
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    return folder


def pulled(folder: Path, cursor: str | None = None) -> tuple[list[tuple[float, str, float]], str, bool, dict[str, int]]:
    (source,) = open_sources(str(folder))
    batches = list(source.pull(cursor))
    rows = [row for batch in batches for row in batch.rows.select("step", "name", "value").iter_rows()]
    notes = {key: value for batch in batches for key, value in batch.notes.items()}
    return rows, batches[-1].cursor if batches else cursor or "", any(batch.restart for batch in batches), notes


def test_old_lines_without_a_step_and_new_ones_with_a_data_set_are_read(tmp_path: Path) -> None:
    text = b"1790000000000 1.5\n1790000000001 2.5 7 train 0a1b2c\n\nnot a sample\n1790000000002 nan 8\n"
    rows, _, _, notes = pulled(write_run(tmp_path / "0a1b2c3d", {"loss": text}))
    assert repr(rows) == repr([(0.0, "loss", 1.5), (7.0, "loss", 2.5), (8.0, "loss", float("nan"))])
    assert notes == {"line that is no sample": 1}


def test_each_metric_goes_on_where_it_stopped_and_an_unfinished_line_waits(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"a": b"1 1.0 0\n3 2.0 1\n", "b/c": b"2 5.0 0\n4 6.0"})
    first, cursor, _, _ = pulled(run)
    assert first == [(0.0, "a", 1.0), (0.0, "b/c", 5.0), (1.0, "a", 2.0)]
    write_run(run, {"b/c": b"2 5.0 0\n4 6.0 1\n", "new": b"5 7.0 1\n"})
    second, cursor, restart, _ = pulled(run, cursor)
    assert (second, restart) == ([(1.0, "b/c", 6.0), (1.0, "new", 7.0)], False)
    assert pulled(run, cursor)[0] == []


@pytest.mark.parametrize("change", ["value", "shorter", "gone"])
def test_a_metric_that_was_written_over_begins_the_run_anew(tmp_path: Path, change: str) -> None:
    run = write_run(tmp_path / "run", {"a": b"1 1.0 0\n3 2.0 1\n", "b": b"2 5.0 0\n"})
    _, cursor, _, _ = pulled(run)
    if change == "gone":
        (run / "metrics" / "a").unlink()
    else:
        write_run(run, {"a": b"1 1.0 0\n3 9.0 1\n" if change == "value" else b"1 1.0 0\n"})
    rows, _, restart, _ = pulled(run, cursor)
    assert restart
    assert rows[-1] == ((1.0, "a", 9.0) if change == "value" else (0.0, "b", 5.0))


def test_a_store_of_several_runs_says_which_there_are(tmp_path: Path) -> None:
    for name in ("aaa", "bbb"):
        write_run(tmp_path / "mlruns" / "0" / name, {"loss": b"1 1.0 0\n"})
    (tmp_path / "mlruns" / "0" / "meta.yaml").write_text("experiment_id: '0'\n")
    with pytest.raises(BadInput, match=r"an MLflow store with 2 runs; name one of them: .*aaa, .*bbb"):
        open_sources(str(tmp_path / "mlruns"))
    (source,) = open_sources(str(tmp_path / "mlruns" / "0" / "aaa"))
    assert source.describe().run == "hero-aaa"
    (tmp_path / "empty" / "metrics").mkdir(parents=True)
    (tmp_path / "empty" / "meta.yaml").write_text("run_id: x\n")
    with pytest.raises(BadInput, match="a run without a metric"):
        open_sources(str(tmp_path / "empty"))


def test_memory_is_bounded_by_reading_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_files, "_HELD_BYTES", 1)
    monkeypatch.setattr(merge, "FLUSH_ROWS", 1000)
    files = {
        name: b"".join(b"%d %r %d\n" % (1_790_000_000_000 + 10 * at + shift, float(at), at) for at in range(3000))
        for shift, name in enumerate("abc")
    }
    (source,) = open_sources(str(write_run(tmp_path / "run", files)))
    batches = list(source.pull(None))
    assert len(batches) > 5
    rows = pl.concat([batch.rows for batch in batches])
    assert rows.select("step", "name").rows() == [(float(at), name) for at in range(3000) for name in "abc"]
    halfway = [batch.rows for batch in source.pull(batches[2].cursor)]
    assert pl.concat([*(batch.rows for batch in batches[:3]), *halfway]).equals(rows)


pieces = st.dictionaries(
    st.sampled_from("abcd"), st.lists(st.tuples(st.integers(1, 40), st.integers(0, 9)), max_size=12), min_size=1
)


@given(pieces, st.integers(1, 5))
def test_merging_loses_nothing_and_keeps_each_metrics_order(
    given_rows: dict[str, list[tuple[int, int]]], size: int
) -> None:
    def cut(rows: list[tuple[int, int]]) -> list[Piece]:
        parts = [rows[at : at + size] for at in range(0, len(rows), size)]
        return [
            Piece(
                np.array([time for time, _ in part], dtype=np.int64), np.array([float(step) for _, step in part]),
                np.arange(at * size, at * size + len(part), dtype=float), lambda n, at=at: {"n": at * size + n},
            )
            for at, part in enumerate(parts)
        ]  # fmt: skip

    frames = list(merged({name: iter(cut(rows)) for name, rows in given_rows.items()}))
    rows = pl.concat([frame for frame, _ in frames]) if frames else pl.DataFrame(schema={"name": pl.String})
    for name, wanted in given_rows.items():
        mine = rows.filter(name=name)
        assert (mine["value"].to_list() if wanted else []) == [float(at) for at in range(len(wanted))]
        assert (mine["step"].to_list() if wanted else []) == [float(step) for _, step in wanted]
    ends = {name: place["n"] for _, places in frames for name, place in places.items()}
    assert ends == {name: len(rows) for name, rows in given_rows.items() if rows}
    in_order = all(rows == sorted(rows) for rows in given_rows.values())
    if frames and in_order:
        assert rows["logged_at"].is_sorted()


@pytest.mark.parametrize(
    "odd", ["99999999999999999999999 1.0 1", "1 1.0 " + "9" * 400, "1 1.0 nan", "1e3 1.0 1", "1 0x1 1", "\x00"]
)
def test_a_line_that_is_no_sample_is_counted(tmp_path: Path, odd: str) -> None:
    rows, _, _, notes = pulled(write_run(tmp_path / "run", {"a": f"1 1.0 0\n{odd}\n3 2.0 2\n".encode()}))
    assert rows == [(0.0, "a", 1.0), (2.0, "a", 2.0)]
    assert notes == {"line that is no sample": 1}


def test_a_time_of_no_clock_is_none(tmp_path: Path) -> None:
    text = b"1790000000000 1.0 0\n9223372036854775807 2.0 1\n-9223372036854775808 3.0 2\n"
    (batch,) = open_sources(str(write_run(tmp_path / "run", {"a": text})))[0].pull(None)
    assert batch.rows["logged_at"].dt.epoch("ms").to_list() == [1790000000000, None, None]


@pytest.mark.parametrize("view", ["metrics", "runs"])
def test_a_database_whose_tables_are_views_is_refused(tmp_path: Path, view: str) -> None:
    with closing(sqlite3.connect(tmp_path / "m.db")) as connection:
        connection.execute(f"CREATE TABLE {'runs' if view == 'metrics' else 'metrics'} (run_uuid, name, start_time)")
        endless = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r)"
        connection.execute(f"CREATE VIEW {view} AS {endless} SELECT x AS run_uuid, x AS name, x AS start_time FROM r")
    with pytest.raises(BadInput, match="no MLflow database"):
        open_sources(f"sqlite:///{tmp_path / 'm.db'}#1")
