"""A run beside another one on the same batches."""

import numpy as np
import pytest

from detectors.finding import Finding, Recovery
from detectors.reference import GATES, carry, scan

STEP = np.arange(1200.0)


def course(seed: int) -> np.ndarray:
    """A loss of 2 % of noise, that of its batches."""
    return np.exp(np.log(2 + 3 * (STEP + 1) ** -0.4) + 0.02 * np.random.default_rng(seed).standard_normal(len(STEP)))


def said(value, reference=None, role="loss", state=None, at=slice(None)):
    reference = course(0) if reference is None else reference
    return scan(STEP[at], reference[at], value[at], f"train/{role}", role, GATES[role], state or {})


def findings(answers):
    return [a for a in answers if isinstance(a, Finding)]


@pytest.mark.parametrize("quiet", [0.0, 1 / 18])
@pytest.mark.parametrize("onset", [100, 501, 702, 1003])
def test_half_a_percent_on_equal_data_is_found_within_20_steps(onset, quiet):
    noise = quiet * 0.006 * np.random.default_rng(onset).standard_normal(len(STEP)) * (STEP >= 50)
    value = course(0) * np.exp(noise) * np.where(onset <= STEP, 1.005, 1)
    (found,) = findings(said(value)[0])
    assert (found.kind, found.direction, found.severity) == ("level", "up", 2)
    assert abs(found.onset_step - onset) <= 8
    assert onset <= found.detected_step <= onset + 20
    assert found.magnitude == pytest.approx(0.005, abs=0.0005)


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_twin_is_silent(seed):
    rng = np.random.default_rng(seed)
    alike = course(0) * np.exp(0.0011 * rng.standard_normal(len(STEP)) * (STEP >= 50))
    assert findings(said(alike)[0]) == []
    other_weights = course(0) * np.exp(0.01 / (1 + STEP / 50) + 0.0011 * rng.standard_normal(len(STEP)))
    assert findings(said(other_weights)[0]) == []


def test_what_is_over_is_over():
    value = course(0) * np.where((STEP >= 400) & (STEP < 600), 1.01, 1)
    found, back = said(value)[0]
    assert (found.onset_step, found.detected_step) == (400, 407)
    assert isinstance(back, Recovery) and 600 < back.step <= 664


def test_a_better_loss_is_an_annotation_and_a_norm_a_note():
    (found,) = findings(said(course(0) * np.where(STEP >= 400, 0.98, 1))[0])
    assert (found.direction, found.severity) == ("down", 0)
    (found,) = findings(said(course(0) * np.where(STEP >= 400, 1.2, 1), role="grad_norm")[0])
    assert (found.direction, found.severity) == ("up", 1)


def test_other_data_is_recognised_and_an_order_that_is_lost_is_found():
    (found,) = findings(said(course(1))[0])
    assert (found.kind, found.severity, found.detected_step) == ("replay", 0, 63)
    lost = np.where(STEP < 600, course(0), course(1))
    assert [(f.kind, f.severity) for f in findings(said(lost)[0])] == [("replay", 2)]


def test_routers_of_other_weights_go_their_own_ways():
    value = course(0) * np.exp(0.05 + np.sin(STEP / 100))
    assert said(value, role="router_entropy")[0] == []


def test_a_restart_goes_on_with_what_was_known():
    value = course(0) * np.where(STEP >= 604, 1.005, 1)
    _, state = said(value, at=slice(0, 600))
    (found,) = findings(said(value, at=slice(600, 640), state=carry(state))[0])
    assert found.detected_step <= 624
