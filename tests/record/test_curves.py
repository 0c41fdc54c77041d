import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.record.curves import Curve, band_before, standing, thin, window
from flows.records import Attempt


def curve(step, value=None, attempt=None):
    step = np.asarray(step, dtype=float)
    value = np.zeros(len(step)) if value is None else np.asarray(value, dtype=float)
    return Curve("m", step, value, np.zeros(len(step), dtype=np.int64) if attempt is None else np.asarray(attempt))


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 3000))
def test_thinning_keeps_the_highest_lowest_first_and_last_of_every_bucket(seed, buckets, count):
    chance = np.random.default_rng(seed)
    step = np.sort(chance.uniform(0, 1000, count))
    value = chance.normal(size=count)
    value[chance.random(count) < 0.05] = np.nan
    kept = thin(step, value, 0.0, 1000.0, buckets)
    assert len(kept) <= max(4 * buckets, min(count, 4 * buckets))
    assert (np.diff(kept) > 0).all() and np.isfinite(value[kept]).all()
    finite = np.isfinite(value)
    place = np.minimum((step / 1000 * buckets).astype(int), buckets - 1)
    for bucket in np.unique(place[finite]):
        inside, shown = finite & (place == bucket), kept[place[kept] == bucket]
        assert value[shown].max() == value[inside].max() and value[shown].min() == value[inside].min()
        assert step[shown].min() == step[inside].min() and step[shown].max() == step[inside].max()


def test_a_single_spike_among_a_million_samples_is_drawn():
    value = np.ones(1_000_000)
    value[654_321] = 9.0
    kept = thin(np.arange(1e6), value, 0.0, 1e6, 200)
    assert 654_321 in kept and len(kept) <= 800


def test_few_samples_are_all_drawn():
    assert thin(np.arange(30.0), np.arange(30.0), 5.0, 20.0, 10).tolist() == list(range(5, 21))


def test_an_abandoned_tail_is_not_part_of_the_run_as_it_stands():
    attempts = [Attempt(0, 0.0, None, "start", 50.0), Attempt(1, 50.0, 0, "rewind")]
    both = curve([*range(60), *range(50, 70)], attempt=[0] * 60 + [1] * 20)
    assert standing(both, attempts).tolist() == [True] * 50 + [False] * 10 + [True] * 20


@pytest.mark.parametrize("resolved", [None, 620.0])
@pytest.mark.parametrize(("onset", "detected"), [(600.0, 600.0), (600.0, 640.0), (2.0, 30.0), (100.0, 900.0)])
def test_the_window_holds_the_onset_and_the_detection_and_some_time_before(onset, detected, resolved):
    incident = {"onset_step": onset, "detected_step": detected, "resolved_step": resolved}
    first, last = window(incident, curve(np.arange(1000.0)))
    assert first <= onset <= detected <= last
    assert onset - first >= min(onset, 120.0)


def test_a_window_without_width_gets_one():
    first, last = window({"onset_step": 5.0, "detected_step": 5.0}, curve([5.0]))
    assert first < last


def test_the_band_is_the_middle_nine_tenths_before_the_onset_and_flat_after_it():
    chance = np.random.default_rng(1)
    value = chance.normal(10.0, 1.0, 400)
    value[300:] = 50.0
    band = band_before(np.arange(400.0), value, 300.0, 399.0)
    assert band is not None and band.samples == 200
    assert band.step.tolist() == [100.0, 300.0, 399.0]
    assert band.low[1] == band.low[2] and band.high[1] == band.high[2]
    assert 8.0 < band.low[1] < 8.8 and 11.2 < band.high[1] < 12.0


def test_the_band_follows_a_trend_up_to_the_onset_and_no_further():
    step = np.arange(300.0)
    band = band_before(step, 100 - step / 10 + np.random.default_rng(2).normal(0, 0.1, 300), 200.0, 299.0)
    assert band is not None
    assert band.low[0] > band.low[1] == band.low[2]
    assert 79.5 < band.low[1] < 80.2


def test_a_single_outlier_before_the_onset_does_not_widen_the_band():
    value = np.random.default_rng(3).normal(0, 1, 300)
    value[250] = 1e6
    band = band_before(np.arange(300.0), value, 290.0, 300.0)
    assert band is not None and band.high[1] < 3


def test_fewer_than_twenty_samples_are_no_band():
    assert band_before(np.arange(19.0), np.ones(19), 100.0, 200.0) is None
