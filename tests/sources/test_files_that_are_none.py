"""Pipes, devices and disks that fail: told in a sentence, never waited for."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.errors import BadInput, SourceUnavailable
from flows.sources.catalogue import open_sources
from flows.sources.streams import open_file

NAMED = [
    "run.log", "run-1.wandb", "p.db", "trainer_state.json", "checkpoint-10/trainer_state.json", "events.out.tfevents.1",
    "metrics.csv", "logs/a/events.out.tfevents.1",
    "wandb/offline-run-1/run-1.wandb", "lightning_logs/version_0/metrics.csv", "meta.yaml",
]  # fmt: skip


def in_time(work: Callable[[], object]) -> BaseException | None:
    """How it ended; fails where it is still waiting after a time in which anything small is over."""
    ended: list[BaseException | None] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001
            ended.append(error)
        else:
            ended.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30)
    assert ended, "it waits for a pipe that nobody writes to"
    return ended[0]


@pytest.mark.parametrize("name", NAMED)
def test_a_pipe_in_a_folder_is_passed_over(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(tmp_path / name)
    error = in_time(lambda: open_sources(str(tmp_path)))
    assert isinstance(error, BadInput)
    assert "no log that can be read (no files)" in str(error)


def test_a_file_that_became_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text('{"step": 1, "loss": 2.5}\n' * 3)
    (source,) = open_sources(str(tmp_path / "run.jsonl"))
    (tmp_path / "run.jsonl").unlink()
    os.mkfifo(tmp_path / "run.jsonl")
    error = in_time(lambda: list(source.pull(None)))
    assert isinstance(error, BadInput)
    assert "no regular file; write the log to a file and name that" in str(error)


def test_a_file_that_cannot_be_read_any_more_may_be_there_later() -> None:
    # memory at address 0 is the one file here whose reads fail as those of a lost network file system do
    with open_file(Path("/proc/self/mem")) as file, pytest.raises(SourceUnavailable, match="is the file system there"):
        file.read(16)
    with open_file(Path("/proc/self/mem")) as file, pytest.raises(SourceUnavailable, match="is the file system there"):
        file.read()
