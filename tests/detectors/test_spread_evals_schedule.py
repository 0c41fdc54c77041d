"""The spread of the loss, evaluations off their course, rates that jump: what is said, where, how loud."""

import numpy as np
import pytest

from detectors import Finding, Recovery, Series, inspect


def said(role, value, kinds, step=None):
    step = np.arange(len(value), dtype=float) if step is None else step
    answers = inspect(Series(step, np.asarray(value, dtype=float), role=role))
    findings = [a for a in answers if isinstance(a, Finding) and a.kind in kinds]
    return findings, [a for a in answers if isinstance(a, Recovery)]


def loss(size, seed, widths):
    """A falling loss with 1 % of white noise, wider by the factor of each (first, last, factor)."""
    noise = 0.01 * np.random.default_rng(seed).standard_normal(size)
    for first, last, factor in widths:
        noise[first:last] *= factor
    return (1.7 + 8 * np.arange(1, size + 1) ** -0.35) * np.exp(noise)


@pytest.mark.parametrize("seed", range(4))
def test_a_loss_whose_noise_widens_is_s2_at_its_true_onset(seed):
    (finding,), _ = said("loss", loss(8000, seed, [(4300, 8000, 1.6)]), {"variance"})
    assert (finding.severity, finding.direction) == (2, "up")
    assert abs(finding.onset_step - 4300) <= 128
    assert 4300 < finding.detected_step <= 4300 + 256
    assert 1.3 < finding.evidence["ratio"] < 2.0  # told from three blocks on


def test_a_loss_whose_noise_narrows_is_annotated():
    (finding,), _ = said("loss", loss(8000, 0, [(4300, 8000, 0.6)]), {"variance"})
    assert (finding.severity, finding.direction) == (0, "down")


def test_a_spread_that_comes_back_recovers():
    (finding,), recoveries = said("loss", loss(12_000, 1, [(4300, 6500, 1.8)]), {"variance"})
    (end,) = [r for r in recoveries if r.detector == "spread"]
    assert finding.episode == end.episode
    assert 6500 < end.step <= 6500 + 5 * 256


@pytest.mark.parametrize("seed", range(4))
def test_a_steady_spread_says_nothing(seed):
    assert said("loss", loss(20_000, seed, []), {"variance"})[0] == []


STEPS = 1000.0 * np.arange(1, 41)
COURSE = 1.7 + 40 * STEPS**-0.4


def evaluations(seed=0, noise=0.001):
    return COURSE * np.exp(noise * np.random.default_rng(seed).standard_normal(len(COURSE)))


def test_two_evaluations_off_their_course_are_a_level():
    value = evaluations()
    value[20:] *= 1.04
    (finding,), _ = said("eval_loss", value, {"level"}, STEPS)
    assert (finding.severity, finding.direction) == (2, "up")
    assert (finding.onset_step, finding.detected_step) == (STEPS[20], STEPS[21])
    assert abs(finding.magnitude - np.log(1.04)) < 0.01


def test_one_bad_evaluation_is_no_level():
    value = evaluations()
    value[20] *= 1.2
    assert said("eval_loss", value, {"level"}, STEPS)[0] == []


@pytest.mark.parametrize("seed", range(6))
def test_a_course_that_bends_says_nothing(seed):
    assert said("eval_loss", evaluations(seed, 0.002), {"level"}, STEPS)[0] == []


def test_evaluations_that_come_back_recover():
    value = evaluations()
    value[20:26] *= 1.05
    _, recoveries = said("eval_loss", value, {"level"}, STEPS)
    assert STEPS[27] in [r.step for r in recoveries if r.detector == "evals"]


@pytest.mark.parametrize(("factor", "severity"), [(0.7, 2), (1.4, 0)])
def test_a_score_that_falls_is_s2_and_one_that_rises_is_annotated(factor, severity):
    value = 0.5 + 0.002 * np.random.default_rng(3).standard_normal(30)
    value[15:] *= factor
    (finding,), _ = said("eval_score", value, {"level"})
    assert (finding.severity, finding.onset_step) == (severity, 15)


COSINE = 1e-3 * (1 + np.cos(np.pi * np.arange(1000) / 1000)) / 2


@pytest.mark.parametrize(("factor", "severity", "direction"), [(10.0, 2, "up"), (0.1, 1, "down")])
def test_a_rate_that_jumps_is_told_at_its_second_sample(factor, severity, direction):
    rate = COSINE.copy()
    rate[500:] *= factor
    (finding,), _ = said("learning_rate", rate, {"schedule"})
    assert (finding.severity, finding.direction) == (severity, direction)
    assert (finding.onset_step, finding.detected_step) == (500, 501)
    assert finding.evidence["ratio"] == pytest.approx(factor, rel=0.01)


def test_a_rate_that_is_off_for_one_sample_is_none():
    rate = COSINE.copy()
    rate[500] *= 10
    assert said("learning_rate", rate, {"schedule"})[0] == []


def test_a_warm_up_and_a_decay_to_zero_are_no_jumps():
    assert said("learning_rate", np.concatenate([np.linspace(1e-6, 1e-3, 200), COSINE]), {"schedule"})[0] == []


def test_a_step_of_the_last_printed_digit_is_no_jump_of_the_rate():
    step = np.arange(1.0, 4001)
    rate = np.round(6e-4 * (1 - step / 4000), 6)  # llm.c prints six decimals: 4e-06, then 3e-06
    assert [f for f in inspect(Series(step, rate, role="learning_rate")) if getattr(f, "kind", "") == "schedule"] == []
    low = np.where(step < 2000, 4e-6, 1e-6)  # three units are a change
    (jump,) = [f for f in inspect(Series(step, low, role="learning_rate")) if getattr(f, "kind", "") == "schedule"]
    assert (jump.direction, jump.evidence["before"], jump.evidence["after"]) == ("down", 4e-6, 1e-6)
