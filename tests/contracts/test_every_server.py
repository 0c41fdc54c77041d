"""One suite over the sources that are no file: the same log gives the same rows, however it arrived and was asked for."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wandb_server import WandbServer

from flows.records import SAMPLE_SCHEMA, Batch
from flows.sources.catalogue import open_sources
from flows.sources.contract import MAX_BATCH_ROWS, Source

Row = tuple[float, str, float]
LENGTH = 40
few = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def record(at: int) -> dict[str, float]:
    """What the run logged at one step: NaN once, infinities once, an eval now and then. Names in their order."""
    values = {"grad_norm": math.inf if at == 23 else 0.25 + at, "loss": math.nan if at == 17 else 4 / (1 + at)}
    if at % 5 == 0:
        values["eval_loss"] = -math.inf if at == 20 else 5 / (1 + at)
    return dict(sorted(values.items()))


def expected(count: int) -> list[Row]:
    return [(10.0 * at, name, value) for at in range(count) for name, value in record(at).items()]


def text(value: float) -> Any:
    return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN" if math.isnan(value) else value)


@dataclass
class Peer:
    """A run that can be shown up to any record. `show` also replaces it by one with other values."""

    format: str
    step_key: str
    target: str
    show: Callable[[int, bool], None]

    def open(self, **words: Any) -> Source:
        (source,) = open_sources(self.target, **words)
        return source


def wandb(folder: Path) -> Iterator[Peer]:
    server = WandbServer()

    def show(count: int, other: bool) -> None:
        server.created = "other" if other else "first"
        server.rows = [
            {"_step": 10 * at, "_timestamp": 1.79e9 + at, **{name: text(value) for name, value in record(at).items()}}
            for at in range(count)
        ]

    yield Peer("wandb", "_step", server.run_url, show)
    server.close()


def mlflow_files(folder: Path) -> Iterator[Peer]:
    run = folder / "mlruns" / "0" / "0a1b2c3d"

    def show(count: int, other: bool) -> None:
        files: dict[str, str] = {}
        for at in range(count):
            for name, value in record(at).items():
                written = 9.0 if other and name == "loss" else value
                files[name] = f"{files.get(name, '')}{1_790_000_000_000 + 10 * at} {written!r} {10 * at}\n"
        (run / "metrics").mkdir(parents=True, exist_ok=True)
        (run / "meta.yaml").write_text("run_name: hero\n")
        for path in (run / "metrics").iterdir():
            path.unlink()
        for name, lines in files.items():
            (run / "metrics" / name).write_text(lines)

    yield Peer("mlflow", "step", str(run), show)


def an_object(folder: Path) -> Iterator[Peer]:
    store, target = fsspec.filesystem("memory"), f"memory://suite/{folder.name}/run.jsonl"

    def show(count: int, other: bool) -> None:
        rows = [{"step": 10 * at, **record(at), **({"loss": 9.0} if other else {})} for at in range(count)]
        store.pipe(target, b"".join(json.dumps(row).encode() + b"\n" for row in rows))

    yield Peer("jsonl", "step", target, show)


@pytest.fixture(params=[wandb, mlflow_files, an_object], ids=lambda make: make.__name__)
def peer(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    yield from request.param(tmp_path)


def pull_all(source: Source, cursor: str | None = None) -> tuple[list[Batch], str | None]:
    batches = list(source.pull(cursor))
    return batches, batches[-1].cursor if batches else cursor


def rows_of(batches: list[Batch]) -> list[Row]:
    return [row for batch in batches for row in batch.rows.select("step", "name", "value").iter_rows()]


def same(left: list[Row], right: list[Row]) -> bool:
    return repr(left) == repr(right)  # NaN equals NaN here


def test_rows_are_those_that_were_logged_in_their_order(peer: Peer) -> None:
    peer.show(LENGTH, False)
    batches, _ = pull_all(peer.open())
    assert same(rows_of(batches), expected(LENGTH))
    assert all(dict(batch.rows.schema) == SAMPLE_SCHEMA and len(batch.rows) <= MAX_BATCH_ROWS for batch in batches)
    assert not any(batch.restart for batch in batches)


def test_description_names_the_format_the_step_and_what_was_named(peer: Peer) -> None:
    peer.show(LENGTH, False)
    found = peer.open().describe()
    assert (found.format, found.step_key, found.source) == (peer.format, peer.step_key, peer.target)
    assert peer.open(run="the hero").describe().run == "the hero"


@few
@given(counts=st.lists(st.integers(1, LENGTH), min_size=1, max_size=6))
def test_a_run_that_grows_gives_the_same_rows_in_any_split(peer: Peer, counts: list[int]) -> None:
    cursor, found = None, []
    for count in [*sorted(counts), LENGTH]:
        peer.show(count, False)
        batches, cursor = pull_all(peer.open(), cursor)
        assert not any(batch.restart for batch in batches)
        found += rows_of(batches)
    assert same(found, expected(LENGTH))


def test_nothing_new_gives_no_rows(peer: Peer) -> None:
    peer.show(LENGTH, False)
    _, cursor = pull_all(peer.open())
    batches, again = pull_all(peer.open(), cursor)
    assert rows_of(batches) == []
    assert rows_of(pull_all(peer.open(), again)[0]) == []


def test_pulling_twice_from_one_cursor_gives_the_same(peer: Peer) -> None:
    peer.show(9, False)
    _, cursor = pull_all(peer.open())
    peer.show(LENGTH, False)
    first, first_cursor = pull_all(peer.open(), cursor)
    second, second_cursor = pull_all(peer.open(), cursor)
    assert same(rows_of(first), rows_of(second))
    assert first_cursor == second_cursor
    assert same(rows_of(first), expected(LENGTH)[len(expected(9)) :])


@pytest.mark.parametrize("length", [5, LENGTH + 10])
def test_a_replaced_run_begins_anew(peer: Peer, length: int) -> None:
    peer.show(LENGTH, False)
    _, cursor = pull_all(peer.open())
    peer.show(length, True)
    batches, _ = pull_all(peer.open(), cursor)
    assert [batch.restart for batch in batches] == [True]
    assert rows_of(batches)[0][0] == 0.0
    assert len(rows_of(batches)) == len(expected(length))


@pytest.mark.parametrize("cursor", ["no JSON", "[]", '{"format": "another"}', "{}"])
def test_a_cursor_of_something_else_begins_anew(peer: Peer, cursor: str) -> None:
    peer.show(LENGTH, False)
    batches, _ = pull_all(peer.open(), cursor)
    assert batches[0].restart
    assert same(rows_of(batches), expected(LENGTH))
