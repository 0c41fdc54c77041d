import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flows.errors import StoreBusy
from flows.store import open_store
from flows.store.connection import Database
from flows.store.turnstile import turn

OPEN = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"

TURN = """
import sys
from pathlib import Path
from flows.store.turnstile import turn
with turn(Path(sys.argv[1]), writing=sys.argv[2] == "writer", patience_seconds=10):
    print("in", flush=True)
    sys.stdin.read()
"""

# appends until the system refuses to let the file grow, then shows that nothing is lost
FILL = """
import resource, sys
import numpy as np, polars as pl
from flows.errors import StoreFull
from flows.records import STORED_SCHEMA, Attempt, Description, Role
from flows.store import open_store

store = open_store(sys.argv[1], clock=lambda: 0.0)
store.register_run(Description("hero", "x", "jsonl", "_step"))
limit = 3_000_000
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
random, stored = np.random.default_rng(0), 0
for batch in range(40):
    frame = pl.DataFrame({"step": np.arange(20_000.0) + batch * 20_000, "value": random.normal(size=20_000)})
    frame = frame.with_columns(logged_at=None, name=pl.lit("loss"), attempt=1, late=False)
    frame = frame.select(list(STORED_SCHEMA)).cast(STORED_SCHEMA)
    try:
        store.append("hero", frame, [Attempt(1, 0.0, None, "start")], f"batch {batch}", "t", {}, Role)
    except StoreFull as error:
        print(error)
        break
    stored = batch + 1
print(stored)
"""


def start(code: str, *arguments: object) -> subprocess.Popen:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() in {"open\n", "in\n"}
    return child


def end(child: subprocess.Popen) -> None:
    child.communicate("")


def can_enter(path: Path, *, writing: bool) -> bool:
    try:
        with turn(path, writing=writing, patience_seconds=0.2):
            return True
    except StoreBusy:
        return False


def test_readers_go_in_together_and_a_writer_waits_for_them(tmp_path):
    path = tmp_path / "s.duckdb"
    reader = start(TURN, path, "reader")
    assert can_enter(path, writing=False) and not can_enter(path, writing=True)
    end(reader)
    assert can_enter(path, writing=True)


def test_a_writer_is_alone_and_a_killed_one_leaves_the_room(tmp_path):
    path = tmp_path / "s.duckdb"
    writer = start(TURN, path, "writer")
    assert not can_enter(path, writing=False) and not can_enter(path, writing=True)
    writer.kill()
    writer.wait()
    assert can_enter(path, writing=True)


def test_a_waiting_writer_is_not_overtaken_by_new_readers(tmp_path):
    path = tmp_path / "s.duckdb"
    reader = start(TURN, path, "reader")
    code = TURN.replace('print("in", flush=True)', 'print("got it", flush=True)')
    writer = subprocess.Popen(
        [sys.executable, "-c", code, path, "writer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    while can_enter(path, writing=False):
        pass  # the writer is still starting
    end(reader)
    assert writer.stdout.readline() == "got it\n"
    end(writer)


def test_who_waits_too_long_is_told_who_is_inside(tmp_path):
    path = tmp_path / "s.duckdb"
    writer = start(TURN, path, "writer")
    with pytest.raises(StoreBusy, match=rf"PID {writer.pid}"), turn(path, writing=True, patience_seconds=0.1):
        pass
    end(writer)


def test_threads_of_one_process_take_turns_too(file_store, append):
    threads = [threading.Thread(target=append, args=(file_store, (step, "loss", 1.0))) for step in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert file_store.metrics("hero")["samples"].to_list() == [8]


def test_a_foreign_program_that_holds_the_file_is_named(file_store):
    foreign = start(OPEN, file_store.path)
    impatient = Database(file_store.path, foreign_patience_seconds=0.2)
    with pytest.raises(StoreBusy, match=rf"\(PID {foreign.pid}\) has it open"), impatient.writing():
        pass
    with pytest.raises(StoreBusy, match=rf"PID {foreign.pid}"), impatient.reading():
        pass
    end(foreign)
    assert file_store.attempts("hero") == []


def test_a_foreign_program_that_leaves_in_time_does_no_harm(file_store):
    foreign = start(OPEN, file_store.path)
    threading.Timer(0.5, foreign.kill).start()
    assert file_store.attempts("hero") == []
    foreign.wait()


def test_a_full_disk_takes_the_append_back_and_loses_nothing(tmp_path):
    path = tmp_path / "s.duckdb"
    done = subprocess.run([sys.executable, "-c", FILL, str(path)], capture_output=True, text=True, check=True)
    message, stored = done.stdout.strip().splitlines()
    assert message.startswith(f"store {path}: no room on the disk; the pass was rolled back")
    assert 0 < int(stored) < 40
    store = open_store(path, clock=lambda: 0.0)
    assert store.pull_state("hero") == (f"batch {int(stored) - 1}", "t")
    assert store.metrics("hero")["samples"].to_list() == [20_000 * int(stored)]


def test_readers_can_use_a_folder_that_they_may_not_write_to(file_store, append):
    append(file_store, (0, "loss", 2.0))
    for lock in file_store.path.parent.glob("*.lock"):
        lock.unlink()
    # all is imported while it may still read the interpreter
    code = (
        "import os, sys\nfrom flows.store import open_store\n"
        "open_store(':memory:', clock=lambda: 0.0).runs()\n"
        "if os.getuid() == 0: os.setuid(65534)  # root may write anywhere\n"
        "print(open_store(sys.argv[1], clock=lambda: 0.0).history('hero', 'loss')['value'].to_list())"
    )
    file_store.path.parent.chmod(0o555)
    for folder in file_store.path.parents:
        if "pytest" in str(folder):
            folder.chmod(0o755)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, str(file_store.path)], capture_output=True, text=True, check=False
        )
    finally:
        file_store.path.parent.chmod(0o755)
    assert done.stdout == "[2.0]\n", done.stderr
