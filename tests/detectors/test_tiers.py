"""Who may call, and when the others may."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.finding import Finding, Recovery
from detectors.noise import CHUNK
from detectors.tiers import SEATS, carry, is_statistical, p_value, seated, told


def a_finding(metric, step, z, detector="evals", kind="level", severity=2, episode="e", **more):
    return Finding(
        detector, 1, kind, metric, "eval_loss", "up", step - 1, step, 0.1, "log", severity, episode, {"z": z, **more}
    )


def passes(answers, lines, cuts, newest=None):
    """Everything told when the answers and samples come in slices that end at these steps."""
    out, state, low = [], {}, -math.inf
    for high in [*cuts, math.inf]:
        part = [a for a in answers if low < (a.step if isinstance(a, Recovery) else a.detected_step) <= high]
        new = {n: (role, s[(s > low) & (s <= high)]) for n, (role, s) in lines.items()}
        new = {n: line for n, line in new.items() if len(line[1])}
        reached = min(high, newest or max(s[-1] for _, s in lines.values()))
        said, state = told(part, new, reached, json.loads(json.dumps(state)))
        out, low = [*out, *said], high
    return out


def as_set(answers):
    return sorted(json.dumps(vars(a), sort_keys=True) for a in answers)


def evals(count=60, size=30):
    return {f"eval/d{k:02}": ("eval_loss", np.arange(1.0, size + 1) * 100) for k in range(count)}


def test_seats_go_by_first_step_then_role_then_name():
    seats = seated([], 1, [(5.0, "loss", "late/loss"), (0.0, "grad_norm", "b"), (0.0, "loss", "z"), (0.0, "loss", "a")])
    assert [seat[3] for seat in seats] == ["a", "z", "b", "late/loss"]


def test_there_are_25_seats_and_nobody_is_pushed_out_later():
    first = seated([], 1, [(0.0, "mfu", f"m{k:02}") for k in range(30)])
    assert [seat[3] for seat in first] == [f"m{k:02}" for k in range(SEATS)]
    assert seated(first, 1, [(3.0, "loss", "new"), (9.0, "mfu", "m00"), (9.0, "mfu", "m27")]) == first
    assert seated(first, 2, [(0.0, "loss", "new")]) == first


@given(order=st.permutations(range(40)), cut=st.integers(0, 40))
def test_seats_do_not_depend_on_how_one_step_was_cut(order, cut):
    new = [(0.0, ["loss", "mfu", "eval_loss"][k % 3], f"m{k}") for k in order]
    assert seated(seated([], 1, new[:cut]), 1, new[cut:]) == seated([], 1, new)


def test_only_what_can_be_wrong_by_chance_needs_a_seat():
    assert is_statistical("loss", "")
    assert is_statistical("eval_loss", "c4")
    assert not is_statistical("learning_rate", "")
    assert not is_statistical("param_norm", "layer 3")
    assert not is_statistical("other", "")


def test_one_of_60_evaluations_that_moves_by_20_scatters_is_told_at_s2_and_60_by_chance_are_not():
    chance = [a_finding(f"eval/d{k:02}", 2000.0, 5 + k / 40) for k in range(60)]
    far = a_finding("eval/d07", 2000.0, 20.0)
    quiet = passes(chance, evals(), [])
    assert [a.severity for a in quiet] == [1] * 60
    one = passes([far if a.metric == far.metric else a for a in chance], evals(), [])
    assert {a.metric: a.severity for a in one if a.severity > 1} == {"eval/d07": 2}
    (loud,) = [a for a in one if a.severity > 1]
    assert loud.detected_step == 2000.0
    assert loud.evidence["second_tier"] == {"severity": 2, "p": p_value(far), "alpha": 1e-05, "tests": 11 * 60 + 8}
    assert len(one) == 60


def test_exact_kinds_and_untestable_findings_and_other_metrics_keep_their_severity():
    lines = evals(2)
    kept = [
        a_finding("eval/d00", 2000.0, 6.0, detector="nonfinite", kind="nonfinite", severity=4),
        a_finding("eval/d00", 2000.0, 6.0, detector="shifts", kind="divergence", severity=3),
        a_finding("eval/d01", 2000.0, 6.0, detector="groups", severity=2),
        a_finding("train/loss", 2000.0, 6.0),
        a_finding("eval/d00", 2000.0, 6.0, severity=0),
        replace(a_finding("eval/d00", 2000.0, 6.0, detector="throughput"), evidence={}),
    ]
    assert passes(kept, lines, []) == kept


def dense(last=5 * CHUNK):
    return {"host7/step_time": ("step_time", np.arange(float(last)))}


def a_shift(step):
    return a_finding("host7/step_time", step, 8.0, detector="shifts", samples_out=30)


def test_a_shift_that_lasts_is_told_at_once_and_raised_at_the_end_of_its_window():
    found = a_shift(2.5 * CHUNK)
    first, second = passes([found], dense(), [2.6 * CHUNK])
    assert (first.severity, first.detected_step) == (1, 2.5 * CHUNK)
    assert (second.severity, second.detected_step) == (2, 3 * CHUNK - 1)
    assert second == replace(found, severity=2, detected_step=3.0 * CHUNK - 1, evidence=second.evidence)


def test_what_is_said_at_the_end_of_its_window_is_told_once():
    (only,) = passes([a_shift(3.0 * CHUNK - 1)], dense(), [])
    assert (only.severity, only.detected_step) == (2, 3 * CHUNK - 1)


def test_what_is_over_before_its_window_ends_is_not_raised():
    over = Recovery("shifts", "host7/step_time", "e", 2.8 * CHUNK)
    for cuts in ([], [2.6 * CHUNK], [2.6 * CHUNK, 2.9 * CHUNK]):
        said = passes([a_shift(2.5 * CHUNK), over], dense(), cuts)
        assert [a.severity for a in said if isinstance(a, Finding)] == [1]
    late = Recovery("shifts", "host7/step_time", "e", 3.0 * CHUNK)
    said = passes([a_shift(2.5 * CHUNK), late], dense(), [])
    assert [a.severity for a in said if isinstance(a, Finding)] == [1, 2]


def test_a_look_at_every_sample_is_paid_for():
    by_sample = a_finding("m", 9.0, 6.0, detector="spikes", kind="spike")
    assert p_value(by_sample) == pytest.approx(CHUNK * p_value(replace(by_sample, detector="evals")))
    assert p_value(a_finding("m", 9.0, 0.1, detector="spikes", kind="spike")) == 1
    assert p_value(a_finding("m", 9.0, 6.0, detector="direction", kind="trend", p=1e-4)) == 1e-4


def test_a_metric_that_stopped_holds_nobody_up_for_more_than_two_windows():
    lines = evals(3)
    lines["eval/d01"] = ("eval_loss", lines["eval/d01"][1][:19])
    found = a_finding("eval/d00", 2000.0, 20.0)
    until = {n: (role, s[s <= 2000]) for n, (role, s) in lines.items()}
    said, state = told([found], until, 2150.0, {})
    assert said == []
    said, state = told([], {}, 2200.0, state)
    assert said == []
    said, state = told([], {}, 2201.0, state)
    assert [a.severity for a in said] == [2]
    assert not state["queue"]


def test_an_evaluation_that_is_not_due_is_not_waited_for():
    lines = {**evals(3), "eval/rare": ("eval_loss", np.arange(1.0, 4) * 1000)}
    found = a_finding("eval/d00", 2500.0, 20.0)
    until = {n: (role, s[s <= 2500]) for n, (role, s) in lines.items()}
    assert told([found], until, 2500.0, {})[0] == []
    assert [a.severity for a in told([found], until, 2501.0, {})[0]] == [2]


def test_a_new_attempt_goes_on_with_the_count_of_its_parent():
    _, state = told([], evals(), 3000.0, {})
    assert carry(state) == {"memory": {"tests": 60 * 22, "rejected": []}}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_slices_give_the_same_to_the_bit(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 5)))
    lines = {**evals(5), **dense(3000), "eval/rare": ("eval_loss", np.array([700.0, 1400, 2350, 2800]))}
    answers = []
    for k in range(40):
        name = list(lines)[int(rng.integers(len(lines)))]
        step = float(rng.choice(lines[name][1][2:]))
        z = float(rng.choice([5.0, 7, 9, 12, 30]))
        detector = "shifts" if name in dense() else "evals"
        answers.append(a_finding(name, step, z, detector=detector, episode=str(k), samples_out=20))
        if k % 3 == 0:
            answers.append(Recovery(detector, name, str(k), float(lines[name][1][lines[name][1] >= step][:40][-1])))
    answers.sort(key=lambda a: a.step if isinstance(a, Recovery) else a.detected_step)
    cuts = sorted(data.draw(st.lists(st.integers(1, 3000).map(float), max_size=8)))
    whole = passes(answers, lines, [], newest=3001)
    assert {a.severity for a in whole if isinstance(a, Finding)} == {1, 2}
    assert as_set(passes(answers, lines, cuts, newest=3001)) == as_set(whole)
