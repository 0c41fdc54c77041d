"""Console logs as they lie about: what is in them is read in any split, and what is none is refused."""

import json
import random
from pathlib import Path

import polars as pl
import pytest

from flows.errors import BadInput
from flows.sources.catalogue import open_sources
from flows.sources.grammar import built_in
from flows.sources.shapes import Shapes

Row = tuple[float, str, float]


def read(path: Path, text: str, cuts: tuple[int, ...] = ()) -> tuple[str, list[Row]]:
    """The format and the rows, when the file was so many bytes long at the pulls before the last."""
    content, cursor = text.encode(), None
    rows: list[Row] = []
    form = ""
    for cut in (*cuts, len(content)):
        path.write_bytes(content[:cut])
        (source,) = open_sources(str(path))
        form = source.describe().format
        for batch in source.pull(cursor):
            assert not batch.restart
            cursor = batch.cursor
            rows += batch.rows.select("step", "name", "value").rows()
    return form, rows


@pytest.mark.parametrize("first", [990, 1_000, 999_990])
def test_steps_may_have_commas(first: int, tmp_path: Path) -> None:
    text = "".join(f"step: {at:,} loss: {at / 8} tps: {at:,}\n" for at in range(first, first + 20))
    wanted = [
        (float(at), name, value) for at in range(first, first + 20) for name, value in (("loss", at / 8), ("tps", at))
    ]
    for cuts in ((), (200,), (300, 301, 420)):
        assert read(tmp_path / "run.log", text, cuts) == ("text/key=value", wanted)


def test_the_progress_of_a_bar_is_no_metric(tmp_path: Path) -> None:
    bars = [
        f"\rTraining: {at:3}%|###   | {at}/100 [00:01<00:09, 4.98it/s]step={at} loss={2.5 + at}\n" for at in range(9)
    ]
    assert read(tmp_path / "run.log", "".join(bars))[1] == [(float(at), "loss", 2.5 + at) for at in range(9)]


def test_names_may_be_of_any_alphabet(tmp_path: Path) -> None:
    text = "".join(f"step={at} 损失/训练={at + 0.5} Fehlermaß={at}\n" for at in range(9))
    assert {name for _, name, _ in read(tmp_path / "run.log", text)[1]} == {"损失/训练", "Fehlermaß"}


@pytest.mark.parametrize(
    "text",
    [
        "for step in steps:\n    if step == 0: loss = 3\n    print('step 4', loss=1)\n    log(step=7, lr=x)\nstep=0; lr = 0.1\n",
        "Step 1: install numpy, version: 1.2\nStep 2: install torch, version: 2.6\nStep 3: run it, version: 3\n" * 3,
        "rank 0: steps: 1000 lr: 0.1\nrank 1: steps: 1000 lr: 0.1\n" * 30,
    ],
    ids=["code", "recipe", "configuration"],
)
def test_texts_with_steps_and_numbers_are_no_logs(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(text)
    with pytest.raises(BadInput, match="no pattern of console logs fits its lines"):
        open_sources(str(tmp_path / "run.log"))


def test_a_log_in_which_no_line_is_like_another_is_one(tmp_path: Path) -> None:
    words = random.Random(0)
    lines = [f"step={at} loss={at / 4} batch=s{words.getrandbits(64):x}\n" for at in range(40)]
    assert read(tmp_path / "run.log", "".join(lines))[1] == [(float(at), "loss", at / 4) for at in range(40)]


def test_lines_that_differ_in_a_word_are_converted_together() -> None:
    lines = pl.Series([f"step={at} loss={at / 4} batch=s{'abcdefgh'[at % 8]}{at}x\n" for at in range(800)])
    (found,) = Shapes(built_in(), None, {"loss": 0}.get).read(lines)
    assert found.at.tolist() == list(range(800))
    assert found.values[:, 0].tolist() == [at / 4 for at in range(800)]


def test_json_lines_behind_other_lines_are_json_lines(tmp_path: Path) -> None:
    lines = [json.dumps({"_step": at, "train": {"loss": at / 4}}) + "\n" for at in range(9)]
    text = "Launching on 8 GPUs\nsettings: step=1, lr=0.1\n" + "".join(lines[:5]) + "saving\n" + "".join(lines[5:])
    for cuts in ((), (120,), (121, 200)):
        assert read(tmp_path / "run.log", text, cuts) == (
            "jsonl",
            [(float(at), "train/loss", at / 4) for at in range(9)],
        )
