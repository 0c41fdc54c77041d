"""A speed that slides away: what is said when, and what is another detector's or nobody's."""

import numpy as np
import pytest

from detectors import Finding, Recovery, Series, inspect


def speed(size=6000, scatter=0.01, seed=3):
    return 40.0 * np.exp(scatter * np.random.default_rng(seed).standard_normal(size))


def said(value, role="mfu", events=()):
    answers = inspect(Series(np.arange(1.0, len(value) + 1), value, role=role), events)
    mine = [a for a in answers if getattr(a, "detector", "") == "slide"]
    return [a for a in mine if isinstance(a, Finding)], [a for a in mine if isinstance(a, Recovery)]


def slid(value, begin=2500, share=0.05, over=1000):
    """A share of the speed is lost in every `over` samples from one on."""
    lost = share * np.maximum(np.arange(len(value)) - begin, 0) / over
    return value * (1 - lost)


@pytest.mark.parametrize("seed", range(4))
def test_five_percent_in_a_thousand_steps_is_told_while_it_goes_on(seed):
    value = slid(speed(4400, seed=seed))
    (found,) = said(value)[0]
    assert (found.kind, found.severity, found.direction) == ("trend", 2, "down")
    assert 2200 <= found.onset_step <= 2800
    assert 3500 <= found.detected_step <= 3850
    assert found.magnitude == pytest.approx(-0.06, abs=0.02)
    assert found.evidence["before"] == pytest.approx(40, rel=0.01)


def test_a_step_time_that_creeps_up_is_the_same():
    (found,) = said(1 / slid(speed(4400)), role="step_time")[0]
    assert (found.direction, found.severity) == ("up", 2)
    assert found.magnitude == pytest.approx(0.065, abs=0.02)


def test_a_step_noise_and_a_wandering_machine_are_no_slide():
    value = speed()
    value[3000:] *= 0.85
    assert said(value)[0] == []
    for seed in range(8):
        assert said(speed(20_000, scatter=0.05, seed=seed))[0] == []
    rng = np.random.default_rng(9)
    wander = np.repeat(0.01 * rng.standard_normal(20_000 // 200), 200)
    assert said(speed(20_000) * np.exp(wander))[0] == []


def test_the_warm_up_of_a_young_run_is_none_and_much_of_it_is():
    value = speed(4000)
    assert said(value * (1 - 0.06 * np.minimum(np.arange(4000) / 1500, 1)))[0] == []
    assert len(said(value * (1 - 0.14 * np.minimum(np.arange(4000) / 1500, 1)))[0]) == 1


def test_a_declared_change_begins_anew():
    value = slid(speed(5200), share=0.06)
    assert len(said(value)[0]) == 1
    (found,) = said(value, events=[{"kind": "sequence_length", "step": 3100.0}])[0]
    assert found.onset_step > 3100
    assert found.detected_step > said(value)[0][0].detected_step
    assert said(value, events=[{"kind": "eval", "step": 3100.0}]) == said(value)


def test_it_is_over_when_a_whole_chunk_is_back():
    value = slid(speed())
    value[4200:] = speed()[4200:]
    (found,), (end,) = said(value)
    assert found.episode == end.episode
    assert 4200 + 256 <= end.step <= 4200 + 2 * 256
