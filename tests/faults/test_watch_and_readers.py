"""A watch that passes every second while twenty processes ask in a loop: nothing fails, and passes take hardly longer."""

import json
import os
import statistics
import subprocess
import sys
import time

import pytest
from reading_loop import READ

from flows.config import load_config
from flows.store import open_store
from flows.wiring import one_pass

ALONE, TOGETHER = 60, int(os.environ.get("WATCHKEEPER_READERS_SECONDS", "300"))


@pytest.mark.faults
def test_passes_beside_twenty_readers(tmp_path):
    log = tmp_path / "run.jsonl"
    log.write_text("")
    (tmp_path / "watchkeeper.toml").write_text('[[run]]\nsource = "run.jsonl"\nname = "hero"\n')
    step = 0

    def passes(seconds):
        nonlocal step
        times = []
        for _ in range(seconds):
            with log.open("a") as file:
                lines = ({"step": step + i, "train/loss": 2.0, "grad/norm/total": 0.4} for i in range(100))
                file.writelines(json.dumps(line) + "\n" for line in lines)
            step += 100
            before = time.monotonic()
            report = one_pass(load_config(tmp_path / "watchkeeper.toml"))
            times.append(time.monotonic() - before)
            assert report.failures == []
            time.sleep(max(0.0, 1.0 - times[-1]))
        return times

    passes(5)
    alone = passes(ALONE)
    command = [sys.executable, "-c", READ, str(tmp_path / "watchkeeper.duckdb"), str(TOGETHER), "sandbox"]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(20)]
    for reader in readers:
        reader.stdout.readline()
    together = passes(TOGETHER)
    told = [json.loads(reader.communicate()[0]) for reader in readers]
    usual, beside = statistics.median(alone), statistics.median(together)
    print(f"a pass {usual:.3f} s alone, {beside:.3f} s beside readers ({beside / usual - 1:+.0%}), at most {max(together):.2f} s;"
          f" {sum(reads for reads, _, _ in told)} reads, the longest {max(longest for _, _, longest in told):.2f} s")  # fmt: skip
    assert [failures for _, failures, _ in told] == [[]] * 20
    assert open_store(tmp_path / "watchkeeper.duckdb", clock=lambda: 0.0).metrics("hero")["samples"].to_list() == [
        step,
        step,
    ]
    assert beside <= 1.2 * usual
