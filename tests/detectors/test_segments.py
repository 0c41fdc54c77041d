"""Offline segmentation: one default for any scale and length."""

import numpy as np
import pytest

from detectors import change_points


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_two_steps_are_found_at_any_scale(scale):
    rng = np.random.default_rng(0)
    values = np.concatenate([np.zeros(80), 3 * np.ones(60), np.ones(90)]) + 0.5 * rng.standard_normal(230)
    assert change_points(scale * values) == [80, 140]


def test_noise_alone_has_no_change_points_even_when_it_wanders():
    rng = np.random.default_rng(1)
    noise = np.zeros(2000)
    for i, shock in enumerate(rng.standard_normal(2000)):
        noise[i] = 0.5 * noise[i - 1] + shock
    assert change_points(rng.standard_normal(2000)) == []
    assert len(change_points(noise)) <= 1


def test_missing_values_are_passed_over_and_constants_and_short_series_are_quiet():
    values = np.concatenate([np.zeros(50), 5 * np.ones(50)]) + 0.1 * np.random.default_rng(2).standard_normal(100)
    values[[10, 49, 50]] = np.nan
    assert change_points(values) == [51]
    assert change_points(np.ones(100)) == []
    assert change_points([1.0, 2.0, 9.0]) == []
