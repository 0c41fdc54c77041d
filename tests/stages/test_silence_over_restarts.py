"""A restart that goes back: the time of the steps that were abandoned is no silence."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from flows.playbook import load_playbook
from flows.records import SAMPLE_SCHEMA, Description
from flows.sources.roles import role_of
from flows.stages.attempts import Tracker, assign
from flows.stages.document import pending
from flows.stages.judge import judge
from flows.store import open_store

START = datetime(2026, 1, 1)


def stalls(pause, cuts):
    """Silences (onset, seconds) of a loss logged every 10 s to step 299 that after `pause` s goes on from step 100."""
    steps = [*range(300), *range(100, 200)]
    seconds = [10.0 * k + (pause if k >= 300 else 0.0) for k in range(len(steps))]
    rows = [
        (float(s), START + timedelta(seconds=t), "train/loss", 2.0 + 1e-4 * s)
        for s, t in zip(steps, seconds, strict=True)
    ]
    frame = pl.DataFrame(rows, schema=SAMPLE_SCHEMA, orient="row")
    store, tracker = open_store(":memory:", clock=lambda: 1e9), Tracker()
    store.register_run(Description("r", "made", "test", "step"))
    for first, last in zip([0, *cuts], [*cuts, len(frame)], strict=True):
        placed = assign(frame[first:last], tracker, final=last == len(frame))
        store.append("r", placed, tracker.attempts, "c", tracker.dump(), {}, role_of)
        judge(store, "r", load_playbook, clock=lambda: 1e9)
    return [(f["onset_step"], f["magnitude"]) for f in store.findings("r") if f["kind"] == "stall"]


@pytest.mark.parametrize("cuts", [(), (300,), (150, 303, 360)])
def test_only_the_pause_itself_is_told(cuts):
    assert stalls(0.0, cuts) == []
    assert stalls(2_000.0, cuts) == [(99.0, 2_010.0)]


class Live:
    """A run that logs every 10 s, watched as it goes."""

    def __init__(self):
        self.store, self.tracker = open_store(":memory:", clock=lambda: 1e9), Tracker()
        self.store.register_run(Description("r", "made", "test", "step"))

    def logs(self, steps, late=0.0):
        rows = [(float(s), START + timedelta(seconds=10.0 * s + late), "train/loss", 2.0 + 1e-4 * s) for s in steps]
        placed = assign(pl.DataFrame(rows, schema=SAMPLE_SCHEMA, orient="row"), self.tracker)
        self.store.append("r", placed, self.tracker.attempts, "c", self.tracker.dump(), {}, role_of)
        return self

    def at(self, second):
        """A pass at that second of the run: what it changes, and what is pending behind it."""
        now = START.replace(tzinfo=UTC).timestamp() + second
        found = judge(self.store, "r", load_playbook, clock=lambda: now, live=True)
        return [each.what for each in found.transitions], [line for _, line in pending(self.store)]

    def log(self):
        return [(each.kind, each.step, each.why, each.silent) for each in self.store.log("r")]


def test_a_silence_is_pending_from_half_of_what_makes_it_one_and_ends_with_the_next_sample():
    run = Live().logs(range(100))
    assert run.at(990 + 400) == ([], [])
    line = "no sample of train/loss for {} min of 15 min, since step 99"
    assert run.at(990 + 480) == ([], [line.format(8)])
    assert run.at(990 + 840) == ([], [line.format(14)])
    run.logs(range(100, 110), late=830.0)
    assert run.at(2_000) == ([], [])
    assert run.log() == [
        ("pending", 99.0, "no sample of train/loss for 8 min of 15 min", True),
        ("dropped", 99.0, "no sample of train/loss for 14 min of 15 min: samples come again", True),
    ]


def test_a_silence_that_lasts_becomes_the_incident_of_its_id():
    run = Live().logs(range(100))
    run.at(990 + 480)
    (waits,) = run.store.log("r")
    assert run.at(990 + 901) == (["opened"], [])
    assert [row["incident_id"] for row in run.store.incidents("r")] == [waits.incident_id]
    assert len(run.log()) == 1  # its next word is that it has opened
