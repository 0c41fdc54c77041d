"""Offline files of Weights & Biases: written by the real SDK, damaged, cut anywhere, resumed."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tracker_files as files

from flows.errors import BadInput
from flows.records import Batch, Kin
from flows.sources.catalogue import open_sources
from flows.stages.attempts import Tracker, assign

Row = tuple[float, str, float]
NO_NUMBER = "histogram, image or other object that is no number"
SDK = """
import math, time
import numpy as np
import wandb
settings = wandb.Settings(x_disable_stats=True, x_disable_machine_info=True)
run = wandb.init(project="p", name="my run", id="first", config={"lr": 0.1}, settings=settings)
run.log({"loss": 1.5, "nested": {"a": {"b": 2}, "c": 3}, "dot.key": 4, "slash/x": 5, "flag": True, "none": None, "text": "hello",
         "nan": math.nan, "inf": math.inf, "list": [1, 2], "histogram": wandb.Histogram([1, 2, 3]), "half": np.float32(0.1)})
run.log({"loss": 1.25}, step=5)
run.log({"acc": 0.5}, step=5)
run.log({"loss": 1.0}, commit=False)
run.log({"lr": 0.1})
run.log({"image": wandb.Image(np.zeros((2, 2, 3), np.uint8)), "loss": 0.5}, step=9)
run.log({"loss": 7.0}, step=3)
run.log({"loss": 0.25, "tokens": 4096}, step=12)
run.finish()
stats = wandb.Settings(x_stats_sampling_interval=0.1)
for turn in range(2):
    run = wandb.init(project="p", name="again", id="second", resume="allow" if turn else None, settings=stats)
    for step in range(20):
        run.log({"loss": 1 / (1 + step)}, step=10 * turn + step)
    time.sleep(0.5)
    run.finish()
    time.sleep(1.1)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: Any) -> Path:
    """A folder in which the SDK wrote two runs, the second one resumed once, with no network."""
    folder = tmp_path_factory.mktemp("wandb")
    own = {f"WANDB_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "CACHE", "DATA", "ARTIFACT")}
    quiet = {"WANDB_MODE": "offline", "WANDB_DIR": str(folder), "WANDB_SILENT": "true", "WANDB_CONSOLE": "off"}
    environment = {**os.environ, **own, **quiet, "HOME": str(folder), "WANDB_DISABLE_GIT": "true"}
    subprocess.run(
        [sys.executable, "-c", SDK], env=environment, cwd=folder, check=True, timeout=120, capture_output=True
    )
    return folder


def pull(target: Path, cursor: str | None = None, **how: Any) -> list[Batch]:
    (source,) = open_sources(str(target), **how)
    return list(source.pull(cursor))


def rows_of(batches: list[Batch]) -> list[Row]:
    return [row for batch in batches for row in batch.rows.select("step", "name", "value").iter_rows()]


def notes_of(batches: list[Batch]) -> dict[str, int]:
    return {what: count for batch in batches for what, count in batch.notes.items()}


def test_what_the_sdk_logged_is_read_with_its_steps_as_the_sdk_merged_them(recorded: Path) -> None:
    batches = pull(next(recorded.glob("wandb/*-first")))
    rows = rows_of(batches)
    assert [step for step, _, _ in rows] == sorted(step for step, _, _ in rows)
    found = {(step, name): value for step, name, value in rows}
    assert math.isnan(found.pop((0, "nan")))
    assert found.pop((0, "half")) in (0.1, float(np.float32(0.1)))  # clients differ
    assert found == {
        (0, "loss"): 1.5, (0, "nested.a.b"): 2, (0, "nested.c"): 3, (0, "dot.key"): 4, (0, "slash/x"): 5, (0, "flag"): 1,
        (0, "inf"): math.inf, (5, "loss"): 1.0, (5, "acc"): 0.5, (5, "lr"): 0.1, (9, "loss"): 0.5,
        (12, "loss"): 0.25, (12, "tokens"): 4096,
    }  # fmt: skip
    assert notes_of(batches) == {NO_NUMBER: 2, "text value": 1, "list value": 2 - 1}
    assert all(time is not None for time in batches[0].rows["logged_at"])


def test_runs_are_found_and_named_from_each_folder_people_name(recorded: Path) -> None:
    for folder in (recorded, recorded / "wandb"):
        assert [each.describe().run for each in open_sources(str(folder))] == ["my run", "again"]
    (one,) = open_sources(str(next(recorded.glob("wandb/*-first/*.wandb"))))
    assert (one.describe().run, one.describe().format, one.describe().step_key) == ("my run", "wandb", "_step")
    (latest,) = open_sources(str(recorded / "wandb" / "latest-run"))
    assert latest.describe().run == "again"


def test_a_resume_with_the_same_id_is_the_same_run_and_its_rewind_is_seen(recorded: Path) -> None:
    _, source = open_sources(str(recorded))
    (batch,) = source.pull(None)
    losses = [step for step, name, _ in rows_of([batch]) if name == "loss"]
    assert losses == [*range(20), *range(10, 30)]
    tracker = Tracker()
    stored = assign(batch.rows, tracker, final=True)
    assert [(each.first_step, each.reason) for each in tracker.attempts] == [(0.0, "start"), (10.0, "rewind")]
    assert stored.filter(attempt=1).filter(name="loss")["step"].to_list() == list(range(10, 30))


def test_system_metrics_of_the_sdk_are_their_own_and_stand_at_the_step_that_was_reached(recorded: Path) -> None:
    _, source = open_sources(str(recorded))
    rows = [row for row in rows_of(list(source.pull(None))) if row[1].startswith("system/")]
    assert {"system/cpu", "system/proc.memory.rssMB", "system/disk./.usageGB"} <= {name for _, name, _ in rows}
    assert {step for step, _, _ in rows} <= {0.0, *range(30)}
    assert max(step for step, _, _ in rows) >= 18


def test_nothing_is_written_by_reading(recorded: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in recorded.rglob("*"))
    for source in open_sources(str(recorded)):
        list(source.pull(None))
    assert sorted((path, path.stat().st_mtime_ns) for path in recorded.rglob("*")) == before


def test_no_tracker_is_imported_by_reading(recorded: Path) -> None:
    code = "import sys; from flows.sources.catalogue import open_sources\n"
    code += "rows = sum(len(b.rows) for s in open_sources(sys.argv[1]) for b in s.pull(None))\n"
    code += "print(rows, *[name for name in ('wandb', 'tensorboard', 'trackio', 'tensorflow') if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code, str(recorded)], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[1:] == []
    assert int(done.stdout.split()[0]) > 50
    assert done.stderr == ""


ROWS: files.Rows = [(step, {"loss": 1 / (1 + step), "train.lr": 0.5}) for step in range(6)]


def test_cut_at_every_byte_the_rows_are_the_same_in_the_end(tmp_path: Path) -> None:
    stats = files.wandb_stats(files.START + 2.5, {"gpu.0.memory": 40.5})
    records = [
        files.wandb_run("abc"),
        *(files.wandb_history(step, {**row, "_timestamp": files.START + step}) for step, row in ROWS),
        stats,
    ]
    content, path = files.wandb_log([record.SerializeToString() for record in records]), tmp_path / "run"
    cursor, found = None, []
    for end in range(len(content) + 1):
        path.write_bytes(content[:end])
        try:
            batches = pull(path, cursor)
        except BadInput:
            assert end < 6
            continue
        found += rows_of(batches)
        cursor = batches[-1].cursor if batches else cursor
        assert not any(batch.restart or batch.notes for batch in batches)
    wanted = [(float(step), name, value) for step, row in ROWS for name, value in row.items()]
    assert found == [*wanted, (5.0, "system/gpu.0.memory", 40.5)]


def log_of(tmp_path: Path, *records: Any) -> Path:
    path = tmp_path / "run"
    path.write_bytes(files.wandb_log([record.SerializeToString() for record in records]))
    return path


def test_records_longer_than_a_block_are_put_together(tmp_path: Path) -> None:
    wide = {f"metric.{at}": float(at) for at in range(5_000)}
    path = log_of(tmp_path, files.wandb_run("abc"), *(files.wandb_history(step, wide) for step in range(3)))
    assert path.stat().st_size > 10 * 32_768
    rows = rows_of(pull(path))
    assert rows == [(float(step), name, value) for step in range(3) for name, value in wide.items()]


def test_a_damaged_block_is_passed_over_and_counted(tmp_path: Path) -> None:
    path = log_of(tmp_path, *(files.wandb_history(step, {"loss": 1.0, "note": "x" * 500}) for step in range(300)))
    content = bytearray(path.read_bytes())
    content[40_000] ^= 1
    path.write_bytes(content)
    batches = pull(path)
    steps = [step for step, _, _ in rows_of(batches)]
    assert steps == sorted(steps)
    assert 220 < len(steps) < 300
    assert notes_of(batches)["block with a wrong checksum"] == 1
    missing = sorted({float(step) for step in range(300)} - set(steps))
    assert missing == [float(step) for step in range(int(missing[0]), int(missing[-1]) + 1)]


def test_a_damaged_last_block_waits(tmp_path: Path) -> None:
    path = log_of(tmp_path, *(files.wandb_history(step, {"loss": 1.0}) for step in range(5)))
    content = path.read_bytes()
    path.write_bytes(content[:-3] + b"\0\0\0")
    first = pull(path)
    path.write_bytes(content)
    second = pull(path, first[-1].cursor)
    assert [step for step, _, _ in rows_of(first)] == [0, 1, 2, 3]
    assert [step for step, _, _ in rows_of(second)] == [4]
    assert notes_of(first) == {}


def test_numbers_in_quotes_nested_objects_and_old_items_are_read(tmp_path: Path) -> None:
    record = files.wandb_history(3, {})
    for key, value in {
        "nan": "NaN", "inf": "Infinity", "minus": "-Infinity", "x": {"y": {"z": 1.5}}, "_timestamp": files.START,
        "h": {"_type": "histogram", "values": [1], "bins": [0, 1], "count": 7},
    }.items():  # fmt: skip
        record.history.item.add(key=key, value_json=json.dumps(value))
    batches = pull(log_of(tmp_path, record))
    assert repr(rows_of(batches)) == repr(
        [(3.0, "nan", math.nan), (3.0, "inf", math.inf), (3.0, "minus", -math.inf), (3.0, "x.y.z", 1.5)]
    )
    assert notes_of(batches) == {NO_NUMBER: 1}


def test_system_metrics_stand_at_the_last_step_or_where_the_run_goes_on(tmp_path: Path) -> None:
    stats = [files.wandb_stats(files.START + at, {"gpu.0.gpu": 90.0 + at}) for at in range(3)]
    path = log_of(
        tmp_path, files.wandb_run("abc", starting_step=40), stats[0], files.wandb_history(41, {"loss": 1.0}), stats[1],
        files.wandb_history(50, {"loss": 0.5}), stats[2],
    )  # fmt: skip
    name = "system/gpu.0.gpu"
    assert rows_of(pull(path)) == [(40, name, 90), (41, "loss", 1), (41, name, 91), (50, "loss", 0.5), (50, name, 92)]


def test_a_resumed_file_goes_on_at_the_step_of_the_one_before(tmp_path: Path) -> None:
    first = files.wandb_file([(100, {"loss": 1.0})])
    later = [files.wandb_run("abc", files.START + 200), files.wandb_stats(files.START + 201, {"cpu": 5.0})]
    for name, content in (("a", first), ("b", files.wandb_log([record.SerializeToString() for record in later]))):
        (tmp_path / f"offline-run-{name}").mkdir()
        (tmp_path / f"offline-run-{name}" / "run-abc.wandb").write_bytes(content)
    assert rows_of(pull(tmp_path)) == [(100, "loss", 1.0), (100, "system/cpu", 5.0)]


def test_the_group_of_a_run_and_the_run_that_it_was_forked_from_are_told(tmp_path: Path) -> None:
    path = log_of(tmp_path, files.wandb_run("abc", run_group="hero", branch_point={"run": "def", "value": 80}))
    (source,) = open_sources(str(path))
    assert source.describe().kin == Kin("abc", "hero", "def")


def test_another_step_key(tmp_path: Path) -> None:
    rows = [(step, {"loss": 1.0, "tokens": 1024.0 * step}) for step in range(3)]
    path = tmp_path / "run"
    path.write_bytes(files.wandb_file(rows))
    assert rows_of(pull(path, step_key="tokens")) == [(0, "loss", 1), (1024, "loss", 1), (2048, "loss", 1)]
    with pytest.raises(BadInput, match=r"no 'samples'.*there is loss, tokens, _step"):
        pull(path, step_key="samples")
    cursor = pull(path)[-1].cursor
    assert pull(path, cursor, step_key="tokens")[0].restart


def test_two_runs_of_one_name_are_told_apart_by_their_ids(tmp_path: Path) -> None:
    for run in ("one", "two"):
        (tmp_path / f"run-1-{run}").mkdir()
        record = files.wandb_run(run)
        record.run.display_name = "same"
        content = files.wandb_log(
            [record.SerializeToString(), files.wandb_history(1, {"loss": 1.0}).SerializeToString()]
        )
        (tmp_path / f"run-1-{run}" / f"run-{run}.wandb").write_bytes(content)
    assert [each.describe().run for each in open_sources(str(tmp_path))] == ["same one", "same two"]


def test_a_record_of_more_than_eight_megabytes_is_passed_over(tmp_path: Path) -> None:
    huge = files.wandb_history(1, {"note": "x" * (9 << 20)})
    batches = pull(log_of(tmp_path, files.wandb_history(0, {"loss": 1.0}), huge, files.wandb_history(2, {"loss": 1.0})))
    assert [step for step, _, _ in rows_of(batches)] == [0, 2]
    assert notes_of(batches) == {"record of more than 8 MB": 1}
