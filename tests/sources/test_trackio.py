"""trackio's database: written by trackio itself, read while it is written, cut anywhere."""

import json
import math
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import tracker_files as files

from flows.errors import BadInput, SourceUnavailable
from flows.records import Batch
from flows.sources.catalogue import open_sources

Row = tuple[float, str, float]
LOGGED = """
import math, sys, trackio
for run in ("first", "second"):
    trackio.init(project="proj", name=run, embed=False, auto_log_gpu=False, auto_log_cpu=False)
    for step in range(4):
        trackio.log({"loss": 1 / (1 + step), "nan": math.nan, "inf": -math.inf, "nested": {"a": 1}, "text": "x"})
    trackio.log({"loss": 0.125, "histogram": trackio.Histogram([1, 2])}, step=20)
    trackio.log_system({"gpu/0/power": 300.0})
    trackio.finish()
trackio.init(project="proj", name="first", embed=False, resume="must", auto_log_gpu=False, auto_log_cpu=False)
trackio.log({"loss": 0.0625})
trackio.finish()
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: Any) -> Path:
    """TRACKIO_DIR after two runs, the first one resumed."""
    folder = tmp_path_factory.mktemp("trackio")
    environment = {**os.environ, "TRACKIO_DIR": str(folder), "HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, "-c", LOGGED], env=environment, check=True, timeout=120, capture_output=True)
    return folder


def rows_of(batches: list[Batch]) -> list[Row]:
    return [row for batch in batches for row in batch.rows.select("step", "name", "value").iter_rows()]


def notes_of(batches: list[Batch]) -> dict[str, int]:
    return {what: count for batch in batches for what, count in batch.notes.items()}


def test_what_trackio_logged_is_read_run_by_run(recorded: Path) -> None:
    first, second = open_sources(str(recorded))
    assert [each.describe().run for each in (first, second)] == ["first", "second"]
    assert (first.describe().format, first.describe().step_key) == ("trackio", "step")
    batches = list(first.pull(None))
    rows = rows_of(batches)
    assert [(step, value) for step, name, value in rows if name == "loss"] == [
        (0, 1), (1, 1 / 2), (2, 1 / 3), (3, 1 / 4), (20, 1 / 8), (21, 1 / 16),
    ]  # fmt: skip
    assert [value for _, name, value in rows if name in ("inf", "nested/a")] == [-math.inf, 1.0] * 4
    assert sum(math.isnan(value) for _, name, value in rows if name == "nan") == 4
    assert [value for _, name, value in rows if name == "system/gpu/0/power"] == [300.0]
    assert notes_of(batches) == {"histogram, image or other object that is no number": 1, "text value": 4}
    assert len([1 for _, name, _ in rows_of(list(second.pull(None))) if name == "loss"]) == 5


def test_reading_leaves_nothing_beside_the_database(recorded: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in recorded.rglob("*"))
    for source in open_sources(str(recorded / "proj.db")):
        list(source.pull(None))
    assert sorted((path, path.stat().st_mtime_ns) for path in recorded.rglob("*")) == before


def insert(connection: sqlite3.Connection, step: int, run: str = "abc", table: str = "metrics", **values: Any) -> None:
    text = json.dumps(values).encode()
    at = f"2026-01-02T03:04:{step:02}+00:00"
    if table == "metrics":
        row = (run, at, f"run {run}", step, text)
        connection.execute(
            "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)", row
        )
    else:
        connection.execute("INSERT INTO system_metrics (run_id, timestamp, metrics) VALUES (?, ?, ?)", (run, at, text))


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_a_writer_goes_on_writing_while_the_run_is_read(journal: str, tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    path.write_bytes(files.trackio_file([(0, {"loss": 1.0})]))
    writer = sqlite3.connect(path, timeout=0, isolation_level=None)
    writer.execute(f"PRAGMA journal_mode = {journal}")
    insert(writer, 1, loss=0.5)
    (source,) = open_sources(str(path))
    pulled = source.pull(None)
    (batch,) = pulled
    insert(writer, 2, loss=0.25)  # timeout 0: it would raise if the reader held a lock
    rest = list(source.pull(batch.cursor))
    assert (rows_of([batch]), rows_of(rest)) == ([(0, "loss", 1), (1, "loss", 0.5)], [(2, "loss", 0.25)])
    assert not rest[0].restart
    writer.close()
    assert rows_of(list(source.pull(rest[0].cursor))) == []


def test_a_transaction_that_is_not_committed_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    path.write_bytes(files.trackio_file([(0, {"loss": 1.0})]))
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode = WAL")
    insert(writer, 1, loss=0.5)
    (source,) = open_sources(str(path))
    (batch,) = source.pull(None)
    assert rows_of([batch]) == [(0, "loss", 1)]
    writer.commit()
    assert rows_of(list(source.pull(batch.cursor))) == [(1, "loss", 0.5)]
    writer.close()


def test_system_metrics_stand_at_the_last_step_before_them(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    path.write_bytes(files.trackio_file([]))
    writer = sqlite3.connect(path)
    writer.execute("CREATE TABLE system_metrics (id INTEGER PRIMARY KEY, run_id TEXT, timestamp TEXT, metrics TEXT)")
    for at in (0, 15, 25, 35):
        insert(writer, at, table="system_metrics", power=float(at))
    for step in (10, 20, 30):
        insert(writer, step, loss=1.0)
    writer.commit()
    writer.close()
    (source,) = open_sources(str(path))
    batches = list(source.pull(None))
    placed = [(step, value) for step, name, value in rows_of(batches) if name == "system/power"]
    assert placed == [(10, 0), (10, 15), (20, 25), (30, 35)]
    assert rows_of(list(source.pull(batches[-1].cursor))) == []


def test_a_rewind_keeps_the_order_in_which_rows_were_written(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    path.write_bytes(files.trackio_file([(step, {"loss": 1.0}) for step in (0, 1, 2, 1, 2, 3)]))
    (source,) = open_sources(str(path))
    assert [step for step, _, _ in rows_of(list(source.pull(None)))] == [0, 1, 2, 1, 2, 3]


def test_a_step_key_of_the_users(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    path.write_bytes(files.trackio_file([(step, {"loss": 1.0, "tokens": 8.0 * step}) for step in range(3)]))
    (source,) = open_sources(str(path), step_key="tokens")
    assert rows_of(list(source.pull(None))) == [(0, "loss", 1), (8, "loss", 1), (16, "loss", 1)]
    with pytest.raises(BadInput, match=r"no 'samples'.*loss, tokens"):
        open_sources(str(path), step_key="samples")


def test_another_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(BadInput, match="without trackio's table of metrics"):
        open_sources(str(path))
    path.write_bytes(files.trackio_file([]))
    with pytest.raises(BadInput, match="no metrics in it yet"):
        open_sources(str(path))


def small_database(tmp_path: Path) -> bytes:
    path = tmp_path / "small.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA page_size = 512")
    connection.execute(
        "CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_id TEXT, timestamp TEXT, run_name TEXT, step INTEGER, metrics TEXT)"
    )
    for step in range(12):
        insert(connection, step, loss=1.0)
    connection.commit()
    connection.close()
    return path.read_bytes()


@pytest.mark.parametrize("every", [41, pytest.param(1, marks=pytest.mark.faults)])
def test_cut_anywhere_it_is_refused_or_read_and_whole_it_is_read(every: int, tmp_path: Path) -> None:
    content, path = small_database(tmp_path), tmp_path / "run.db"
    whole = [(float(step), "loss", 1.0) for step in range(12)]
    for end in [*range(0, len(content), every), len(content)]:
        path.write_bytes(content[:end])
        try:
            rows = [row for source in open_sources(str(path)) for row in rows_of(list(source.pull(None)))]
        except (BadInput, SourceUnavailable):
            continue
        assert rows == whole[: len(rows)]
    assert rows == whole


def test_a_page_of_noise_is_refused_in_one_line(tmp_path: Path) -> None:
    content, path = small_database(tmp_path), tmp_path / "run.db"
    path.write_bytes(content[:512] + bytes(range(256)) * 4 + content[1536:])
    with pytest.raises(BadInput) as caught:
        for source in open_sources(str(path)):
            list(source.pull(None))
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


ENDLESS = "CREATE VIEW {} AS WITH RECURSIVE r(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM r) SELECT id, {} FROM r"
ROW = "'a' AS run_id, 'n' AS run_name, '2025-01-01' AS timestamp, id AS step, '{\"loss\": 1}' AS metrics"


def test_a_view_is_no_table_and_may_never_end(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(ENDLESS.format("metrics", ROW))
    with pytest.raises(BadInput, match="without trackio's table of metrics"):
        open_sources(str(path))


def test_a_view_in_place_of_the_systems_table_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    path.write_bytes(files.trackio_file([(1, {"loss": 2.0})]))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(ENDLESS.format("system_metrics", ROW))
    (source,) = open_sources(str(path))
    assert rows_of(list(source.pull(None))) == [(1.0, "loss", 2.0)]
