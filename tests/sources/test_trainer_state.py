"""Hugging Face trainer states, and the folders they lie in."""

import json
from pathlib import Path
from typing import Any

import pytest

from flows.errors import BadInput
from flows.sources.catalogue import open_sources

HISTORY: list[dict[str, Any]] = [
    {"epoch": 0.5, "grad_norm": 0.7, "learning_rate": 4e-05, "loss": 1.5, "step": 5},
    {"epoch": 0.5, "eval_loss": 1.4, "eval_runtime": 3.0, "remaining_time": "1:00:00", "step": 5},
    {"epoch": 1.0, "step": 10, "train_loss": 1.3, "train_runtime": 60.0},
]


def write(folder: Path, history: list[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": history, "max_steps": 10}))
    return folder / "trainer_state.json"


def test_the_closing_summary_is_no_training_loss(tmp_path: Path) -> None:
    (batch,) = open_sources(str(write(tmp_path, HISTORY)))[0].pull(None)
    rows = list(batch.rows.select("step", "name", "value").iter_rows())
    assert rows[4:6] == [(5, "epoch", 0.5), (5, "eval_loss", 1.4)]
    assert rows[7:] == [(10, "epoch", 1), (10, "summary/train_loss", 1.3), (10, "summary/train_runtime", 60)]
    assert batch.notes == {"text value": 1}


def test_the_run_is_called_like_its_folder(tmp_path: Path) -> None:
    path = write(tmp_path / "my-run", HISTORY)
    checkpoint = write(tmp_path / "my-run" / "checkpoint-500", HISTORY)
    other = tmp_path / "saved_state.json"
    other.write_text(path.read_text())
    names = [open_sources(str(target))[0].describe().run for target in (path, path.parent, checkpoint, other)]
    assert names == ["my-run", "my-run", "my-run", "saved_state"]


def test_of_the_checkpoints_the_one_with_the_highest_step_is_read_each_time(tmp_path: Path) -> None:
    write(tmp_path / "run" / "checkpoint-90", HISTORY[:1])
    write(tmp_path / "run" / "checkpoint-100", HISTORY[:2])
    (source,) = open_sources(str(tmp_path / "run"))
    (first,) = source.pull(None)
    write(tmp_path / "run" / "checkpoint-1000", HISTORY)
    (second,) = source.pull(first.cursor)
    assert (len(first.rows), len(second.rows), second.restart) == (7, 3, False)


def test_a_log_history_alone_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(json.dumps(HISTORY, indent=1))
    (source,) = open_sources(str(tmp_path / "log.json"))
    assert [len(batch.rows) for batch in source.pull(None)] == [10]


def test_a_changed_entry_begins_anew(tmp_path: Path) -> None:
    (source,) = open_sources(str(write(tmp_path, HISTORY)))
    (first,) = source.pull(None)
    write(tmp_path, [{**HISTORY[0], "loss": 9.0}, *HISTORY[1:]])
    (second,) = source.pull(first.cursor)
    assert (second.restart, len(second.rows)) == (True, 10)


def test_a_folder_with_one_log_is_that_log(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,loss\n1,2\n")
    (tmp_path / "README.txt").write_text("a run\n")
    (source,) = open_sources(str(tmp_path))
    assert (source.describe().format, source.describe().run) == ("csv", "metrics")


def test_a_folder_with_two_logs_is_refused_with_their_names(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("step,loss\n1,2\n")
    with pytest.raises(BadInput, match=r"a folder with 2 logs; name one of them: a.csv, b.csv"):
        open_sources(str(tmp_path))


def test_a_folder_without_a_log_is_refused_with_what_was_seen(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"\0" * 10)
    with pytest.raises(BadInput, match=r"no log that can be read \(model.bin: a binary file"):
        open_sources(str(tmp_path))


@pytest.mark.parametrize("target", ["nowhere/at/all", "s3://user:secret@bucket/run", "\0", "x" * 5000])
def test_a_target_that_is_no_file_is_refused_without_its_secrets(target: str) -> None:
    with pytest.raises(BadInput) as caught:
        open_sources(target)
    assert "secret" not in str(caught.value)
    assert "; " in str(caught.value)
