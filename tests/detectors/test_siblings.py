"""One evaluation that moves alone, all that jump together, and evaluations that only do what evaluations do."""

import math

import numpy as np
import pytest

from detectors import Finding, Recovery
from detectors.siblings import carry, scan

POINTS, EVALS = 40, 8


def losses(seed=0, evals=EVALS):
    """Evaluation losses of one model: each with its own level and noise, and noise that they share."""
    rng = np.random.default_rng(seed)
    course = 2 + 6 * (1000.0 * np.arange(1, POINTS + 1)) ** -0.2
    shared = 0.001 * rng.standard_normal(POINTS)
    own = 0.002 * rng.standard_normal((evals, POINTS))
    return course * np.exp(shared + own) * np.linspace(0.8, 1.6, evals)[:, None]


def rows(value, every=1000.0, name="eval/set{}/loss"):
    step = every * np.arange(1, value.shape[1] + 1)
    return {name.format(k): np.column_stack([step, step, each]) for k, each in enumerate(value)}


def judged(value, role="eval_loss", name="eval/set{}/loss"):
    new = rows(value, name=name)
    return scan(new, dict.fromkeys(new, (role, "")), {})


@pytest.mark.parametrize("seed", range(5))
def test_evaluations_with_noise_of_their_own_and_noise_they_share_are_quiet(seed):
    assert judged(losses(seed))[0] == []


def test_one_that_jumps_alone_is_named_at_its_second_point():
    value = losses()
    value[3, 25:] *= 1.04
    (found, *_), _ = judged(value)
    assert (found.kind, found.severity, found.metric, found.direction) == ("level", 2, "eval/set3/loss", "up")
    assert (found.onset_step, found.detected_step) == (pytest.approx(26_000, abs=10), 27_000)
    assert found.magnitude == pytest.approx(math.log(1.04), abs=0.01)
    assert found.evidence["after"] / found.evidence["before"] == pytest.approx(1.04, abs=0.01)
    assert (found.evidence["alone"], found.evidence["evals"], found.evidence["evals_out"]) == (1, EVALS, 1)


def test_one_that_gets_better_alone_is_a_note():
    value = losses()
    value[3, 25:] /= 1.04
    (found, *_), _ = judged(value)
    assert (found.severity, found.direction) == (1, "down")


def test_a_level_that_comes_back_ends():
    value = losses()
    value[3, 25:29] *= 1.06
    said, _ = judged(value)
    assert [(type(each).__name__) for each in said][:2] == ["Finding", "Recovery"]
    assert said[1].step == 31_000


def test_a_lone_bad_point_is_nothing():
    value = losses()
    value[3, 25] *= 1.06
    assert judged(value)[0] == []


def test_all_at_one_point_are_said_once_and_at_that_point():
    value = losses()
    value[:, 25:] *= 1.05
    (found, over), _ = judged(value)
    assert (found.kind, found.severity, found.onset_step, found.detected_step) == ("level", 1, 26_000, 26_000)
    assert (found.evidence["together"], found.evidence["evals_out"]) == (1, EVALS)
    assert isinstance(over, Recovery)


def test_all_that_get_better_at_once_are_an_annotation():
    value = losses()
    value[:, 25:] /= 1.05
    assert [a.severity for a in judged(value)[0] if isinstance(a, Finding)] == [0]


def test_a_score_that_falls_slowly_while_the_others_rise_is_found_and_gets_graver():
    rng = np.random.default_rng(1)
    value = np.linspace(0.6, 0.66, 16) + 0.006 * rng.standard_normal((6, 16))
    value[2] += np.linspace(0, 0.547 - 0.66, 16)
    said, _ = judged(value, "eval_score", "lm_eval/task{}/acc")
    assert {(a.metric, a.kind, a.direction) for a in said} == {("lm_eval/task2/acc", "trend", "down")}
    assert [a.severity for a in said][-1] == 2
    assert said[0].onset_step == 1000


def test_a_falling_error_rate_is_no_loss_of_skill():
    rng = np.random.default_rng(1)
    value = np.linspace(0.6, 0.66, 16) + 0.006 * rng.standard_normal((6, 16))
    value[2] = np.linspace(0.3, 0.2, 16) + 0.006 * rng.standard_normal(16)
    assert judged(value, "eval_score", "eval/task{}/acc")[0] != []
    assert judged(value, "eval_score", "eval/task{}/wer")[0] == []


def test_two_that_fall_together_are_nobody_s_own_fault():
    value = losses()
    value[2:6, 20:] *= np.exp(0.004 * np.arange(20))
    assert [a for a in judged(value)[0] if "alone" in getattr(a, "evidence", {})] == []


def test_four_evaluations_are_too_few():
    value = losses(evals=4)
    value[3, 25:] *= 1.2
    assert judged(value)[0] == []


def test_a_point_waits_for_an_evaluation_that_is_late_but_not_for_ever():
    value = losses()
    value[3, 25:] *= 1.04
    new = rows(value)
    leaves = dict.fromkeys(new, ("eval_loss", ""))
    whole, _ = scan(new, leaves, {})
    late = {name: each[:20] if name == "eval/set6/loss" else each for name, each in new.items()}
    first, state = scan(late, leaves, {})
    assert [a.detected_step for a in first] == [whole[0].detected_step + 2000]
    apart, state = scan(
        {name: each[:26] if name == "eval/set6/loss" else each[:27] for name, each in new.items()}, leaves, {}
    )
    assert apart == []
    after, _ = scan(
        {name: each[26:] if name == "eval/set6/loss" else each[27:] for name, each in new.items()}, leaves, state
    )
    assert after == whole


def test_a_restart_keeps_the_lines_and_forgets_what_lies_behind_it():
    value = losses()
    value[3, 25:] *= 1.04
    new = rows(value)
    leaves = dict.fromkeys(new, ("eval_loss", ""))
    _, state = scan({name: each[:30] for name, each in new.items()}, leaves, {})
    carried = carry(state, 24_500.0)
    assert {len(each) for each in carried["lines"].values()} == {10}
    again, _ = scan({name: each[24:] for name, each in new.items()}, leaves, carried)
    assert [(a.metric, a.detected_step) for a in again if isinstance(a, Finding)][:1] == [("eval/set3/loss", 27_000)]
