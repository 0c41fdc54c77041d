"""One rank among many that is always late, and lateness that is nobody's."""

import math

import numpy as np
import pytest

from detectors import Finding, Recovery, stragglers
from detectors.stragglers import scan

RANKS, BLOCKS = 16, 80


def times(seed=0):
    rng = np.random.default_rng(seed)
    return 10 * np.exp(0.004 * rng.standard_normal((RANKS, BLOCKS)))


def judged(values, role="step_time", names="perf/rank_{}/step_time", first=0, state=None):
    at = first + np.arange(values.shape[1])
    new = {names.format(k): np.column_stack([at, at * 16.0 + 15, row]) for k, row in enumerate(values, 1)}
    return scan(new, {names.format(k): (role, f"rank_{k}") for k in range(1, RANKS + 1)}, state or {})


def test_the_rank_that_is_late_from_a_block_on_is_named_after_three():
    values = times()
    values[6, 40:70] *= 1.05
    (found, back), _ = judged(values)
    assert (found.severity, found.metric, found.direction, found.role) == (
        2,
        "perf/rank_7/step_time",
        "up",
        "step_time",
    )
    assert (found.onset_step, found.detected_step) == (39 * 16 + 15, 42 * 16 + 15)
    assert found.magnitude == pytest.approx(math.log(1.05), abs=0.015)
    assert (found.evidence["ranks"], found.evidence["ranks_late"], found.evidence["from_the_start"]) == (RANKS, 1, 0)
    assert isinstance(back, Recovery)
    assert back.step == 72 * 16 + 15


def test_low_throughput_of_one_rank_is_late_too():
    values = 1 / times()
    values[2, 40:] *= 0.95
    ((found,), _) = judged(values, "throughput")
    assert (found.metric, found.direction) == ("perf/rank_3/step_time", "down")
    assert found.evidence["before"] > found.evidence["after"]


@pytest.mark.parametrize("seed", range(3))
def test_lateness_that_moves_from_rank_to_rank_is_quiet(seed):
    values = times(seed)
    values[np.random.default_rng(seed).integers(0, RANKS, BLOCKS), np.arange(BLOCKS)] *= 1.10
    assert judged(values)[0] == []


def test_all_ranks_together_are_nobody_s_lateness():
    values = times()
    values[:, 40:] *= 1.3
    assert judged(values)[0] == []


def test_a_rank_that_was_late_from_the_start_is_a_note():
    values = times()
    values[6] *= 1.06
    ((found,), _) = judged(values)
    assert (found.severity, found.evidence["from_the_start"]) == (1, 1)


def test_three_ranks_are_no_section():
    values = times()[:3]
    values[1, 40:] *= 2
    assert judged(values)[0] == []


def test_slices_say_the_same_and_a_restart_accuses_nobody():
    values = times()
    values[6, 30:] *= 1.05
    whole = judged(values)[0]
    state, said = {}, []
    for a, b in ((0, 31), (31, 32), (32, 33), (33, BLOCKS)):
        found, state = judged(values[:, a:b], first=a, state=state)
        said += found
    assert said == whole
    after = judged(times(1), first=BLOCKS, state=stragglers.carry(state, BLOCKS * 16.0))[0]
    assert [f for f in after if isinstance(f, Finding)] == []
