"""One suite over every source: whatever the format, the same log gives the same rows, however it arrived."""

import gzip
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import pytest
import tracker_files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.records import SAMPLE_SCHEMA, Batch
from flows.sources.catalogue import open_sources
from flows.sources.contract import MAX_BATCH_ROWS, Source

Row = tuple[float, str, float]
LENGTH = 40


def record(at: int) -> dict[str, float]:
    """What the run logged at one step: NaN once, infinities once, an eval now and then."""
    values = {
        "step": 10 * at,
        "loss": math.nan if at == 17 else 4 / (1 + at),
        "grad_norm": 1e300 * 1e300 if at == 23 else 0.25 + at,
    }
    if at % 5 == 0:
        values["eval_loss"] = -math.inf if at == 20 else 5 / (1 + at)
    return values


def expected(count: int) -> list[Row]:
    rows = [record(at) for at in range(count)]
    return [(float(row["step"]), name, value) for row in rows for name, value in row.items() if name != "step"]


def as_json_lines(count: int) -> bytes:
    return b"".join(json.dumps(record(at)).encode() + b"\n" for at in range(count))


def as_levanter(count: int) -> bytes:
    lines = ["loading weights\n"]
    for at in range(count):
        metrics = {name: value for name, value in record(at).items() if name != "step"}
        event = {"tracker": "json_logger", "event": "log", "step": 10 * at, "metrics": metrics}
        lines.append(f"2026-01-02 03:04:{at % 60:02},000 - levanter.json_logger - INFO :: {json.dumps(event)}\n")
    return "".join(lines).encode()


def as_wide(separator: str) -> Callable[[int], bytes]:
    def write(count: int) -> bytes:
        names = ["step", "loss", "grad_norm", "eval_loss"]
        rows = [[str(record(at).get(name, "")) for name in names] for at in range(count)]
        return "".join(separator.join(cells) + "\n" for cells in [names, *rows]).encode()

    return write


def as_long(count: int) -> bytes:
    rows = [f"{step:g},{name},{value!r}\n" for step, name, value in expected(count)]
    return ("step,name,value\n" + "".join(rows)).encode()


def as_wandb(count: int) -> bytes:
    names = ["loss", "grad_norm", "eval_loss"]
    columns = [f"a - b - {name}{bound}" for name in names for bound in ("", "__MIN", "__MAX")]
    lines = [",".join(f'"{name}"' for name in ["Step", *columns])]
    for at in range(count):
        cells = [str(record(at).get(name, "")) for name in names for _ in range(3)]
        lines.append(",".join(f'"{cell}"' for cell in [str(10 * at), *cells]))
    return "\n".join(lines).encode()  # like the real ones: no newline at the end


def as_trainer_state(count: int) -> bytes:
    history = [record(at) for at in range(count)]
    return json.dumps({"epoch": 1.0, "log_history": history, "max_steps": 400}, indent=2).encode()


def as_parquet(count: int) -> bytes:
    buffer = io.BytesIO()
    schema = {"step": pl.Int64, "loss": pl.Float64, "grad_norm": pl.Float64, "eval_loss": pl.Float64}
    pl.DataFrame([record(at) for at in range(count)], schema=schema).write_parquet(buffer, row_group_size=7)
    return buffer.getvalue()


def as_long_parquet(count: int) -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame(expected(count), schema=["step", "name", "value"], orient="row").write_parquet(
        buffer, row_group_size=7
    )
    return buffer.getvalue()


def pairs_of(at: int, between: str, separator: str) -> str:
    """`name=value` of what was logged at one step beside the step."""
    return separator.join(f"{name}{between}{value!r}" for name, value in record(at).items() if name != "step")


def as_mllog(count: int) -> bytes:
    lines = ["launching\n"]
    for at in range(count):
        values = {name: value for name, value in record(at).items() if name != "step"}
        event = {"namespace": "", "time_ms": 1760029762382 + at, "event_type": "POINT_IN_TIME", "key": "tracked_stats"}
        event |= {"value": values, "metadata": {"file": "train.py", "lineno": 312, "step": 10 * at}}
        lines.append(f" 0: :::MLLOG {json.dumps(event)}\n")
    return "".join(lines).encode()


def as_megatron(count: int) -> bytes:
    when = " [2025-03-01 10:00:00.123456]"
    lines = [f"{when} iteration {10 * at:8d}/     400 | {pairs_of(at, ': ', ' | ')} |\n" for at in range(count)]
    return ("loading\n" + "".join(lines)).encode()


