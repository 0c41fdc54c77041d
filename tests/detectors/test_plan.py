"""A run that is not where its plan has it."""

import math

import numpy as np
import pytest

from detectors.finding import Finding, Recovery
from detectors.plan import Plan, Rate, carry, scan

RATE = Rate(0.01, warmup=200, end=2400, final=0.0005, shape="linear")


def said(step, value, name, role, plan, state=None):
    return scan(np.asarray(step, float), np.asarray(value, float), name, role, plan, state or {})


@pytest.mark.parametrize("numbered_from", [0, 1])
@pytest.mark.parametrize("digits", [1, 2, 3, 8])
def test_a_rate_on_its_plan_is_silent_however_it_is_counted_and_printed(numbered_from, digits):
    step = np.arange(1.0, 2400)
    value = [float(f"{each:.{digits}e}") for each in RATE.at(step)]
    assert said(step - 1 + numbered_from, value, "train/lr", "learning_rate", Plan(rate=RATE))[0] == []


def test_shapes_of_a_decay():
    at = np.array([0.0, 100, 200, 600, 1000])
    for shape, middle in (("linear", 0.55), ("cosine", 0.55), ("sqrt", 0.1 + 0.9 * (1 - math.sqrt(0.5)))):
        rate = Rate(1.0, 100, 200, 1000, 0.1, shape)
        assert rate.at(at) == pytest.approx([0, 1, 1, middle, 0.1]), shape
    assert Rate(1.0, 100).at(at) == pytest.approx([0, 1, 1, 1, 1])


@pytest.mark.parametrize(("factor", "severity"), [(1.05, 2), (0.95, 2), (1.5, 3), (0.3, 3), (2.5, 4)])
def test_a_rate_off_its_plan_is_told_at_the_third_sample_and_is_over_at_the_third_on_it(factor, severity):
    step = np.arange(500.0)
    value = RATE.at(step)
    value[300:340] *= factor
    found, back = said(step, value, "optim/learning_rate", "learning_rate", Plan(rate=RATE))[0]
    assert (found.onset_step, found.detected_step, found.severity, found.kind) == (300, 302, severity, "schedule")
    assert found.magnitude == pytest.approx(math.log(factor), abs=0.01)
    assert isinstance(back, Recovery) and back.step == 342


def test_two_samples_off_are_silent():
    step = np.arange(500.0)
    value = RATE.at(step)
    value[300:302] *= 3
    assert said(step, value, "lr", "learning_rate", Plan(rate=RATE))[0] == []


def test_the_rate_of_a_group_is_held_to_its_own_factor():
    step = np.arange(500.0)
    value = RATE.at(step + 1) / 5
    state = said(step, value, "optim/adam_lr", "learning_rate", Plan(rate=RATE))
    assert state[0] == []
    value[400:] *= 2
    (found,) = said(step, value, "optim/adam_lr", "learning_rate", Plan(rate=RATE))[0]
    assert found.onset_step == 400
    (found,) = said(step[400:], value[400:], "optim/adam_lr", "learning_rate", Plan(rate=RATE), carry(state[1]))[0]
    assert found.onset_step == 400


def test_batch_stages_that_come_late_or_not_at_all():
    plan = Plan(stages={"batch_size": ((0, 4), (100, 8))})
    step = np.arange(200.0)
    for at, expected in ((99, 0), (100, 0), (101, 0), (106, 1), (90, 1), (500, 1)):
        found = [
            f for f in said(step, np.where(step < at, 4, 8), "bs", "batch_size", plan)[0] if isinstance(f, Finding)
        ]
        assert len(found) == expected, at
        assert all(f.severity == 3 for f in found)


def test_tokens_a_step_by_a_count_with_stages():
    plan = Plan(stages={"tokens": ((0, 256), (100, 512))})
    step = np.arange(200.0)
    count = np.cumsum(np.where(step < 100, 256, 512))
    assert said(step, count, "tokens", "tokens", plan)[0] == []
    assert said(step[::10], count[::10], "tokens", "tokens", plan)[0] == []
    wrong = np.cumsum(np.where(step < 100, 256, 511))
    (found,) = said(step, wrong, "tokens", "tokens", plan)[0]
    assert found.onset_step == 102  # a step more or less is no deviation
    assert (found.evidence["after"], found.evidence["plan"]) == (511, pytest.approx(512, abs=2))


def test_the_end_of_the_plan_and_an_old_checkpoint():
    step = np.arange(120.0)
    (found,) = said(step, step, "loss", "loss", Plan(steps=100))[0]
    assert (found.onset_step, found.detected_step, found.severity) == (102, 104, 2)
    saved = np.minimum(step // 20 * 20, 40)
    (found,) = said(step, saved, "ckpt/last_step", "checkpoint", Plan(checkpoint_interval=20))[0]
    assert (found.kind, found.severity, found.detected_step) == ("stall", 3, 81)
    (found,) = said(step, step - saved, "ckpt/age", "checkpoint", Plan(checkpoint_interval=20))[0]
    assert found.detected_step == 81


def test_what_was_not_planned_is_not_judged():
    assert said(range(50), [7.0] * 50, "bs", "batch_size", Plan(steps=10))[0] == []
