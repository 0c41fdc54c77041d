"""The direction of slow metrics: which way asks for attribution, by how much, when it is over."""

import numpy as np
import pytest
from scipy.signal import lfilter

from detectors import Finding, Recovery, Series, inspect
from detectors.trends import newey_west, trends, white


def ar(size: int, phi: float, seed: int) -> np.ndarray:
    """Stationary AR(1) noise of unit scale."""
    shocks = np.random.default_rng([seed, 11]).standard_normal(size)
    shocks[1:] *= np.sqrt(1 - phi * phi)
    return np.asarray(lfilter([1.0], [1.0, -phi], shocks))


def drifts(role: str, value: np.ndarray) -> list[Finding | Recovery]:
    answers = inspect(Series(np.arange(len(value), dtype=float), value, role=role))
    return [a for a in answers if isinstance(a, Finding | Recovery) and a.detector == "direction"]


@pytest.mark.parametrize("seed", range(6))
def test_ten_percent_in_ten_thousand_steps_is_found_in_slow_noise(seed):
    noise = 0.1 * ar(20_000, 0.9, seed)
    drift = np.log(1.1) * np.arange(20_000) / 10_000
    found = [a for a in drifts("param_norm", np.exp(noise + drift)) if isinstance(a, Finding)]
    assert {(f.severity, f.direction) for f in found} == {(1, "up")}
    assert drifts("param_norm", np.exp(noise)) == []


@pytest.mark.parametrize(
    ("role", "start", "factor", "direction"),
    [
        ("param_norm", 60.0, 0.8, "down"),
        ("param_norm", 60.0, 1.3, "up"),
        ("update_norm", 0.1, 1.3, "up"),
        ("router_entropy", 2.05, 0.98, "down"),
        ("router_bias", -0.2, 3.0, "up"),
        ("router_logit", 4.0, 2.0, "up"),
        ("max_logit", 20.0, 1.6, "up"),
        ("logsumexp", 8.0, 1.3, "up"),
        ("memory", 60.0, 1.04, "up"),
        ("token_drop", 0.02, 1.4, "up"),
        ("loss", 2.3, 1.006, "up"),
    ],
)
def test_each_role_has_a_way_and_an_effect_that_asks_for_attribution(role, start, factor, direction):
    ramp = np.clip((np.arange(6_000) - 2_000) / 3_000, 0, 1)
    noise = 0.001 * np.random.default_rng(0).standard_normal(6_000)
    found = [a for a in drifts(role, start * np.exp(np.log(factor) * ramp + noise)) if isinstance(a, Finding)]
    assert [(f.severity, f.direction) for f in found] == [(1, direction)]
    assert found[0].detected_step < 5_000
    other = [a for a in drifts(role, start * np.exp(-np.log(factor) * ramp + noise)) if isinstance(a, Finding)]
    assert bool(other) == (role == "param_norm")


@pytest.mark.parametrize(("role", "factor"), [("max_logit", 4.0), ("router_logit", 8.0), ("grad_norm", 1.8)])
def test_what_goes_on_asks_for_a_look(role, factor):
    ramp = np.log(factor) * np.clip((np.arange(12_000) - 2_000) / 9_000, 0, 1)
    noise = 0.01 * np.random.default_rng(0).standard_normal(12_000)
    found = [a for a in drifts(role, 10 * np.exp(ramp + noise)) if isinstance(a, Finding)]
    assert [f.severity for f in found] == [1, 2]
    assert found[0].episode == found[1].episode


def test_a_loss_that_creeps_up_at_the_end_of_a_cooldown_asks_for_a_look():
    falls = 2.3 * (1 - 0.02 * np.clip(np.arange(18_000) / 15_000, 0, 1))
    creep = 0.01 * np.clip((np.arange(18_000) - 15_000) / 3_000, 0, 1)
    noise = 0.0032 * np.random.default_rng(0).standard_normal(18_000)
    found = [a for a in drifts("loss", falls * np.exp(creep + noise)) if isinstance(a, Finding)]
    assert [f.severity for f in found] == [1, 2]
    assert found[0].onset_step == pytest.approx(15_000, abs=300)
    assert drifts("loss", falls * np.exp(noise)) == []


def test_a_tiny_logit_that_doubles_is_no_news():
    ramp = np.exp(np.log(2) * np.clip((np.arange(6_000) - 2_000) / 3_000, 0, 1))
    assert drifts("max_logit", 0.1 * ramp) == []


def test_a_drift_that_is_over_is_told_once():
    ramp = np.log(1.4) * np.clip((np.arange(20_000) - 4_000) / 4_000, 0, 1)
    noise = 0.02 * ar(20_000, 0.5, 3)
    said = drifts("grad_norm", np.exp(ramp + noise))
    assert [type(a) for a in said] == [Finding, Recovery]
    assert 8_000 < said[1].step < 14_000


def test_a_norm_without_noise_has_long_enough_blocks_and_wandering_does_not():
    bend = np.maximum(np.linspace(-1, 1, 40), 0.0)
    assert white(bend)
    assert not white(np.cumsum(np.sin(np.arange(40) / 5.0)))


def test_windows_leave_out_the_first_tenth_and_hold_at_most_a_hundred_blocks():
    rows = np.column_stack([np.arange(512.0), np.random.default_rng(1).standard_normal(512)])
    found = list(trends(((rows, 16),), seen=512 * 16))
    assert {(each.size, len(each.step)) for each in found} <= {(16, 100), (32, 100), (64, 100), (128, 57)}
    assert all(each.step[-1] == 511 for each in found)
    assert list(trends(((rows[:21], 16),), seen=21 * 16)) == []


def test_the_interval_of_a_slope_holds_it_as_often_as_it_says():
    held = []
    for seed in range(200):
        low, high = newey_west(
            np.arange(60.0), 0.01 * np.arange(60.0) + np.random.default_rng(seed).standard_normal(60)
        )
        held.append(low < 0.01 < high)
    assert 0.85 < np.mean(held) < 0.99  # Newey-West intervals of so few points are a little short