def as_torchtitan(count: int) -> bytes:
    start = "[rank0]:[titan] 2025-03-01 10:00:00,123 - root - INFO - \x1b[31m"
    lines = [f"{start}step: {10 * at:2}  \x1b[32m{pairs_of(at, ':  ', '  ')}\x1b[39m\n" for at in range(count)]
    return ("[rank0]:compiling\r\n" + "".join(lines)).encode()


def as_bars(count: int) -> bytes:
    bars = [
        f"Epoch 0:  1%|█    | {10 * at}/400 [00:01<00:09, 4.98it/s, {pairs_of(at, '=', ', ')}]" for at in range(count)
    ]
    return "".join(f"{bar}\r{bar}\r" for bar in bars).encode()  # each is drawn twice


def as_pairs(count: int) -> bytes:
    lines = [f"INFO main.py:12 step={10 * at} {pairs_of(at, '=', ' ')}\nsome noise: {at}\n" for at in range(count)]
    return "".join(lines).encode()


def as_tracked(write: Callable[..., bytes], start: float = tracker_files.START) -> Callable[[int], bytes]:
    def written(count: int) -> bytes:
        rows = [record(at) for at in range(count)]
        return write([(row.pop("step"), row) for row in rows], start=start)

    return written


def tracked(format_name: str, write: Callable[..., bytes], step_key: str = "step") -> "Kind":
    return Kind(format_name, as_tracked(write), step_key=step_key, other=as_tracked(write, tracker_files.START + 9))


@dataclass(frozen=True)
class Kind:
    format: str
    write: Callable[[int], bytes]
    grows_by_bytes: bool = True
    compress: Callable[[bytes], bytes] = bytes
    step_key: str = "step"
    least: int = 1  # records without which it is not believed to be a log
    other: Callable[[int], bytes] | None = None  # another file of as many rows


