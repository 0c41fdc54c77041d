"""`watchkeeper serve` from an empty Prefect home: it brings its own server, keeps time, and leaves nothing behind."""

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from flows.store import open_store

WriteLog = Callable[..., None]
PATIENCE_SECONDS = 300.0
INTERVAL_SECONDS = 20.0


def passes(folder: Path) -> list[tuple[str, str]]:
    """State and start of every flow run that has begun, oldest first."""
    database = folder / "watchkeeper.duckdb.prefect/prefect.db"
    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30) as connection:
            query = "SELECT state_name, start_time FROM flow_run WHERE start_time IS NOT NULL ORDER BY start_time"
            return connection.execute(query).fetchall()
    except sqlite3.OperationalError:
        return []


def seconds(start: str) -> float:
    """Prefect's text of a moment as unix seconds."""
    return datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp()


def starts(folder: Path) -> list[float]:
    """When passes began; one that was dropped while another was at work (Cancelled) has not."""
    return [seconds(start) for name, start in passes(folder) if name != "Cancelled"]


def await_passes(folder: Path, count: int, after: float = 0.0) -> None:
    """Wait for so many completed passes that began after a moment."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while sum(name == "Completed" and seconds(start) > after for name, start in passes(folder)) < count:
        assert time.monotonic() < give_up, (passes(folder), _logs(folder))
        time.sleep(0.5)


def _logs(folder: Path) -> str:
    return "".join(path.read_text()[-2000:] for path in (folder / "watchkeeper.duckdb.prefect").glob("*.log"))


def processes(folder: Path) -> list[str]:
    """Command lines of the processes that work in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
                if f"HOME={folder}".encode() in environment:
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


def test_two_passes_from_an_empty_home_and_then_a_clean_end(folder: Any, write_log: WriteLog) -> None:
    folder.configure('[[run]]\nsource = "a.jsonl"\n[watch]\ninterval = "5s"\n')
    write_log(folder.path / "a.jsonl", 0, 50)
    serving = folder.start("serve")
    try:
        await_passes(folder.path, 2)
        second = folder.run("serve")
        assert second.returncode == 2
        assert f"`watchkeeper serve` is running already (PID {serving.pid})" in second.stderr
    finally:
        serving.send_signal(signal.SIGTERM)
        out, err = serving.communicate(timeout=60)
    assert (serving.returncode, out) == (0, "")
    lines = err.splitlines()
    assert lines[0].startswith("watchkeeper: the Prefect server is up: http://127.0.0.1:")
    assert lines[1:] == ["watchkeeper: SIGTERM: stopping"]
    assert processes(folder.path) == []
    assert folder.outside() == ""


@pytest.mark.faults
@pytest.mark.parametrize("victim", ["main() serve", "flows.runner", "uvicorn", "multiprocessing.spawn"])
def test_after_a_kill_the_next_pass_starts_within_one_interval(folder: Any, write_log: WriteLog, victim: str) -> None:
    """And the time that `serve` needs from its start to its first pass on this machine, half as much again."""
    folder.configure(f'[[run]]\nsource = "a.jsonl"\n[watch]\ninterval = "{INTERVAL_SECONDS:.0f}s"\n')
    write_log(folder.path / "a.jsonl", 0, 50)
    began = time.time()
    serving = folder.start("serve")
    try:
        await_passes(folder.path, 1)
        start_up = starts(folder.path)[0] - began
        write_log(folder.path / "a.jsonl", 50, 100)
        _kill(folder.path, victim)
        killed = time.time()
        if victim == "main() serve":
            serving.communicate(timeout=60)
            serving = folder.start("serve")
        await_passes(folder.path, 1, after=killed)
        waited = min(start for start in starts(folder.path) if start > killed) - killed
        print(f"\n{victim}: start-up {start_up:.1f} s, next pass after {waited:.1f} s")  # pytest -s shows it
        assert waited <= INTERVAL_SECONDS + 1.5 * start_up, (passes(folder.path), _logs(folder.path))
    finally:
        serving.send_signal(signal.SIGTERM)
        serving.communicate(timeout=60)
    assert processes(folder.path) == []
    store = open_store(folder.path / "watchkeeper.duckdb", clock=time.time)
    assert store.query("SELECT step FROM samples ORDER BY step").rows["step"].to_list() == list(range(100))


def _kill(folder: Path, victim: str) -> None:
    """SIGKILL to the newest process of that kind, waiting for one if need be."""
    give_up = time.monotonic() + 120
    while time.monotonic() < give_up:
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                ours = f"HOME={folder}".encode() in (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if ours and victim in command:
                os.kill(int(entry.name), signal.SIGKILL)
                return
        time.sleep(0.1)
    raise AssertionError(f"no process {victim}")
