"""What JSON Lines may hold, and what becomes of it."""

import json
import math
from datetime import datetime
from pathlib import Path

import pytest

from flows.errors import BadInput
from flows.sources.catalogue import open_sources


def read(
    tmp_path: Path, *lines: str, step_key: str | None = None
) -> tuple[list[tuple[float, str, float]], dict[str, int]]:
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(lines) + "\n")
    (source,) = open_sources(str(path), step_key=step_key)
    (batch,) = source.pull(None)
    return list(batch.rows.select("step", "name", "value").iter_rows()), dict(batch.notes)


def times(tmp_path: Path, *lines: str) -> list[datetime | None]:
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(lines) + "\n")
    (batch,) = open_sources(str(path))[0].pull(None)
    return batch.rows["logged_at"].to_list()


def test_nested_names_are_joined_and_booleans_are_numbers(tmp_path: Path) -> None:
    rows, notes = read(tmp_path, '{"step": 1, "train": {"loss": 2.5, "router": {"entropy": 5}}, "clipped": true}')
    assert rows == [(1, "train/loss", 2.5), (1, "train/router/entropy", 5), (1, "clipped", 1)]
    assert notes == {}


def test_bare_and_quoted_nonfinite_values_are_kept(tmp_path: Path) -> None:
    rows, notes = read(tmp_path, '{"step": 1, "a": NaN, "b": Infinity, "c": -Infinity, "d": "NaN", "e": "-Infinity"}')
    assert [str(value) for _, _, value in rows] == ["nan", "inf", "-inf", "nan", "-inf"]
    assert notes == {}


def test_numbers_as_text_and_lists_are_counted_and_null_says_nothing(tmp_path: Path) -> None:
    rows, notes = read(tmp_path, '{"step": 1, "loss": "2.5", "hist": [1, 2], "eval": null, "lr": 0.1, "host": "a"}')
    assert rows == [(1, "lr", 0.1)]
    assert notes == {"text value": 2, "list value": 1}


def test_lines_that_are_no_json_are_counted(tmp_path: Path) -> None:
    rows, notes = read(
        tmp_path, '{"step": 1, "loss": 2}', "Traceback ...", "", "[1, 2]", '{"step": 2, "lo', '{"step": 3, "loss": 1}'
    )
    assert [step for step, _, _ in rows] == [1, 3]
    assert notes == {"line that is no JSON object": 3}


