"""A restart that goes back: the time of the steps that were abandoned is no silence."""

from datetime import datetime, timedelta

import polars as pl
import pytest

from flows.playbook import load_playbook
from flows.records import SAMPLE_SCHEMA, Description
from flows.sources.roles import role_of
from flows.stages.attempts import Tracker, assign
from flows.stages.judge import judge
from flows.store import open_store


def stalls(pause, cuts):
    """Silences (onset, seconds) of a loss logged every 10 s to step 299 that after `pause` s goes on from step 100."""
    steps = [*range(300), *range(100, 200)]
    seconds = [10.0 * k + (pause if k >= 300 else 0.0) for k in range(len(steps))]
    start = datetime(2026, 1, 1)
    rows = [
        (float(s), start + timedelta(seconds=t), "train/loss", 2.0 + 1e-4 * s)
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
