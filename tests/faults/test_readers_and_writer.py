"""Twenty processes read in a loop while a writer commits every second."""

import json
import subprocess
import sys
import time

import pytest
from reading_loop import READ

from flows.records import Attempt, Description, Role
from flows.store import open_store


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["method", "sandbox"])
def test_twenty_reading_processes_and_a_writer_do_not_fail_each_other(tmp_path, rows, kind):
    path, seconds = tmp_path / "s.duckdb", 60
    store = open_store(path, clock=lambda: 0.0)
    store.register_run(Description("hero", "x", "jsonl", "_step"))
    first = [Attempt(1, 0.0, None, "start")]
    command = [sys.executable, "-c", READ, str(path), str(seconds), kind]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(20)]
    for reader in readers:
        reader.stdout.readline()
    waits = []
    for second in range(seconds):
        batch = rows(*((second * 100 + i, "loss", 1.0) for i in range(100)))
        before = time.monotonic()
        store.append("hero", batch, first, str(second), "t", {}, lambda name: Role("loss"))
        waits.append(time.monotonic() - before)
        time.sleep(max(0.0, 1.0 - waits[-1]))
    told = [json.loads(reader.communicate()[0]) for reader in readers]
    print(f"{kind}: writer at most {max(waits):.2f} s; {sum(reads for reads, _, _ in told)} reads,"
          f" the longest {max(longest for _, _, longest in told):.2f} s")  # fmt: skip
    assert [failures for _, failures, _ in told] == [[]] * 20
    assert store.metrics("hero")["samples"].to_list() == [100 * seconds]
    assert max(waits) <= 1.0
