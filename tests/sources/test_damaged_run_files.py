"""Bytes changed at random, in files and within their checksums: rows or one clear line, never anything else."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tracker_files as files

from flows.errors import BadInput, SourceUnavailable
from flows.sources.catalogue import open_sources

ROWS: files.Rows = [(step, {"loss": 1 / (1 + step), "lr": 0.5}) for step in range(20)]
TURNS = [150, pytest.param(3_000, marks=pytest.mark.faults)]


def garbled(content: bytes, chance: random.Random, least: int = 0) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice([0, 1, 2, 5, 20])):
        changed[chance.randrange(least, len(changed))] = chance.randrange(256)
    return bytes(changed[: chance.randrange(4, len(changed) + 1)] if chance.random() < 0.3 else changed)


def is_read_or_refused(path: Path) -> None:
    try:
        for source in open_sources(str(path)):
            for batch in source.pull(None):
                list(source.pull(batch.cursor))
    except (BadInput, SourceUnavailable) as error:
        assert str(error).startswith(str(path)), error
        assert "\n" not in str(error)


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("write", [files.event_file, files.wandb_file, files.trackio_file])
def test_changed_files(write: Callable[[files.Rows], bytes], turns: int, tmp_path: Path) -> None:
    chance, content = random.Random(7), write(ROWS)
    for _ in range(turns):
        (tmp_path / "run").write_bytes(garbled(content, chance))
        is_read_or_refused(tmp_path / "run")


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize(
    ("write", "records"),
    [
        (files.event_records, [files.event(3, [files.as_tensor("loss", 1.0)])]),
        (files.wandb_log, [
            files.wandb_run("abc"), files.wandb_history(3, {"loss": 1.5, "a.b": 2, "_timestamp": files.START}),
            files.wandb_stats(files.START, {"cpu": 1.0}),
        ]),
    ],
    ids=["tensorboard", "wandb"],
)  # fmt: skip
def test_changed_records_with_right_checksums(
    write: Callable[[Sequence[bytes]], bytes], records: Sequence[Any], turns: int, tmp_path: Path
) -> None:
    chance = random.Random(7)
    for _ in range(turns):
        payloads = [garbled(record.SerializeToString(), chance) for record in records * 5]
        (tmp_path / "run").write_bytes(write(payloads))
        is_read_or_refused(tmp_path / "run")