@pytest.mark.parametrize(
    ("keys", "taken"),
    [
        (["step", "global_step", "_step"], "_step"),
        (["step", "global_step"], "global_step"),
        (["iter", "step"], "step"),
        (["loss", "iteration"], "iteration"),
        (["trainer/global_step", "epoch"], "trainer/global_step"),
        (["Step", "x"], "Step"),
    ],
)
def test_the_step_is_the_first_of_the_known_keys(keys: list[str], taken: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text(json.dumps({**{key: at for at, key in enumerate(keys)}, "grad": 0.5}) + "\n")
    (source,) = open_sources(str(path))
    (batch,) = source.pull(None)
    assert source.describe().step_key == taken
    assert batch.rows["step"].unique().to_list() == [keys.index(taken)]
    assert taken not in batch.rows["name"].to_list()


def test_a_step_that_restarts_each_epoch_is_a_metric_beside_global_step(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, *[json.dumps({"global_step": at, "step": at % 3, "loss": 1}) for at in range(6)])
    assert [step for step, name, _ in rows if name == "loss"] == [0, 1, 2, 3, 4, 5]


def test_the_step_key_can_be_chosen(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, '{"step": 1, "tokens": 4096, "loss": 2}', step_key="tokens")
    assert rows == [(4096, "step", 1), (4096, "loss", 2)]


def test_a_chosen_step_key_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no 'batch'.*there is step, loss.*--step-key"):
        read(tmp_path, '{"step": 1, "loss": 2}', step_key="batch")


def test_another_chosen_step_key_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text('{"step": 1, "tokens": 4096, "loss": 2}\n')
    (first,) = open_sources(str(path))[0].pull(None)
    (second,) = open_sources(str(path), step_key="tokens")[0].pull(first.cursor)
    assert (second.restart, second.rows["step"].to_list()) == (True, [4096, 4096])


def test_without_a_step_the_row_number_is_the_step(tmp_path: Path) -> None:
    rows, notes = read(tmp_path, '{"loss": 3}', '{"loss": 2}', '{"loss": 1}')
    assert rows == [(1, "loss", 3), (2, "loss", 2), (3, "loss", 1)]
    assert notes == {"no step column: the row number is the step": 3}


def test_a_config_before_the_first_step_is_left_out_and_a_later_line_takes_the_last_step(tmp_path: Path) -> None:
    rows, notes = read(tmp_path, '{"lr": 0.1}', '{"step": 5, "loss": 2}', '{"eval_loss": 3}')
    assert rows == [(5, "loss", 2), (5, "eval_loss", 3)]
    assert notes == {"line without a step": 1, "line without a step, taken at the last one": 1}


def test_long_objects_give_the_metric_they_name(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, '{"step": 1, "name": "loss", "value": 2}', '{"step": 1, "metric": "lr", "value": "NaN"}')
    assert rows[0] == (1, "loss", 2)
    assert (rows[1][1], math.isnan(rows[1][2])) == ("lr", True)


def test_only_log_events_of_levanter_are_samples(tmp_path: Path) -> None:
    events = [
        {"tracker": "json_logger", "event": "hparams", "hparams": {"lr": 1}},
        {"tracker": "json_logger", "event": "log", "step": 0, "metrics": {"train/loss": 3.0, "global_step": 0}},
        {"tracker": "json_logger", "event": "log", "step": None, "metrics": {"lm_eval/acc": 0.5}},
        {"tracker": "json_logger", "event": "log", "step": 9, "metrics": {"hist": {"min": 1, "max": 2}}},
        {"tracker": "json_logger", "event": "finish", "summary": {"train/loss": 1.0}},
    ]
    prefix = "2026-01-02T03:04:05 INFO levanter.json_logger "
    rows, notes = read(tmp_path, "compiling {'a': 1}", *[prefix + json.dumps(event) for event in events])
    assert rows == [
        (0, "train/loss", 3),
        (0, "global_step", 0),
        (0, "lm_eval/acc", 0.5),
        (9, "hist/min", 1),
        (9, "hist/max", 2),
    ]
    assert notes == {
        "line that is no JSON object": 1,
        "event that is no log line": 2,
        "line without a step, taken at the last one": 1,
    }


@pytest.mark.parametrize(
    "written",
    [
        '"timestamp": "2026-04-20T01:15:37"',
        '"time": "2026-04-20T03:15:37+02:00"',
        '"_timestamp": 1776647737.0',
        '"logged_at": 1776647737000',
        '"ts": 1776647737000000',
        '"timestamp": "1776647737"',
    ],
)
def test_times_become_naive_utc(written: str, tmp_path: Path) -> None:
    assert times(tmp_path, f'{{"step": 1, "loss": 2, {written}}}') == [datetime(2026, 4, 20, 1, 15, 37)]


def test_a_duration_called_time_is_a_metric(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, '{"step": 1, "loss": 2, "time": 0.35}')
    assert rows == [(1, "loss", 2), (1, "time", 0.35)]


def test_a_line_that_is_still_being_written_waits(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text('{"step": 1, "loss": 2}\n{"step": 2, "loss": 1')
    (source,) = open_sources(str(path))
    (first,) = source.pull(None)
    path.write_text('{"step": 1, "loss": 2}\n{"step": 2, "loss": 1.25}')
    (second,) = source.pull(first.cursor)
    assert (first.rows["value"].to_list(), second.rows["value"].to_list()) == ([2], [1.25])


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    rows, notes = read(tmp_path, '\ufeff{"step": 1, "loss": 2}')
    assert (rows, notes) == ([(1, "loss", 2)], {})
