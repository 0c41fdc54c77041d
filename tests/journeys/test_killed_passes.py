"""SIGKILL at random moments of a pass: nothing is lost or doubled, and no alert is lost or repeated uncounted."""

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.store import Store, open_store

WriteLog = Callable[..., None]
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["flows.config", "flows.wiring", "flows.record.charts", "altair", "apprise"])
NAN = float("nan")
# steps, and what the loss is in them: an alert, its end, and another one
PARTS = ((0, 300, None), (300, 305, lambda step: NAN), (305, 1000, None), (1000, 1003, lambda step: NAN))


def whole_pass(folder: str) -> None:
    """One pass in a process of its own."""
    from flows.config import load_config
    from flows.wiring import one_pass

    report = one_pass(load_config(Path(folder) / "watchkeeper.toml"))
    assert report.good, report.markdown()


def complete(folder: Path) -> float:
    """A pass that is left alone; how long it took."""
    began = time.monotonic()
    process = FORKS.Process(target=whole_pass, args=(str(folder),))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    return time.monotonic() - began


def killed(folder: Path, seconds: float) -> None:
    process = FORKS.Process(target=whole_pass, args=(str(folder),))
    process.start()
    process.join(seconds)
    if process.is_alive():
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
    process.join(60)


def tables(store: Store) -> dict[str, pl.DataFrame]:
    """All that must not depend on where a pass was killed."""
    queries = {
        "samples": "SELECT run, name, attempt, step, value FROM samples ORDER BY ALL",
        "incidents": "SELECT incident_id, severity, status, title, severity_history FROM incidents ORDER BY ALL",
        "findings": "SELECT finding_id, incident_id, onset_step, detected_step, magnitude FROM findings ORDER BY ALL",
        "deliveries": "SELECT delivery_id, transition, state FROM deliveries ORDER BY ALL",
    }
    return {name: store.query(query).rows for name, query in queries.items()}


def watched(folder: Path, port: int, write_log: WriteLog, kills: int, seed: int) -> Store:
    """The parts of a log, each watched to the end after `kills` killed passes."""
    folder.mkdir()
    (folder / "watchkeeper.toml").write_text(
        f'[[run]]\nsource = "a.jsonl"\n[[channel]]\nname = "hook"\nurl = "json://127.0.0.1:{port}/"\n'
    )
    chance = random.Random(seed)
    usual = 1.0
    for first, last, loss in PARTS:
        write_log(folder / "a.jsonl", first, last, loss)
        for _ in range(kills):
            killed(folder, chance.uniform(0.0, usual))
        usual = complete(folder)
    return open_store(folder / "watchkeeper.duckdb", clock=time.time)


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.faults)])
def test_a_pass_may_be_killed_at_any_moment(tmp_path: Path, write_log: WriteLog, http_service: Any, kills: int) -> None:
    calm = tables(watched(tmp_path / "calm", http_service.server_port, write_log, kills=0, seed=0))
    expected = [got["message_id"] for got in http_service.got]
    assert len(expected) == len(set(expected)) == 3
    http_service.got.clear()

    store = watched(tmp_path / "killed", http_service.server_port, write_log, kills=kills, seed=7)
    found = tables(store)
    for name, table in calm.items():
        assert found[name].equals(table), name
    arrived = Counter(got["message_id"] for got in http_service.got)
    assert set(arrived) == set(expected)
    repeats = dict(store.query("SELECT message_id, repeats FROM deliveries").rows.iter_rows())
    assert all(count <= 1 + repeats[identity] for identity, count in arrived.items())


def hold(folder: str, ready: Any) -> None:
    """Take the lease as a pass does, and never give it back."""
    with open_store(Path(folder) / "watchkeeper.duckdb", clock=time.time).lease("a", "watch", 900):
        ready.set()
        time.sleep(600)


def test_the_next_pass_takes_over_from_a_killed_one_at_once(tmp_path: Path, write_log: WriteLog) -> None:
    (tmp_path / "watchkeeper.toml").write_text('[[run]]\nsource = "a.jsonl"\n')
    write_log(tmp_path / "a.jsonl", 0, 50)
    ready = FORKS.Event()
    holder = FORKS.Process(target=hold, args=(str(tmp_path), ready))
    holder.start()
    assert ready.wait(60)
    holder.kill()
    holder.join(60)
    complete(tmp_path)
    store = open_store(tmp_path / "watchkeeper.duckdb", clock=time.time)
    assert store.metrics("a")["samples"].to_list() == [50]
