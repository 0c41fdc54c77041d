"""Experts without tokens: named, counted, and only after long enough."""

import math

import numpy as np
import pytest

from detectors import Finding, Recovery, idle
from detectors.idle import scan

EXPERTS, BLOCKS = 16, 200


def loads(seed=0):
    rng = np.random.default_rng(seed)
    return np.exp(0.3 * rng.standard_normal((EXPERTS, 1)) + 0.1 * rng.standard_normal((EXPERTS, BLOCKS))) / EXPERTS


def judged(values, names="moe/layer0/expert{}_load", first=0, state=None):
    at = first + np.arange(values.shape[1])
    new = {names.format(k): np.column_stack([at, at * 16.0 + 15, row]) for k, row in enumerate(values)}
    return scan(new, {name: ("router_load", name.split("/", 1)[1]) for name in new}, state or {})


def test_an_expert_below_a_tenth_of_the_mean_is_told_after_a_thousand_steps():
    values = loads()
    values[5, 50:150] = 0.05 / EXPERTS
    (found, back), _ = judged(values)
    assert (found.severity, found.metric, found.direction) == (2, "moe/layer0/expert5_load", "down")
    assert found.onset_step == 49 * 16 + 15
    assert found.detected_step == pytest.approx(found.onset_step + 1_000, abs=16)
    assert found.magnitude == pytest.approx(math.log(0.05), abs=0.15)
    assert (found.evidence["experts"], found.evidence["experts_idle"]) == (EXPERTS, 1)
    assert isinstance(back, Recovery)
    assert back.step == 150 * 16 + 15


def test_twice_as_many_are_told_again_under_the_same_episode():
    values = loads()
    for expert, begun in ((5, 20), (6, 40), (7, 60), (8, 62)):
        values[expert, begun:] = 0.0
    said, _ = judged(values)
    assert [each.evidence["experts_idle"] for each in said] == [1, 2, 4]
    assert {each.episode for each in said} == {said[0].episode}


def test_less_than_a_thousand_steps_or_more_than_a_tenth_is_nothing():
    values = loads()
    values[5, 50:112] = 0.0
    values[6] = 0.15 / EXPERTS
    assert judged(values)[0] == []


def test_few_experts_and_layers_that_are_no_experts_are_nothing():
    values = loads()
    values[2, 20:] = 0.0
    assert judged(values[:7])[0] == []
    assert judged(values, names="moe/layer_{}/load")[0] == []


def test_slices_say_the_same_and_a_restart_wakes_nobody():
    values = loads()
    values[5, 20:] = 0.0
    whole = judged(values)[0]
    state, said = {}, []
    for a, b in ((0, 31), (31, 32), (32, 83), (83, BLOCKS)):
        found, state = judged(values[:, a:b], first=a, state=state)
        said += found
    assert said == whole
    early = judged(values[:, :60])[1]
    after = judged(values[:, 60:], first=60, state=idle.carry(early, 60 * 16.0))[0]
    assert [(f.metric, f.onset_step) for f in after if isinstance(f, Finding)] == [("moe/layer0/expert5_load", 319.0)]
