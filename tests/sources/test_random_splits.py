"""A run with rewinds, read at random moments while its file grows: the same history as read at once."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import tracker_files as files

from flows.sources.catalogue import open_sources
from flows.sources.roles import role_of
from flows.stages.pull import pull
from flows.store import open_store

NAMES = ("loss", "grad_norm")
RANDOM = 200  # splits of each of the five formats: a thousand runs in all


def run_with_rewinds(chance: random.Random) -> files.Rows:
    rows, step = [], 0
    for _ in range(90):
        rows.append((step, {"loss": chance.random(), "grad_norm": chance.random()}))
        step = chance.randrange(max(0, step - 20), step) if step > 3 and chance.random() < 0.04 else step + 1
    return rows


def as_text(rows: files.Rows) -> bytes:
    lines = [f"step={step} loss={values['loss']!r} grad_norm={values['grad_norm']!r}\n" for step, values in rows]
    return ("launching\n" + "".join(lines)).encode()


def as_json_lines(rows: files.Rows) -> bytes:
    return "".join(json.dumps({"step": step, **values}) + "\n" for step, values in rows).encode()


def as_csv(rows: files.Rows) -> bytes:
    lines = [f"{step},{values['loss']!r},{values['grad_norm']!r}\n" for step, values in rows]
    return ("step,loss,grad_norm\n" + "".join(lines)).encode()


FORMATS: dict[str, Callable[[files.Rows], bytes]] = {
    "jsonl": as_json_lines,
    "text": as_text,
    "csv": as_csv,
    "tensorboard": files.event_file,
    "wandb": files.wandb_file,
}


def history(path: Path, content: bytes, cuts: list[int]) -> list[object]:
    store = open_store(":memory:", clock=lambda: 0.0)
    run = ""
    for cut in (*cuts, len(content)):
        path.write_bytes(content[:cut])
        (source,) = open_sources(str(path), run="run")
        run = pull(store, source, role_of, final=cut == len(content)).run
    return [store.history(run, name).select("attempt", "step", "value").rows() for name in NAMES]


def same_in_splits(name: str, path: Path, seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        rows = run_with_rewinds(chance)
        content, least = FORMATS[name](rows), len(FORMATS[name](rows[:3]))
        cuts = sorted(chance.randrange(least, len(content)) for _ in range(chance.randrange(1, 7)))
        wanted = history(path, content, [])
        assert wanted[0][0][1] == 0.0  # the last rewind may leave but little of it
        assert history(path, content, cuts) == wanted, (seed, cuts)


@pytest.mark.parametrize("name", FORMATS)
def test_some_random_splits_give_the_same_history(name: str, tmp_path: Path) -> None:
    same_in_splits(name, tmp_path / "run", range(4))


@pytest.mark.faults
@pytest.mark.parametrize("name", FORMATS)
def test_a_thousand_random_splits_in_all_give_the_same_history(name: str, tmp_path: Path) -> None:
    same_in_splits(name, tmp_path / "run", range(RANDOM))
