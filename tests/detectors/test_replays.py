"""Replayed steps against the first pass: in the detector, and through the store in any slices."""

import json
import math
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors import Finding, Recovery
from detectors.replays import scan
from flows.playbook import load_playbook
from flows.records import SAMPLE_SCHEMA, Description
from flows.sources.roles import role_of
from flows.stages.attempts import Tracker, assign
from flows.stages.judge import judge
from flows.store import open_store

SIZE = 256


def passes(seed=0, offset=0.0, paired=0.0005, size=SIZE, noise=0.01):
    """Steps, a first pass with noise, and a replay of the same data that is higher by `offset` (log)."""
    rng = np.random.default_rng(seed)
    step = np.arange(1000.0, 1000 + size)
    first = 3 * (step / 1000) ** -0.1 * np.exp(noise * rng.standard_normal(size))
    return step, first, first * np.exp(offset + paired * rng.standard_normal(size))


def told(step, first, again, role="loss", cuts=()):
    state, said = {}, []
    edges = [0, *cuts, len(step)]
    for a, b in pairwise(edges):
        found, state = scan(step[a:b], first[a:b], again[a:b], "m", role, state)
        said += found
    return said


def test_the_same_again_says_nothing():
    step, first, again = passes()
    assert told(step, first, again) == []
    assert told(step, first, first) == []


@pytest.mark.parametrize(("offset", "severity", "at"), [(0.004, 1, 16), (0.02, 2, 16), (-0.02, 2, 16)])
def test_a_lasting_offset_is_told_at_the_first_look(offset, severity, at):
    (found,) = told(*passes(offset=offset))
    assert (found.kind, found.severity, found.direction) == ("replay", severity, "up" if offset > 0 else "down")
    assert (found.onset_step, found.detected_step) == (1000.0, 1000.0 + at - 1)
    assert found.magnitude == pytest.approx(offset, abs=4e-4)
    assert found.evidence["paired"] < 0.1 * found.evidence["unpaired"]
    assert found.evidence["unpaired"] == pytest.approx(0.01 * math.sqrt(2), rel=0.5)


def test_an_offset_below_the_least_is_nothing_however_sure():
    assert told(*passes(offset=0.0015, paired=1e-5)) == []


def test_a_gradient_norm_needs_ten_times_as_much_and_is_never_more_than_a_note():
    assert told(*passes(offset=0.015, noise=0.1), role="grad_norm") == []
    (found,) = told(*passes(offset=0.05, noise=0.1), role="grad_norm")
    assert found.severity == 1


def test_an_offset_that_fades_recovers():
    step, first, again = passes()
    fades = again * np.exp(0.03 * np.exp(-np.arange(SIZE) / 12))
    found, back = told(step, first, fades)
    assert isinstance(found, Finding)
    assert back == Recovery("replays", "m", found.episode, 1063.0)


def test_a_first_pass_that_blew_up_is_no_mismatch():
    step, first, again = passes()
    assert told(step, np.where(step > 1040, 1.5 * first, first), again) == []
    assert told(step, np.where(step > 1012, 1.5 * first, first), again) == []


def test_other_data_is_an_annotation_from_64_pairs_on_and_told_once():
    step, first, _ = passes(seed=1)
    _, other, _ = passes(seed=2)
    found, over = told(step, first, other)
    assert (found.severity, found.direction, found.detected_step) == (0, "none", 1063.0)
    assert found.evidence["paired"] / found.evidence["unpaired"] == pytest.approx(1.0, abs=0.3)
    assert over == Recovery("replays", "m", found.episode, 1063.0)
    assert told(step, first, other, role="grad_norm") == []  # its chaos is no other data


def test_what_cannot_be_compared_is_left_out():
    step, first, again = passes(offset=0.02)
    first[::2], again[1::4] = np.nan, -1.0
    (found,) = told(step, first, again)
    assert (found.evidence["pairs"], found.detected_step) == (16, step[(np.arange(SIZE) % 4) == 3][15])
    assert told(step, np.full(SIZE, 2.0), np.full(SIZE, 2.1)) == []