KINDS = {
    "json lines": Kind("jsonl", as_json_lines),
    "levanter": Kind("jsonl", as_levanter),
    "gzip": Kind("jsonl", as_json_lines, compress=gzip.compress),
    "wide csv": Kind("csv", as_wide(",")),
    "tsv": Kind("csv", as_wide("\t")),
    "semicolons": Kind("csv", as_wide(";")),
    "long csv": Kind("csv", as_long),
    "wandb export": Kind("csv", as_wandb),
    "trainer state": Kind("trainer_state", as_trainer_state),
    "mllog": Kind("mllog", as_mllog),
    "megatron log": Kind("text/megatron", as_megatron, step_key="iteration"),
    "torchtitan log": Kind("text/torchtitan", as_torchtitan),
    "compressed log": Kind("text/torchtitan", as_torchtitan, compress=gzip.compress),
    "progress bars": Kind("text/progress bar", as_bars),
    "keys and values": Kind("text/key=value", as_pairs, least=3),
    "wide parquet": Kind("parquet", as_parquet, grows_by_bytes=False),
    "long parquet": Kind("parquet", as_long_parquet, grows_by_bytes=False),
    "tensorboard": tracked("tensorboard", tracker_files.event_file),
    "wandb": tracked("wandb", tracker_files.wandb_file, step_key="_step"),
    "trackio": replace(tracked("trackio", tracker_files.trackio_file), grows_by_bytes=False),
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
byte_kinds = {name: kind for name, kind in KINDS.items() if kind.grows_by_bytes}
every_growing_kind = pytest.mark.parametrize("kind", byte_kinds.values(), ids=byte_kinds.keys())
few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def put(path: Path, kind: Kind, content: bytes) -> Source:
    path.write_bytes(kind.compress(content))
    (source,) = open_sources(str(path))
    return source


def rows_of(batches: Sequence[Batch]) -> list[Row]:
    return [row for batch in batches for row in batch.rows.select("step", "name", "value").iter_rows()]


def same(left: list[Row], right: list[Row]) -> bool:
    return repr(left) == repr(right)  # NaN equals NaN here


def pull_all(source: Source, cursor: str | None = None) -> tuple[list[Batch], str | None]:
    batches = list(source.pull(cursor))
    return batches, batches[-1].cursor if batches else cursor


@every_kind
def test_rows_are_those_that_were_logged_in_their_order(kind: Kind, tmp_path: Path) -> None:
    batches, _ = pull_all(put(tmp_path / "run", kind, kind.write(LENGTH)))
    assert same(rows_of(batches), expected(LENGTH))
    assert all(dict(batch.rows.schema) == SAMPLE_SCHEMA and len(batch.rows) <= MAX_BATCH_ROWS for batch in batches)
    assert not any(batch.restart for batch in batches)


@every_kind
def test_description_names_the_format_and_the_step(kind: Kind, tmp_path: Path) -> None:
    described = put(tmp_path / "run", kind, kind.write(LENGTH)).describe()
    assert (described.format, described.step_key.lower()) == (kind.format, kind.step_key)
    assert described.source == str(tmp_path / "run")


@every_kind
@few
@given(counts=st.lists(st.integers(1, LENGTH), min_size=1, max_size=6))
def test_a_file_that_grows_gives_the_same_rows_in_any_split(kind: Kind, tmp_path: Path, counts: list[int]) -> None:
    cursor, found = None, []
    for count in [*sorted(counts), LENGTH]:
        batches, cursor = pull_all(put(tmp_path / "run", kind, kind.write(max(count, kind.least))), cursor)
        assert not any(batch.restart for batch in batches)
        found += rows_of(batches)
    assert same(found, expected(LENGTH))


@every_growing_kind
@few
@given(cuts=st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_a_file_cut_at_any_byte_gives_the_same_rows_in_the_end(kind: Kind, tmp_path: Path, cuts: list[float]) -> None:
    content, first = kind.write(LENGTH), len(kind.write(max(2, kind.least)))
    cursor, found = None, []
    for cut in [*sorted(cuts), 1.0]:
        end = first + round(cut * (len(content) - first))
        batches, cursor = pull_all(put(tmp_path / "run", kind, content[:end]), cursor)
        assert not any(batch.restart for batch in batches)
        found += rows_of(batches)
    assert same(found, expected(LENGTH))


@every_kind
def test_nothing_new_gives_no_rows(kind: Kind, tmp_path: Path) -> None:
    source = put(tmp_path / "run", kind, kind.write(LENGTH))
    _, cursor = pull_all(source)
    batches, again = pull_all(source, cursor)
    assert rows_of(batches) == []
    assert rows_of(pull_all(source, again)[0]) == []


@every_kind
def test_pulling_twice_from_one_cursor_gives_the_same(kind: Kind, tmp_path: Path) -> None:
    _, cursor = pull_all(put(tmp_path / "run", kind, kind.write(9)))
    source = put(tmp_path / "run", kind, kind.write(LENGTH))
    first, first_cursor = pull_all(source, cursor)
    second, second_cursor = pull_all(source, cursor)
    assert same(rows_of(first), rows_of(second))
    assert first_cursor == second_cursor
    assert same(rows_of(first), expected(LENGTH)[len(expected(9)) :])


@every_kind
@pytest.mark.parametrize("length", [5, LENGTH + 10])
def test_a_replaced_file_begins_anew(kind: Kind, tmp_path: Path, length: int) -> None:
    _, cursor = pull_all(put(tmp_path / "run", kind, kind.write(LENGTH)))
    if kind.other is not None:
        other = kind.other(length)
    else:
        other = kind.write(length).replace(b"1.0", b"9.0") if kind.grows_by_bytes else other_parquet(length)
    batches, _ = pull_all(put(tmp_path / "run", kind, other), cursor)
    assert [batch.restart for batch in batches] == [True]
    first = rows_of(batches)[0]
    assert first[0] == 0.0
    assert len(rows_of(batches)) >= length


def other_parquet(length: int) -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame({"step": [10 * at for at in range(length)], "loss": [9.0] * length}).write_parquet(buffer)
    return buffer.getvalue()


@every_kind
@pytest.mark.parametrize("cursor", ["no JSON", "[]", '{"format": "another"}', "{}"])
def test_a_cursor_of_something_else_begins_anew(kind: Kind, tmp_path: Path, cursor: str) -> None:
    batches, _ = pull_all(put(tmp_path / "run", kind, kind.write(LENGTH)), cursor)
    assert batches[0].restart
    assert same(rows_of(batches), expected(LENGTH))


@every_kind
def test_the_run_can_be_named(kind: Kind, tmp_path: Path) -> None:
    (tmp_path / "run").write_bytes(kind.compress(kind.write(LENGTH)))
    (source,) = open_sources(str(tmp_path / "run"), run="the hero")
    assert source.describe().run == "the hero"
