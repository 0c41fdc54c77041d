"""Thinning never touches an incident and never comes back as news; compaction loses nothing, killed at any moment."""

import math
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from flows.records import Attempt
from flows.store import Rule
from flows.store.retention import without

NOW = 1_700_000_000.0
LINE = [Attempt(1, 0.0, None, "start")]
LATER = datetime.fromtimestamp(NOW, UTC).replace(tzinfo=None) + timedelta(days=1)
RULE = Rule(LATER, 4)
STEPS = 40_000


def incident(name, onset, resolved):
    return {
        "run": "hero", "incident_id": name, "severity": 2, "title": name, "onset_step": onset, "detected_step": onset,
        "resolved_step": resolved, "status": "open" if resolved is None else "resolved",
    }  # fmt: skip


@pytest.fixture
def old(file_store, append):
    """Forty thousand steps, one spike, one NaN, and an incident from 20,000 to 20,100."""
    value = np.random.default_rng(5).normal(2, 0.1, STEPS)
    value[3_333], value[4_444] = 50.0, np.nan
    append(
        file_store,
        *((float(s), "train/loss", float(value[s])) for s in range(STEPS)),
        (0.0, "eval", 1.0),
        (9_000.0, "eval", 2.0),
    )
    found = {
        "run": "hero", "finding_id": "f", "incident_id": "i", "detector": "x", "kind": "level", "metric": "train/loss",
        "role": "loss",
        "onset_step": 20_000.0, "detected_step": 20_000.0, "magnitude": 1.0, "severity": 2, "episode": "e",
    }  # fmt: skip
    file_store.save_judgement(
        "hero", upto_batch=1, run_state="", states={}, incidents=[incident("i", 20_000.0, 20_100.0)], findings=[found]
    )
    return file_store


def thin(store, rule=RULE):
    return sum(store.thin("hero", part, rule) for part in store.thinnable("hero", rule))


def steps(store, name="train/loss"):
    return store.history("hero", name)["step"].to_numpy()


def test_old_samples_are_thinned_and_extremes_incidents_and_what_is_no_number_stay(old):
    removed = thin(old)
    left = steps(old)
    whole = 20_100 + 800 - (20_000 - 800)
    assert len(left) == STEPS - removed and 0.2 < (len(left) - whole) / (STEPS - whole) < 0.25
    around = left[(left >= 20_000 - 800) & (left < 20_100 + 800)]
    assert around.tolist() == list(np.arange(19_200.0, 20_900.0))
    assert {0.0, 3_333.0, 4_444.0} <= set(left.tolist())
    assert steps(old, "eval").tolist() == [0.0, 9_000.0]


def test_thinning_again_changes_nothing_and_is_told(old):
    removed = thin(old)
    assert thin(old) == 0 and old.thinnable("hero", RULE) == []
    told = old.coverage("hero").filter(check_name="retention")
    assert told["count"].to_list() == [removed]
    assert "thinned to one in 4, extremes kept" in told["reason"][0]
    ranges = old.query("SELECT first_step, last_step, keep_one_of FROM thinned ORDER BY first_step").rows.rows()
    assert ranges == [(0.0, 19_199.0, 4), (20_900.0, 39_999.0, 4)]


def test_what_is_young_unjudged_or_part_of_an_open_incident_stays_whole(old, append):
    early = Rule(datetime.fromtimestamp(NOW, UTC).replace(tzinfo=None), 4)
    assert old.thinnable("hero", early) == []
    append(old, *((float(s), "train/loss", 1.0) for s in range(STEPS, STEPS + 9_000)), cursor="d")
    assert max(part.last for part in old.thinnable("hero", RULE)) == math.nextafter(STEPS - 1, STEPS)
    old.save_judgement("hero", upto_batch=2, run_state="", states={}, incidents=[incident("j", 30_000.0, None)])
    assert max(part.last for part in old.thinnable("hero", RULE)) <= 30_000 - 800


def test_a_source_that_is_read_again_brings_nothing_back(old, append):
    thin(old)
    left = steps(old)
    again = append(old, *((float(s), "train/loss", 7.0) for s in range(10_000)), cursor="e")
    assert again.new_rows == 0 and np.array_equal(steps(old), left)
    assert len(old.unjudged("hero", 10_000_000).rows) == 0


def test_an_attempt_that_goes_back_behind_it_begins_without_a_memory_of_it(old, append):
    thin(old)
    line = [Attempt(1, 0.0, None, "start", 15_000.0), Attempt(2, 15_000.0, 1, "rewind")]
    append(old, (15_000.0, "train/loss", 2.0, 2), attempts=line, cursor="f")
    assert len(old.lineage_tail("hero", "train/loss", 2, 64)) == 0


@pytest.mark.parametrize(
    ("taken", "left"),
    [
        ([], [(0, 10)]),
        ([(2, 4), (3, 6)], [(0, 2), (6, 10)]),
        ([(-5, 1), (9, 99)], [(1, 9)]),
        ([(-1, 20)], []),
        ([(20, 30)], [(0, 10)]),
    ],
)
def test_a_range_without_others(taken, left):
    assert list(without((0, 10), taken)) == left


def everything(store, look):
    names = look(store, "SELECT table_name FROM duckdb_tables() ORDER BY table_name")["table_name"]
    order = {"sample_rows": "rowid"}
    return {n: look(store, f"SELECT * FROM {n} ORDER BY {order.get(n, 'ALL')}").rows() for n in names if n != "leases"}


def test_compaction_gives_the_room_back_and_everything_is_as_it_was(old, look):
    thin(old)
    before = everything(old, look)
    large, small = old.compact()
    assert small < large and old.path.stat().st_size == small
    assert repr(everything(old, look)) == repr(before)
    assert [p.name for p in old.path.parent.iterdir() if "compacting" in p.name or p.name.endswith(".wal")] == []
    assert old.size().samples == len(before["sample_rows"])


KILLED = """
import sys
from flows.store import open_store
store = open_store(sys.argv[1], clock=lambda: 0.0)
print("ready", flush=True)
while True:
    store.compact()
"""


@pytest.mark.faults
def test_compaction_may_be_killed_at_any_moment(old, look):
    before = repr(everything(old, look))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    for turn in range(8):
        child = subprocess.Popen([sys.executable, "-c", KILLED, str(old.path)], stdout=subprocess.PIPE, env=environment)
        child.stdout.readline()
        time.sleep(0.03 + 0.1 * turn)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert repr(everything(old, look)) == before
    old.compact()
    assert repr(everything(old, look)) == before


def test_a_store_knows_its_size_growth_and_age(old):
    size = old.size()
    assert size.samples == STEPS + 2 and size.oldest == datetime(2023, 11, 14, 22, 13, 20)
    assert size.daily == STEPS + 2 and 0 <= size.free < 1
