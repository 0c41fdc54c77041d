import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.store import open_store

# pull and judge as a pass does, a hundred rows at a time, going on where the store says that it stands
PASSES = """
import sys
import polars as pl
from flows.records import STORED_SCHEMA, Attempt, Description, Role
from flows.store import open_store

store = open_store(sys.argv[1], clock=lambda: 0.0)
store.register_run(Description("hero", "x", "jsonl", "_step"))
print("ready", flush=True)
while True:
    start = int(store.pull_state("hero")[0] or 0)
    frame = pl.DataFrame({"step": [float(start + i) for i in range(100)]}).with_columns(
        logged_at=None, name=pl.lit("loss"), value=pl.col("step") * 2, attempt=1, late=False)
    frame = frame.select(list(STORED_SCHEMA)).cast(STORED_SCHEMA)
    store.append("hero", frame, [Attempt(1, 0.0, None, "start")], str(start + 100), "t", {}, lambda name: Role("loss"))
    found = store.unjudged("hero", 1000)
    judged = int(store.run_state("hero") or 0)
    store.save_judgement("hero", upto_batch=found.upto_batch, run_state=str(judged + len(found.rows)), states={},
        findings=[{"finding_id": f"f{judged}", "detector": "d", "kind": "spike", "metric": "loss", "role": "loss",
                   "onset_step": judged, "detected_step": judged, "magnitude": 1.0, "severity": 1}],
        deliveries=[{"delivery_id": f"d{judged}", "transition": "opened", "channel": "c", "message": "{}",
                     "message_id": "m"}])
"""


def killed_passes(path: Path, kills: int, chance: random.Random) -> None:
    for _ in range(kills):
        child = subprocess.Popen([sys.executable, "-c", PASSES, str(path)], stdout=subprocess.PIPE)
        child.stdout.readline()
        time.sleep(chance.uniform(0, 0.6))
        child.send_signal(signal.SIGKILL)
        child.wait()
        agrees_with_itself(path)


def agrees_with_itself(path: Path) -> None:
    store = open_store(path, clock=lambda: 0.0)
    cursor = int(store.pull_state("hero")[0] or 0)
    values = store.history("hero", "loss") if cursor else None
    assert cursor == 0 or values["step"].to_list() == [float(step) for step in range(cursor)]
    assert cursor == 0 or values["value"].to_list() == [step * 2.0 for step in range(cursor)]
    judged = int(store.run_state("hero") or 0)
    assert judged + len(store.unjudged("hero", 10**9).rows) == cursor
    said = sorted(row["finding_id"] for row in store.findings("hero"))
    assert len(set(said)) == len(said)
    assert sorted(row["delivery_id"].replace("d", "f") for row in store.pending_deliveries()) == said


def test_five_kills_at_random_moments_lose_and_double_nothing(tmp_path):
    killed_passes(tmp_path / "s.duckdb", kills=5, chance=random.Random(1))


@pytest.mark.faults
def test_fifty_kills_at_random_moments_lose_and_double_nothing(tmp_path):
    killed_passes(tmp_path / "s.duckdb", kills=50, chance=random.Random(2))
