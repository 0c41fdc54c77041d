"""MLPerf logs: which events are samples, at which step, and what an average of a block is."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from flows.errors import BadInput
from flows.records import Batch
from flows.sources.catalogue import open_sources
from flows.sources.roles import role_of
from flows.sources.rows import Rows
from flows.stages.attempts import Tracker, assign


def event(key: str, value: object = None, kind: str = "POINT_IN_TIME", **metadata: object) -> str:
    body = {"namespace": "", "time_ms": 1760029943038, "event_type": kind, "key": key, "value": value}
    return f":::MLLOG {json.dumps({**body, 'metadata': {'file': 'pretrain.py', 'lineno': 12, **metadata}})}\n"


def pull(tmp_path: Path, text: str, step_key: str | None = None) -> tuple[str, list[tuple[float, str, float]], Batch]:
    path = tmp_path / "result_0.txt"
    path.write_text(text)
    (source,) = open_sources(str(path), step_key=step_key)
    (batch,) = source.pull(None)
    assert source.describe().format == "mllog"
    return source.describe().step_key, list(batch.rows.select("step", "name", "value").iter_rows()), batch


def block(start: int, steps: int = 3) -> str:
    """A block of training, its average stamped with its start, and the evaluation behind it."""
    end = start + 64 * steps
    lines = [event("block_start", samples_count=start, kind="INTERVAL_START")]
    for at in range(start + 64, end + 64, 64):
        lines.append(
            event("tracked_stats", {"train_step_time": 0.5, "reduced_train_loss": 1000.0 / at}, step=float(at))
        )
    lines.append(event("tracked_stats", {"throughput": 120.5, "train_step_time": 0.53}, step=start))
    lines.append(event("block_stop", samples_count=start, kind="INTERVAL_END"))
    lines.append(event("eval_start", samples_count=end, kind="INTERVAL_START"))
    lines.append(event("eval_accuracy", 3.5, samples_count=end))
    lines.append(event("eval_stop", samples_count=end, kind="INTERVAL_END"))
    return "".join(lines)


HEAD = (
    event("cache_clear", True)
    + event("submission_benchmark", "llama31_8b")
    + event("global_batch_size", 64)
    + event("opt_base_learning_rate", 0.0008)
    + event("init_stop", kind="INTERVAL_END")
    + event("run_start", kind="INTERVAL_START")
)


def test_numbers_at_a_step_are_samples_and_the_configuration_is_none(tmp_path: Path) -> None:
    key, rows, batch = pull(tmp_path, HEAD + block(0) + block(192))
    assert key == "samples_count"
    assert [row for row in rows if row[1] == "reduced_train_loss"] == [
        (float(at), "reduced_train_loss", 1000.0 / at) for at in range(64, 385, 64)
    ]
    assert [row for row in rows if row[1] == "eval_accuracy (loss)"] == [
        (192, "eval_accuracy (loss)", 3.5),
        (384, "eval_accuracy (loss)", 3.5),
    ]
    assert {name for _, name, _ in rows} == {
        "train_step_time", "reduced_train_loss", "block/throughput", "block/train_step_time", "eval_accuracy (loss)",
    }  # fmt: skip
    assert batch.notes == {"event without a step: configuration": 2}
    assert batch.rows["logged_at"][0].isoformat() == "2025-10-09T17:12:23.038000"


def test_an_average_of_a_block_stands_where_it_was_known_and_is_no_rewind(tmp_path: Path) -> None:
    _, rows, batch = pull(tmp_path, HEAD + block(0) + block(192) + block(384))
    assert [step for step, name, _ in rows if name == "block/train_step_time"] == [192, 384, 576]
    stored = assign(batch.rows, Tracker(), final=True)
    assert stored["attempt"].unique().to_list() == [0]
    assert not stored["late"].any()


def test_a_restart_in_the_same_file_is_a_rewind(tmp_path: Path) -> None:
    _, rows, batch = pull(tmp_path, HEAD + block(0) + block(192) + HEAD + block(192) + block(384))
    assert [step for step, name, _ in rows if name == "block/throughput"] == [192, 384, 384, 576]
    assert assign(batch.rows, Tracker(), final=True)["attempt"].unique().sort().to_list() == [0, 1]


@pytest.mark.parametrize(
    ("benchmark", "name", "role", "healthy"),
    [
        ("gpt3", "eval_accuracy (loss)", "eval_loss", "down"),
        ("llama2_70b_lora", "eval_accuracy (loss)", "eval_loss", "down"),
        ("rnnt", "eval_accuracy (error)", "eval_score", "down"),
        ("bert", "eval_accuracy", "eval_score", "up"),
        ("resnet", "eval_accuracy", "eval_score", "up"),
    ],
)
def test_what_eval_accuracy_is_depends_on_the_benchmark(
    tmp_path: Path, benchmark: str, name: str, role: str, healthy: str
) -> None:
    _, rows, _ = pull(tmp_path, event("submission_benchmark", benchmark) + event("eval_accuracy", 0.7, epoch_num=3))
    assert [(step, found) for step, found, _ in rows] == [(3, name)]
    assert (role_of(name).role, role_of(name).healthy) == (role, healthy)


def test_the_step_axis_can_be_set(tmp_path: Path) -> None:
    text = "".join(event("eval_accuracy", at / 10, epoch_num=at, samples_count=at * 1000) for at in (1, 2))
    assert pull(tmp_path, text)[0] == "samples_count"
    key, rows, _ = pull(tmp_path, text, step_key="epoch_num")
    assert (key, [step for step, _, _ in rows]) == ("epoch_num", [1, 2])
    with pytest.raises(BadInput, match=r"no event with a number and 'tokens' in its metadata \(there is epoch_num"):
        pull(tmp_path, text, step_key="tokens")


def test_one_rank_is_taken_among_other_lines(tmp_path: Path) -> None:
    line = event("train_loss", 2.5, step_num=1)
    others = f" 1: {line.replace('2.5', '9.5')}[rank2] 2025-03-01 {line}"
    text = f"NCCL version 2.27\n 0: {line}{others}:::MLLOG {{broken\n{line[:60]}\n"
    key, rows, batch = pull(tmp_path, text)
    assert (key, rows) == ("step_num", [(1, "train_loss", 2.5)])
    assert batch.notes == {
        "line of another rank than 0, which is the one taken": 2,
        "MLLOG line that is no JSON object": 2,
    }


def test_values_that_are_no_plain_numbers(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "loss": math.nan,
        "grad": "inf",
        "big": 10**400,
        "text": "fast",
        "flag": True,
        "deep": {"a": 1},
        "none": None,
    }
    _, rows, _ = pull(tmp_path, event("tracked_stats", values, step=1))
    assert repr(rows) == repr(
        [(1.0, "loss", math.nan), (1.0, "grad", math.inf), (1.0, "big", math.inf), (1.0, "deep/a", 1.0)]
    )


def test_a_log_without_a_number_at_a_step_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no pattern of console logs"):
        pull(tmp_path, HEAD)


def test_the_limit_on_names_holds(tmp_path: Path) -> None:
    assert Rows(tmp_path).id_of("x" * 2000) is None
    _, rows, batch = pull(tmp_path, event("tracked_stats", {"x" * 2000: 1.0, "loss": 2.0}, step=1))
    assert rows == [(1, "loss", 2.0)]
    assert batch.notes == {"unusable metric name": 1}
