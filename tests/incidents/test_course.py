"""What became of a metric: on values whose course is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.incidents.course import COMING_BACK, DIVERGING, PLATEAUED, RECOVERED, course, expected

STEP = np.arange(400.0)
BEFORE = STEP[:300], 2.0 + 0.01 * np.sin(STEP[:300])


def after(*value):
    return np.arange(300.0, 300 + len(value)), np.array(value, float)


@pytest.mark.parametrize(
    ("later", "state"),
    [
        ([3.0] * 10 + [2.0] * 40, RECOVERED),
        ([3.0] * 60, PLATEAUED),
        ([3.0] * 20 + [2.3] * 60, COMING_BACK),
        ([3.0] * 20 + [4.0] * 60, DIVERGING),
        ([3.0] * 20 + [np.nan] * 60, DIVERGING),
    ],
)
def test_the_state_goes_by_the_distance_at_first(later, state):
    found = course(BEFORE, 300.0, np.array([3.0] * 10), after(*later))
    assert found.state == state
    assert (found.low, found.high) == pytest.approx((1.99, 2.01), abs=0.002)
    assert found.samples == len(later)


def test_it_is_back_from_the_step_at_which_the_median_stays_inside():
    found = course(BEFORE, 300.0, np.array([3.0] * 10), after(*[3.0] * 10, *[2.0] * 40))
    assert found.back_step == 300 + 20  # 11 of 21 samples are inside from then on


def test_a_false_recovery_is_no_recovery():
    found = course(BEFORE, 300.0, np.array([3.0] * 10), after(*[3.0] * 10, *[2.0] * 40, *[3.0] * 40))
    assert found.state == PLATEAUED and found.back_step is None


def test_the_steep_start_of_a_run_is_not_what_is_expected_of_it():
    step = np.arange(300.0)
    noise = 0.05 * np.random.default_rng(5).standard_normal(300)
    usual = expected(step, 0.6 + 4 * np.exp(-step / 8) + noise, 150.0)
    assert usual.samples == 75  # of 150: the newer half
    assert usual.high - usual.low == pytest.approx(4 * 0.0412, rel=0.3)  # 3.29 sigmas
    # noise alone, or a line, is taken whole
    assert expected(step, 0.6 + noise, 300.0).samples == 200
    assert expected(step, 3 - 0.01 * step + noise / 10, 300.0).samples == 200


def test_a_falling_loss_is_expected_where_its_line_was_at_the_onset():
    usual = expected(STEP, 4.0 - 0.005 * STEP, 300.0)
    assert float(usual.line(300.0)) == pytest.approx(2.5, abs=0.01)
    assert usual.slope == pytest.approx(-0.005, rel=0.01)


def test_too_little_before_is_not_judged():
    assert course((STEP[:10], STEP[:10]), 300.0, np.array([3.0]), after(1.0)) is None


@given(st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), min_size=1, max_size=80), st.floats(0.1, 1e3))
def test_the_state_does_not_depend_on_the_unit(values, unit):
    one = course(BEFORE, 300.0, np.array([3.0]), after(*values))
    two = course((BEFORE[0], BEFORE[1] * unit), 300.0, np.array([3.0 * unit]), after(*(v * unit for v in values)))
    assert (one.state, one.back_step) == (two.state, two.back_step) or min(
        abs(abs(one.now - edge)) for edge in (one.low, one.high)
    ) < 1e-9 * max(1.0, abs(one.now))
