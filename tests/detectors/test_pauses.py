"""Pauses that come at a cadence are no standstill; one out of season, or much longer, is."""

import numpy as np

from detectors import Finding, Series, inspect
from detectors.silence import due_seconds, silent_since


def stalls(pauses, size=3_000):
    """Steps at which a standstill is told; `pauses` are seconds after a step."""
    gaps = np.full(size, 10.0)
    for step, seconds in pauses.items():
        gaps[step + 1] += seconds
    loss = 2 + np.exp(-np.arange(size) / 500) + 0.01 * np.random.default_rng(0).standard_normal(size)
    answers = inspect(Series(np.arange(size), loss, role="loss", seconds=1e9 + np.cumsum(gaps)))
    return [int(a.onset_step) for a in answers if isinstance(a, Finding) and a.kind == "stall"]


def test_long_evaluations_are_told_three_times_and_then_known():
    assert stalls(dict.fromkeys(range(400, 3000, 400), 1200.0)) == [400, 800, 1_200]


def test_short_ones_teach_the_cadence_too():
    assert stalls({400: 700.0, 800: 700.0, 1_200: 700.0, 1_600: 1_000.0}) == []


def test_a_pause_out_of_season_or_much_longer_is_a_standstill():
    regular = dict.fromkeys((400, 800, 1200, 1600), 800.0)
    assert stalls({**regular, 1_800: 1_000.0}) == [1_800]
    assert stalls({**regular, 2_000: 2_000.0}) == [2_000]
    assert stalls({400: 800.0, 800: 800.0, 1_300: 800.0, 1_600: 1_000.0}) == [1_600]


def test_one_that_was_skipped_does_not_break_the_cadence():
    pauses = [(400.0, 800.0), (800.0, 800.0), (1_200.0, 800.0)]
    assert due_seconds(pauses, 2_000.0) == 1_200.0
    assert due_seconds(pauses, 1_800.0) == 0.0
    assert due_seconds(pauses[:2], 1_200.0) == 0.0


def test_a_live_run_may_be_silent_as_long_as_the_pause_that_is_due():
    assert silent_since(0.0, 10.0, 1_100.0) == 1_100.0
    assert silent_since(0.0, 10.0, 1_100.0, due=1_200.0) is None
    assert silent_since(0.0, 10.0, 1_300.0, due=1_200.0) == 1_300.0
