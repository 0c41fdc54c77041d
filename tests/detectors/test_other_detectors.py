"""Norms, throughput, routing, schedules, non-finite values, silence: what is said, where, how loud."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors import Finding, NotChecked, Recovery, Series, groups, inspect
from detectors.groups import scan as scan_groups
from detectors.overfit import Anchor
from detectors.overfit import scan as scan_evals
from detectors.schedule import restarted
from detectors.silence import silent_since
from detectors.suite import is_sentinel
from detectors.trends import mann_kendall, newey_west, theil_sen


def said(role, value, seconds=None):
    answers = inspect(
        Series(np.arange(len(value), dtype=float), np.asarray(value, dtype=float), role=role, seconds=seconds)
    )
    return [a for a in answers if isinstance(a, Finding)], [a for a in answers if isinstance(a, Recovery)]


def walk(size, phi, seed=0):
    rng = np.random.default_rng(seed)
    out = np.zeros(size)
    for i, shock in enumerate(rng.standard_normal(size)):
        out[i] = phi * out[i - 1] + np.sqrt(1 - phi**2) * shock
    return out


def test_the_direction_of_a_gradient_norm_alarms_though_its_level_is_low():
    drift = np.linspace(np.log(0.28), np.log(0.59), 42_000)
    findings, _ = said("grad_norm", np.exp(drift + 0.1 * walk(42_000, 0.9)))
    trends = [f for f in findings if f.kind == "trend"]
    assert trends
    assert trends[0].severity == 1
    assert 0.1 < trends[0].magnitude < 0.4  # 0.177 in truth, known from a third of the way
    assert trends[0].detected_step < 21_000
    low, high = trends[0].evidence["interval_per_10k"]
    assert low < trends[0].magnitude < high
    # half again what it began from: a look is asked for
    loud = [f for f in trends if f.severity == 2]
    assert loud
    assert loud[0].evidence["after"] > 1.45 * loud[0].evidence["began_from"]


def test_a_high_but_steady_gradient_norm_is_quiet():
    findings, _ = said("grad_norm", 1.9 * np.exp(0.1 * walk(20_000, 0.9, seed=1)))
    assert [f for f in findings if f.severity >= 1] == []


def test_a_falling_gradient_norm_is_no_alarm():
    findings, _ = said("grad_norm", np.exp(np.linspace(0, -1, 20_000) + 0.1 * walk(20_000, 0.8)))
    assert [f for f in findings if f.kind == "trend"] == []


@pytest.mark.parametrize(("times", "severity"), [(5, 0), (50, 1)])
def test_a_lone_gradient_norm_spike_is_annotated_and_noted_from_a_decade_on(times, severity):
    value = np.exp(0.1 * walk(3000, 0.6))
    value[2000] *= times
    findings, recoveries = said("grad_norm", value)
    assert [(f.kind, f.severity, f.onset_step) for f in findings] == [("spike", severity, 2000)]
    assert len(recoveries) == 1


def test_a_heavy_tailed_norm_raises_its_own_bar():
    value = np.exp(0.1 * np.random.default_rng(0).standard_t(2, 20_000))
    findings, _ = said("grad_norm", value)
    beyond_six = int((np.log(value) > 0.6).sum())
    assert len(findings) < beyond_six / 4


def test_a_constant_norm_that_moves_is_a_page_at_the_first_sample():
    value = np.full(500, 268.0) * (1 + 1e-6 * np.random.default_rng(0).standard_normal(500))
    value[300:] *= 1.002
    findings, _ = said("param_norm", value)
    assert [(f.kind, f.severity, f.onset_step, f.detected_step) for f in findings] == [("invariant", 3, 300, 300)]
    assert findings[0].magnitude == pytest.approx(0.002, rel=0.02)


def test_a_norm_that_always_moved_breaks_no_invariant():
    findings, _ = said("param_norm", np.linspace(100, 110, 500))
    assert [f for f in findings if f.kind == "invariant"] == []


@pytest.mark.parametrize(("role", "factor"), [("mfu", 0.95), ("throughput", 0.95), ("step_time", 1 / 0.95)])
def test_a_slow_down_of_five_percent_is_noted_then_s2(role, factor):
    value = 20 * (1 + 0.008 * np.random.default_rng(0).standard_normal(1500))
    value[1000:] *= factor
    findings, _ = said(role, value)
    assert [f.severity for f in findings] == [1, 2]
    assert abs(findings[0].onset_step - 1000) <= 5
    assert findings[0].detected_step <= 1020
    assert findings[1].magnitude == pytest.approx(factor - 1, abs=0.005)


@pytest.mark.parametrize(("factor", "severities"), [(1.05, [1]), (1.2, [1, 2])])
def test_a_young_run_must_slow_by_a_tenth_before_it_is_s2(factor, severities):
    value = 0.47 * (1 + 0.004 * np.random.default_rng(0).standard_normal(3000))
    value[190:] *= factor
    findings, _ = said("step_time", value)
    assert [f.severity for f in findings] == severities
    assert abs(findings[0].onset_step - 190) <= 5


def test_a_slow_down_after_that_of_a_young_run_is_judged_by_what_came_between():
    value = 0.47 * (1 + 0.004 * np.random.default_rng(0).standard_normal(3000))
    value[190:] *= 1.05
    value[1500:] *= 1.05
    findings, _ = said("step_time", value)
    assert [(f.severity, round(f.onset_step, -2)) for f in findings] == [(1, 200), (1, 1500), (2, 1500)]


def test_evaluation_pauses_do_not_count_as_slow():
    value = 20 * (1 + 0.008 * np.random.default_rng(0).standard_normal(5000))
    value[::50] *= 0.67
    findings, _ = said("mfu", value)
    assert findings == []


def test_a_sentinel_is_no_measurement():
    assert is_sentinel("mfu", np.array([-100.0, 20.0])).tolist() == [True, False]
    assert not is_sentinel("loss", np.array([-1.0])).any()


def test_token_drops_that_jump_are_s2_and_a_zero_is_a_value():
    rng = np.random.default_rng(0)
    value = np.where(rng.random(3000) < 0.7, 0.0, rng.random(3000) * 0.06)
    value[2000:] = 0.12 + 0.01 * rng.standard_normal(1000)
    findings, _ = said("token_drop", value)
    assert [(f.kind, f.severity, f.direction) for f in findings if f.detector == "shifts"] == [("level", 2, "up")]
    assert abs(next(f for f in findings if f.detector == "shifts").onset_step - 2000) <= 3


def test_an_entropy_that_collapses_is_a_page():
    value = 2.06 + 0.005 * np.random.default_rng(0).standard_normal(3000)
    value[2000:] -= np.minimum(np.arange(1000) * 0.003, 1.3)
    findings, _ = said("router_entropy", value)
    assert max(f.severity for f in findings) == 3
    assert min(f.detected_step for f in findings) < 2060


@pytest.mark.parametrize(
    ("role", "bad", "severities"),
    [("loss", 1, [3]), ("loss", 2, [3, 4]), ("grad_norm", 1, [1]), ("grad_norm", 3, [1, 3]), ("other", 1, [1])],
)
def test_non_finite_values_by_role_and_number(role, bad, severities):
    value = np.full(100, 2.0)
    value[50 : 50 + bad] = np.nan
    findings, _ = said(role, value)
    assert [f.severity for f in findings if f.kind == "nonfinite"] == severities
    assert {f.onset_step for f in findings if f.kind == "nonfinite"} == {50}


def test_a_burst_of_nan_is_told_once_and_recovers_after_64_finite_samples():
    value = np.full(300, 2.0)
    value[50:90] = np.inf
    findings, recoveries = said("loss", value)
    assert len([f for f in findings if f.kind == "nonfinite"]) == 2
    assert [r.step for r in recoveries if r.detector == "nonfinite"] == [153]


def test_a_learning_rate_of_zero_is_s2_at_the_third_sample_and_a_first_zero_is_warm_up():
    findings, _ = said("learning_rate", np.zeros(20))
    assert [(f.kind, f.severity, f.onset_step, f.detected_step) for f in findings] == [("plateau", 2, 0, 2)]
    assert said("learning_rate", [0.0, 0.0, *np.linspace(1e-5, 1e-3, 30)])[0] == []


def test_a_schedule_that_decays_to_zero_ended_as_planned_and_one_that_drops_did_not():
    assert said("learning_rate", [*np.linspace(1e-3, 1e-6, 50), 0, 0, 0, 0])[0] == []
    findings, _ = said("learning_rate", [*np.full(50, 1e-3), 0, 0, 0, 0])
    assert [f.onset_step for f in findings] == [50]


def test_a_rate_that_is_another_after_a_restart_is_s4_when_it_is_far_too_high():
    step = np.arange(100.0)
    rate = np.linspace(1e-3, 5e-4, 100)
    same = restarted(step, rate, step[50:], rate[50:], "lr")
    (high,) = restarted(step, rate, step[50:], rate[50:] * 16, "lr")
    (lower,) = restarted(step, rate, step[50:], rate[50:] * 0.9, "lr")
    assert same == []
    assert (high.severity, high.onset_step, high.detected_step) == (4, 50, 52)
    assert high.evidence["ratio"] == pytest.approx(16)
    assert lower.severity == 2


def test_a_metric_that_turns_exactly_zero_is_s2_and_zero_from_the_start_is_not_logged():
    findings, _ = said("grad_norm", [*np.full(40, 0.5), *np.zeros(10)])
    assert [(f.kind, f.severity, f.onset_step) for f in findings] == [("invariant", 2, 40)]
    assert said("grad_norm", np.zeros(200))[0] == []


def test_a_pause_in_the_log_is_noted_when_the_run_goes_on():
    seconds = np.cumsum(np.full(100, 20.0))
    seconds[60:] += 3600
    findings, recoveries = said("loss", 2 * np.ones(100), seconds)
    assert [(f.kind, f.severity, f.onset_step, f.detected_step) for f in findings] == [("stall", 2, 59, 60)]
    assert findings[0].magnitude == pytest.approx(3620)
    assert [r.step for r in recoveries] == [60]


def test_silence_is_judged_by_the_runs_own_pace_and_fifteen_minutes():
    assert silent_since(1000, 20, 1000 + 899) is None
    assert silent_since(1000, 20, 1000 + 901) == 901
    assert silent_since(1000, 200, 1000 + 1900) is None
    assert silent_since(1000, None, 1e9) is None


def test_few_points_are_not_checked_with_their_count():
    answers = inspect(Series(np.arange(61.0), np.linspace(2, 1, 61), role="loss", name="loss"))
    assert NotChecked("spikes", "61 of at least 112 samples", "loss") in answers


def test_overfitting_needs_two_climbs_and_a_falling_train_loss():
    evals = [1.37, 1.25, 1.31, 1.64, 1.94]
    falling = [Anchor(15.0 * k, e, 1.2 - 0.1 * k, 15.0 * k) for k, e in enumerate(evals, 1)]
    (found,), _ = scan_evals(falling, "eval_loss", {})
    assert isinstance(found, Finding)
    assert (found.kind, found.severity, found.onset_step, found.detected_step) == ("overfit", 2, 30, 60)
    rising = [Anchor(a.step, a.value, 1.0 + 0.1 * k, a.known) for k, a in enumerate(falling)]
    assert scan_evals(rising, "eval_loss", {})[0] == []


def rows(values: np.ndarray, first: int = 0) -> np.ndarray:
    block = first + np.arange(len(values))
    return np.column_stack([block, block * 160.0, values])


def group_blocks() -> dict[str, np.ndarray]:
    """Twenty constant groups, nine that grow slowly, and a gate that runs away from block 30 on."""
    at = np.arange(60.0)
    blocks = {f"constant{k}": rows(np.full(60, math.exp(5.0))) for k in range(20)}
    blocks |= {f"calm{k}": rows(np.exp(1 + 1e-3 * (1 + k / 10) * at)) for k in range(9)}
    return blocks | {"gate": rows(np.exp(1 + 0.02 * np.maximum(at - 30, 0)))}


def test_one_group_that_runs_away_is_named_and_constant_groups_are_no_peers():
    answers, _ = scan_groups(group_blocks(), {}, {})
    findings = [a for a in answers if isinstance(a, Finding)]
    assert {f.metric for f in findings} == {"gate"}
    assert findings[0].severity == 2


@settings(deadline=None)
@given(st.lists(st.integers(0, 60), max_size=6), st.integers(0, 2))
def test_groups_judged_in_slices_say_the_same(cuts, lag):
    """One leaf comes up to two blocks later than the others."""
    whole, edges = group_blocks(), [0, *sorted(cuts), 60]
    said, state = [], {}
    for low, high in pairwise([*edges, 62]):
        late = slice(max(low - lag, 0), max(high - lag, 0))
        part = {name: each[late] if name == "calm0" else each[low:high] for name, each in whole.items()}
        found, state = scan_groups(part, {}, state)
        said += found
    assert said == scan_groups(whole, {}, {})[0]


def test_a_restart_goes_on_with_the_blocks_of_its_parent():
    whole = group_blocks()
    _, state = scan_groups({name: each[:40] for name, each in whole.items()}, {}, {})
    carried = groups.carry(state, 38 * 160.0)
    again = {name: np.column_stack([np.arange(100, 122), each[38:, 1:]]) for name, each in whole.items()}
    answers, _ = scan_groups(again, {}, carried)
    assert {f.metric for f in answers if isinstance(f, Finding)} == {"gate"}
    assert min(f.detected_step for f in answers if isinstance(f, Finding)) < 45 * 160.0


def test_mann_kendall_on_blocks_holds_its_level_and_theil_sen_is_deaf_to_one_outlier():
    rng = np.random.default_rng(0)
    rejected = np.mean([mann_kendall(rng.standard_normal(40)) < 0.05 for _ in range(800)])
    assert 0.03 < rejected < 0.075
    value = np.arange(40.0)
    value[20] = 1e6
    assert theil_sen(np.arange(40.0), value) == pytest.approx(1.0)


def test_the_interval_of_a_slope_covers_it():
    step = np.arange(60.0)
    low, high = newey_west(step, 0.01 * step + 0.05 * np.random.default_rng(0).standard_normal(60))
    assert low < 0.01 < high
