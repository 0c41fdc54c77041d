"""Learning rates on their curve are quiet whatever its family; a jump of 1 % and the end of a warm-up are not."""

import math

import numpy as np
import pytest

from detectors.curve import last_digit
from detectors.finding import Finding
from detectors.suite import advance

SIZE, WARM = 4000, 200
STEP = np.arange(SIZE, dtype=float)
PROGRESS = np.clip((STEP - WARM) / (SIZE - WARM), 0, 1)
DECAYS = {
    "constant": np.ones(SIZE),
    "linear": 1 - 0.9 * PROGRESS,
    "cosine": 0.1 + 0.45 * (1 + np.cos(np.pi * PROGRESS)),
    "inverse root": np.sqrt(WARM / np.maximum(STEP + 1, WARM)),
    "exponential": 0.01**PROGRESS,
    "1 - root": 1.01 - np.sqrt(PROGRESS),
}
PRINTED = {
    "64 bits": float,
    "32 bits": np.float32,
    "4 digits": lambda x: float(f"{x:.3e}"),
    "6 places": lambda x: round(x, 6),
}


def rate(decay):
    return 3e-4 * np.minimum((STEP + 1) / WARM, 1) * DECAYS[decay]


def judged(value, step=STEP):
    value = np.asarray(value, dtype=float)
    said, _, _ = advance(step, value, np.full(len(value), np.nan), 0, 0, {}, name="lr", role="learning_rate")
    return [answer for _, answer in said if isinstance(answer, Finding) and answer.detector == "curve"]


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("printed", PRINTED)
def test_a_schedule_is_quiet_but_for_its_phases_however_it_is_printed(decay, printed):
    found = judged([PRINTED[printed](each) for each in rate(decay)])
    assert {each.severity for each in found} <= {0}
    assert len(found) <= 2


@pytest.mark.parametrize("decay", DECAYS)
def test_the_end_of_the_warm_up_is_another_phase_at_its_step(decay):
    first = judged(rate(decay))[0]
    assert (first.kind, first.severity, first.direction) == ("trend", 0, "down")
    assert first.onset_step == pytest.approx(WARM, abs=1)
    assert first.evidence["slope_before_per_10k"] == pytest.approx(1e4 / WARM, rel=0.02)


@pytest.mark.parametrize("decay", [name for name in DECAYS if name != "constant"])
@pytest.mark.parametrize("printed", ["64 bits", "32 bits"])
def test_a_jump_of_two_percent_is_found_three_samples_later(decay, printed):
    value = rate(decay)
    value[2500:] *= 1.02
    (found,) = [each for each in judged([PRINTED[printed](each) for each in value]) if each.severity]
    assert (found.kind, found.severity, found.direction) == ("schedule", 2, "up")
    assert (found.onset_step, found.detected_step) == (2500, 2502)
    assert found.evidence["ratio"] == pytest.approx(1.02, rel=0.003)


def test_a_jump_down_and_one_above_the_plateau_are_notes():
    for factor in (0.95, 1.05):
        value = rate("constant")
        value[2500:] *= factor
        (found,) = [each for each in judged(value) if each.severity]
        assert (found.severity, found.magnitude) == (1, pytest.approx(math.log(factor)))


def test_the_second_stair_tells_that_it_is_a_staircase():
    value = 3e-4 * 0.9 ** (STEP // 500)
    assert [each.severity for each in judged(value)] == [1, 0, 0, 0, 0, 0, 0]


def test_a_staircase_of_printed_digits_is_none():
    value = [float(f"{each:.1e}") for each in rate("linear")]
    assert [each for each in judged(value) if each.severity] == []


def test_a_lone_odd_value_is_no_jump():
    value = rate("cosine")
    value[2500] *= 1.1
    assert [each for each in judged(value) if each.severity] == []


def test_a_decayed_rate_that_rises_again_is_a_note():
    value = rate("linear")
    value[2500:2700] *= np.linspace(1, 3, 200)
    value[2700:] *= 3
    assert [(each.severity, each.onset_step) for each in judged(value) if each.severity] == [(1, 2501)]


@pytest.mark.parametrize(
    ("values", "at", "unit"),
    [
        ([1e-4, 2e-4], 1e-4, 1e-4),
        ([1.25e-4, 3e-4], 3e-4, 1e-6),
        ([0.000123, 0.1], 0.000123, 1e-6),
        ([0.1 / 3], 0.03, 1e-9),
    ],
)
def test_the_unit_of_the_last_digit(values, at, unit):
    assert last_digit(np.array(values), at) == pytest.approx(unit)
