"""Waiting for data as a share of the step: what is slow storage, and what is nothing."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors import Finding, Recovery
from detectors.starved import carry, scan
from flows.stages.memory import decode, encode

BLOCKS = 80
LEAVES = {
    "throughput/loading_time": ("data_wait", ""),
    "throughput/duration": ("step_time", ""),
    "data_loading(%)": ("data_wait", ""),
}


def blocks(value):
    at = np.arange(BLOCKS)
    return np.column_stack([at, at * 16.0 + 15, np.broadcast_to(value, BLOCKS)])


def a_run(wait, step=2.0):
    return {"throughput/loading_time": blocks(wait), "throughput/duration": blocks(step)}


def waits(level=0.02, slow=0.02, first=40, stop=BLOCKS, seed=0):
    value = np.full(BLOCKS, level)
    value[first:stop] = slow
    return value * np.exp(0.3 * np.random.default_rng(seed).standard_normal(BLOCKS))


def test_a_step_that_waits_a_fifth_of_its_time_is_a_note_and_then_asks_for_a_look():
    note, look, back = scan(a_run(waits(slow=1.0, stop=60)), LEAVES, {})[0]
    assert (note.kind, note.severity, note.role, note.direction) == ("level", 1, "data_wait", "up")
    assert (note.onset_step, note.detected_step) == (39 * 16 + 15, 42 * 16 + 15)
    assert note.evidence["before"] == pytest.approx(0.01, rel=0.3)
    assert (look.severity, look.episode, look.evidence["samples_out"]) == (2, note.episode, 8 * 16)
    assert isinstance(back, Recovery)
    assert back.step == 62 * 16 + 15


def test_a_wait_in_percent_needs_no_step_time():
    ((note, *_), _) = scan({"data_loading(%)": blocks(waits(2.0, 12.0))}, LEAVES, {})
    assert (note.severity, note.evidence["after"]) == (1, pytest.approx(0.12, rel=0.7))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "run",
    [
        lambda seed: a_run(waits(seed=seed)),
        lambda seed: a_run(waits(slow=0.06, seed=seed)),
        lambda seed: a_run(waits(0.4, 0.48, seed=seed)),
        lambda seed: a_run(waits(20.0, 500.0, seed=seed)),
        lambda seed: a_run(waits(slow=1.0, stop=42, seed=seed)),
        lambda seed: {"throughput/loading_time": blocks(waits(slow=1.0, seed=seed))},
    ],
    ids=["steady", "3 % of the step", "a fifth more", "milliseconds", "two blocks", "no step time"],
)
def test_what_costs_nothing_or_cannot_be_known_is_quiet(run, seed):
    assert scan(run(seed), LEAVES, {})[0] == []


@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(0, BLOCKS), max_size=6).map(sorted), late=st.integers(0, 3))
def test_slices_say_the_same_though_the_step_time_comes_late(cuts, late):
    run = a_run(waits(slow=1.0, stop=60))
    state, said = {}, []
    for low, high in zip([0, *cuts], [*cuts, BLOCKS], strict=True):
        state = json.loads(json.dumps(state, default=encode), object_hook=decode)
        begin, end = max(low - late, 0) if low else 0, max(high - late, 0) if high < BLOCKS else BLOCKS
        ends = {"throughput/loading_time": (low, high), "throughput/duration": (begin, end)}
        part = {name: run[name][first:stop] for name, (first, stop) in ends.items()}
        answers, state = scan({name: rows for name, rows in part.items() if len(rows)}, LEAVES, state)
        said += answers
    assert said == scan(run, LEAVES, {})[0]


def test_a_restart_keeps_the_usual_share():
    run = a_run(waits(slow=1.0))
    _, state = scan({name: rows[:38] for name, rows in run.items()}, LEAVES, {})
    said, _ = scan({name: rows[40:] for name, rows in run.items()}, LEAVES, carry(state, 30 * 16.0))
    assert next(each.detected_step for each in said if isinstance(each, Finding)) == 42 * 16 + 15
