"""Restarts against the run's own rate, in the detector and through the store."""

import math

import numpy as np
import polars as pl
import pytest

from detectors import Finding
from detectors.restarts import scan
from flows.playbook import load_playbook
from flows.records import SAMPLE_SCHEMA, Description
from flows.sources.roles import role_of
from flows.stages.attempts import Tracker, assign
from flows.stages.judge import judge
from flows.store import open_store


def told(work):
    """Numbers of the restarts at which something was said; each attempt went so many steps and lost 50."""
    state, began, out = {}, 0.0, []
    for number, steps in enumerate(work):
        said, state = scan(began, began + steps, state)
        began += steps - 50
        out += [(number, found) for found in said if isinstance(found, Finding)]
    return out


def test_five_in_the_time_of_half_a_one_are_a_note_at_the_fifth():
    ((number, found),) = told([5000] * 4 + [500] * 5)
    assert (number, found.kind, found.severity, found.metric) == (8, "level", 1, "")
    assert found.evidence["of_samples"] == 2500
    assert found.evidence["usual"] == pytest.approx(5 / 20_000 * 2500)
    assert found.magnitude == pytest.approx(math.log(5 / found.evidence["usual"]))


def test_a_rate_that_lasts_is_told_once_and_the_next_one_again():
    assert [number for number, _ in told([50_000] * 4 + [2000] * 20 + [52] * 5)] == [8, 28]


@pytest.mark.parametrize("work", [[5000] * 40, [200] * 40, [60] * 5, [5000] * 4 + [500] * 4])
def test_a_steady_rate_or_too_few_are_quiet(work):
    assert told(work) == []


def test_restarts_by_chance_are_quiet():
    rng = np.random.default_rng(0)
    assert sum(len(told(rng.exponential(1000, 100) + 51)) for _ in range(20)) <= 1


@pytest.mark.parametrize("per", [10_000, 37])
def test_the_run_restarts_more_often_through_the_store_however_it_is_cut(per):
    steps, began = [], 0
    for length in [400, 400, 400, 20, 20, 20, 20, 20, 60]:
        steps += range(began, began + length)
        began += length - 5
    frame = pl.DataFrame([(float(s), None, "train/loss", 2.0) for s in steps], schema=SAMPLE_SCHEMA, orient="row")
    store, tracker = open_store(":memory:", clock=lambda: 1e9), Tracker()
    store.register_run(Description("r", "made", "test", "step"))
    for first in range(0, len(frame), per):
        placed = assign(frame[first : first + per], tracker, final=first + per >= len(frame))
        store.append("r", placed, tracker.attempts, "c", tracker.dump(), {}, role_of)
        judge(store, "r", load_playbook, clock=lambda: 1e9)
    (row,) = [row for row in store.findings("r") if row["detector"] == "restarts"]
    assert (row["detected_step"], row["severity"]) == (1264.0, 1)
    (incident,) = [each for each in store.incidents("r") if each["incident_id"] == row["incident_id"]]
    assert "restarted 5 times in" in incident["title"] or incident["pattern"] == "failure_rate_shift"