def test_of_a_thousand_replays_of_the_same_or_of_other_data_none_is_alarming():
    alarms = {"same": 0, "other": 0, "apart": 0}
    for seed in range(1000):
        step, first, again = passes(seed, paired=0.0014)
        alarms["same"] += any(isinstance(each, Finding) for each in told(step, first, again))
        said = [each for each in told(step, first, passes(seed + 5000)[1]) if isinstance(each, Finding)]
        alarms["other"] += any(each.severity for each in said)
        alarms["apart"] += any(each.severity == 0 for each in said)
    assert alarms["same"] == 0
    assert alarms["other"] == 0
    assert alarms["apart"] > 980


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(0, SIZE), max_size=8).map(sorted), offset=st.sampled_from([0.0, 0.01]))
def test_slices_say_the_same_to_the_bit(cuts, offset):
    step, first, again = passes(3, offset)
    again[:40] *= 1.02
    assert told(step, first, again, cuts=cuts) == told(step, first, again)


def a_run(offset: float) -> pl.DataFrame:
    """500 steps, back to 400, and back again to 350, where the loss is higher by `offset` (log)."""
    rng = np.random.default_rng(5)
    value = 3 * np.exp(0.01 * rng.standard_normal(600))
    rows = []
    for attempt, steps in enumerate((range(500), range(400, 480), range(350, 600))):
        for s in steps:
            again = np.exp(0.0005 * rng.standard_normal() + (offset if attempt == 2 else 0.0))
            rows.append((float(s), None, "train/loss", float(value[s] * again)))
            rows.append((float(s), None, "eval/loss", 3.0))
    return pl.DataFrame(rows, schema=SAMPLE_SCHEMA, orient="row")


def judged(frames: list[pl.DataFrame]) -> list[str]:
    store = open_store(":memory:", clock=lambda: 1e9)
    store.register_run(Description("r", "made", "test", "step"))
    tracker = Tracker()
    for number, frame in enumerate(frames):
        rows = assign(frame, tracker, final=number == len(frames) - 1)
        store.append("r", rows, tracker.attempts, "c", tracker.dump(), {}, role_of)
        judge(store, "r", load_playbook, clock=lambda: 1e9)
    titles = [each["title"] for each in store.incidents("r")]
    rows = [
        {k: v for k, v in each.items() if k != "incident_id"}
        for each in store.findings("r")
        if each["detector"] == "replays"
    ]
    return [*titles, *(json.dumps(each, default=str, sort_keys=True) for each in rows)]


def test_through_the_store_each_attempt_is_compared_with_what_stood_before_it():
    assert not [line for line in judged([a_run(0.0)]) if "replays" in line]
    *titles, line = judged([a_run(0.01)])
    found = json.loads(line)
    assert (found["attempt"], found["onset_step"], found["detected_step"]) == (
        2,
        350.0,
        479.0,
    )  # what the run had reached
    assert (found["severity"], found["kind"]) == (2, "replay")
    assert found["magnitude"] == pytest.approx(0.01, abs=5e-4)
    assert any("train/loss is 1 % higher in the steps done again from 350 on than in the first" in t for t in titles)


def test_a_run_that_was_started_anew_restored_nothing_that_could_be_wrong():
    noise = np.random.default_rng(3).normal(0, 0.05, 300)
    rows = [(float(s), None, "train/loss", 2.5 * math.exp(noise[s])) for s in range(300)]
    again = [(step, at, name, value * 1.01) for step, at, name, value in rows]  # the same data in the same order
    assert not [line for line in judged([pl.DataFrame(rows + again, SAMPLE_SCHEMA, orient="row")]) if "replays" in line]
    later = [(step + 5_000, *rest) for step, *rest in rows + again]  # of a checkpoint, the same is a finding
    assert [line for line in judged([pl.DataFrame(later, SAMPLE_SCHEMA, orient="row")]) if "replays" in line]


@settings(max_examples=5, deadline=None)
@given(cuts=st.lists(st.integers(900, 1700), max_size=5))
def test_through_the_store_slices_say_the_same(cuts):
    frame = a_run(0.01)
    edges = [0, *sorted(set(cuts) & set(range(1, len(frame)))), len(frame)]
    assert judged([frame[a:b] for a, b in pairwise(edges)]) == judged([frame])
