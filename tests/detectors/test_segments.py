"""Offline segmentation: one default for any scale and length."""

from itertools import pairwise

import numpy as np
import pytest
import ruptures
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

from detectors import change_points
from detectors.segments import candidates, standard

NOISE = np.random.default_rng(0).standard_normal(230)
STEPS = np.concatenate([np.zeros(80), 3 * np.ones(60), np.ones(90)]) + 0.5 * NOISE


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_two_steps_are_found_at_any_scale(scale):
    assert change_points(scale * STEPS) == [80, 140]


@settings(max_examples=10, deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(-1e4, 1e4), st.booleans())
def test_unit_zero_and_sign_do_not_matter(scale, shift, turned):
    assert change_points((-scale if turned else scale) * STEPS[40:180] + shift) == [40, 100]


def test_a_kink_is_found_where_the_slope_changes():
    values = np.concatenate([np.zeros(150), 0.1 * np.arange(150)]) + 0.3 * np.random.default_rng(3).standard_normal(300)
    (kink,) = change_points(values)
    assert abs(kink - 150) <= 8


def test_a_straight_trend_has_no_change_points():
    assert change_points(0.02 * np.arange(230) + NOISE) == []


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8, 0.9])
def test_noise_alone_has_no_change_points_even_when_it_wanders(correlation):
    shocks = np.random.default_rng(1).standard_normal((3, 500))
    for row in lfilter([1], [1, -correlation], shocks, axis=1)[:, 100:]:
        assert change_points(row) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_stationary_series_with_heavy_tails_has_no_change_points(seed):
    shocks = np.random.default_rng(seed).standard_t(2, 400)
    assert change_points(lfilter([1], [1, -0.9], shocks)[100:]) == []


def test_one_or_two_outliers_are_no_segment():
    values = STEPS.copy()
    values[[30, 100, 101]] += 25
    assert change_points(values) == [80, 140]


def test_a_falling_power_law_is_not_cut_into_dozens_of_steps():
    curve = 1.7 + 8 / np.sqrt(np.arange(1, 1001)) + 0.01 * np.random.default_rng(5).standard_normal(1000)
    assert len(change_points(curve)) <= 8


def test_a_long_series_is_searched_in_blocks_and_the_place_is_exact():
    values = 0.2 * np.random.default_rng(6).standard_normal(5003)
    values[1234:] += 1
    assert change_points(values) == [1234]


def test_missing_values_are_passed_over_and_constants_and_short_series_are_quiet():
    values = np.concatenate([np.zeros(50), 5 * np.ones(50)]) + 0.1 * np.random.default_rng(2).standard_normal(100)
    values[[10, 49, 50]] = np.nan
    assert change_points(values) == [51]
    assert change_points(np.ones(100)) == []
    assert change_points(np.full(100, 0.1) + 0.2) == []
    assert change_points([1.0, 2.0, 9.0]) == []
    assert change_points([]) == []


@pytest.mark.parametrize("shape", [1, 2])
def test_the_search_is_exact_and_what_is_left_over_is_what_it_minimised(shape):
    y = standard(STEPS[60:120])
    mine = [each for each in candidates(y) if each.shape == shape and each.correlation == 0.6]
    for count in (1, 2, 3):
        theirs = ruptures.Dynp(custom_cost=Generalised(shape, 0.6), min_size=5, jump=1).fit(y[:, None]).predict(count)
        assert mine[count].changes == theirs[:-1]
        edges = [0, *theirs]
        squares = sum(_squares_left(y[a:b], shape, 0.6) for a, b in pairwise(edges))
        assert float((mine[count].rest ** 2).sum()) == pytest.approx(squares)


class Generalised(ruptures.base.BaseCost):
    """Generalised least squares with the whole covariance of an AR(1)."""

    model = ""
    min_size = 5

    def __init__(self, shape, correlation):
        self.shape, self.correlation = shape, correlation

    def fit(self, signal):
        self.signal = signal
        return self

    def error(self, start, end):
        return _squares_left(self.signal[start:end, 0], self.shape, self.correlation)


def _squares_left(part, shape, correlation):
    place = np.arange(len(part))
    weight = np.linalg.inv(correlation ** np.abs(place[:, None] - place[None, :])) * (1 - correlation**2)
    rows = np.vstack([np.ones(len(part)), place])[:shape]
    left = part - np.linalg.solve(rows @ weight @ rows.T, rows @ weight @ part) @ rows
    return float(left @ weight @ left)
