"""Slope changes: at a known event, at a free point, and never because a curve bends."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

from detectors import Finding, Series, inspect
from detectors.hinges import best_kink, intervals, middle
from detectors.suite import advance
from detectors.window import Known
from flows.records import Event
from flows.stages.memory import Memory

SIZE = 12_000


def ar(size: int, phi: float, seed: int) -> np.ndarray:
    """Stationary AR(1) noise of unit scale."""
    shocks = np.random.default_rng([seed, 12]).standard_normal(size)
    shocks[1:] *= np.sqrt(1 - phi * phi)
    return np.asarray(lfilter([1.0], [1.0, -phi], shocks))


def bent(at: float = 6_000, before: float = 0.1, after: float = 0.6, noise: float = 0.05, seed: int = 0) -> np.ndarray:
    """A series whose log slope (per 10,000) changes at a step."""
    step = np.arange(SIZE)
    line = before * step + (after - before) * np.maximum(step - at, 0)
    return np.exp(line / 1e4 + noise * ar(SIZE, 0.5, seed))


def kinks(value: np.ndarray, events=(), role: str = "grad_norm") -> list[Finding]:
    answers = inspect(Series(np.arange(len(value), dtype=float), value, role=role), events=events)
    return [a for a in answers if isinstance(a, Finding) and a.detector == "kinks"]


@pytest.mark.parametrize("event", [{"step": 6_000, "kind": "deploy"}, Event("deploy", 6_000.0)])
def test_a_slope_that_changes_at_an_event_is_told_with_both_slopes(event):
    (found,) = [f for f in kinks(bent(noise=0.01), [event]) if f.evidence["event"]]
    evidence = found.evidence
    assert (found.severity, found.direction, found.onset_step, evidence["event"]) == (2, "up", 6_000, "deploy")
    assert found.detected_step < 8_000
    assert evidence["p"] < 1e-3
    assert evidence["slope_ratio"] > 1.4
    low, high = evidence["interval_per_10k"]
    assert low < evidence["slope_per_10k"] < high
    assert evidence["slope_per_10k"] - evidence["slope_before_per_10k"] == pytest.approx(0.5, abs=0.3)


def test_only_a_gradient_norm_that_turns_beyond_doubt_at_an_event_is_more_than_a_note():
    event = [{"step": 6_000, "kind": "deploy"}]
    told = [f for noise in (0.05, 0.1, 0.15) for f in kinks(bent(noise=noise), event) if f.evidence["event"]]
    assert {f.severity for f in told} == {1, 2}
    assert all((f.evidence["f"] >= 25) == (f.severity == 2) for f in told)
    (norm,) = [f for f in kinks(bent(noise=0.01), event, role="param_norm") if f.evidence["event"]]
    assert norm.severity == 1


def test_a_slope_that_changes_without_an_event_is_told_at_a_free_point():
    (found,) = kinks(bent())
    assert found.severity == 1
    assert abs(found.onset_step - 6_000) < 800
    assert found.evidence["f"] > found.evidence["critical"]


def test_an_event_that_changes_nothing_says_nothing():
    events = [{"step": step, "kind": "deploy"} for step in (3_000, 5_000, 7_000)]
    assert kinks(bent(after=0.1), events) == []


def test_routine_events_are_not_looked_at():
    with_event = kinks(bent(noise=0.01), [{"step": 6_000, "kind": "checkpoint"}])
    assert [f.evidence["event"] for f in with_event] == [""]


def test_a_rise_that_slows_down_at_an_event_is_an_annotation():
    found = kinks(bent(before=0.6, after=0.1, noise=0.01), [{"step": 6_000, "kind": "deploy"}])
    assert [(f.severity, f.direction) for f in found] == [(0, "down")]


@pytest.mark.parametrize("role", ["param_norm", "router_entropy", "max_logit"])
def test_a_smooth_bend_is_no_kink(role):
    step = np.arange(SIZE)
    value = np.exp(0.3 * (step / SIZE) ** 2 + 0.001 * ar(SIZE, 0.5, 1))
    assert kinks(value, role=role) == []
    assert kinks(1 / value, role=role) == []


@pytest.mark.parametrize("phi", [0.0, 0.9])
def test_noise_has_no_kinks(phi):
    for seed in range(4):
        assert kinks(np.exp(0.1 * ar(SIZE, phi, seed)), [{"step": 5_000, "kind": "deploy"}]) == []


def test_a_parameter_norm_that_grows_faster_is_told_and_one_that_grows_slower_is_not():
    assert [f.severity for f in kinks(bent(noise=0.002), role="param_norm")] == [1]
    assert kinks(bent(before=0.6, after=0.1, noise=0.002), role="param_norm") == []


def test_the_best_kink_lies_where_the_line_breaks():
    step = np.arange(80.0)
    value = np.maximum(step - 40, 0) + 0.01 * np.random.default_rng(0).standard_normal(80)
    kink = best_kink(step, value, middle(step))
    assert abs(kink.at - 40) <= 1
    assert kink.better
    assert kink.before == pytest.approx(0.0, abs=0.01)
    assert kink.after == pytest.approx(1.0, abs=0.01)
    before, after = intervals(step, value, kink.at)
    assert before[0] <= kink.before <= before[1]
    assert after[0] <= kink.after <= after[1]


@settings(max_examples=6, deadline=None)
@given(cuts=st.lists(st.integers(0, SIZE), max_size=5))
def test_slices_with_events_say_the_same_to_the_bit(cuts):
    step, value = np.arange(SIZE, dtype=float), bent(noise=0.01)
    events = [Known(3_000.0, "deploy"), Known(6_000.0, "data_mix")]

    def judged(edges: list[int]) -> list[str]:
        memory, out, before = Memory(), [], 0
        for cut in [*edges, SIZE]:
            memory = Memory.load(memory.dump())
            memory.take(step[before:cut], value[before:cut], step[before:cut])
            said, memory.states, memory.start = advance(
                memory.step, memory.value, memory.seconds, memory.first, memory.start, memory.states,
                name="m", role="param_norm", events=events,
            )  # fmt: skip
            out += [repr(pair) for pair in sorted(said, key=lambda pair: pair[0]) if pair[0] >= memory.judged]
            memory.judged, before = memory.end, cut
            memory.forget()
        return out

    whole = judged([])
    assert any("kinks" in each for each in whole)
    assert judged(sorted(cuts)) == whole
