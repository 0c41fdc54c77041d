"""Which alarm answers which truth, and what the numbers made of it are worth; all figures by hand."""

from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
import pytest
import score
from cases import Alarm, Case, Truth
from match import match
from readings import Readings
from scipy.stats import poisson

LOSS = Truth("spike", "spike", frozenset({"loss"}), 100, 102, 150, 2, ("loss_spike_fast",))


def alarm(step, role="loss", severity=2, **more):
    return Alarm(step, more.pop("onset", step), more.pop("metric", "train/loss"), role, severity, **more)


@cache
def readings(steps=1_000, every=1):
    rows = pl.DataFrame({"step": np.arange(0.0, steps, every), "name": "train/loss", "value": 1.0})
    return Readings(rows, np.arange(0.0, steps), len(rows), 30.0)


def case(*truths, name="a", family="injected", half="tuning"):
    return Case(name, family, half, "log.parquet", truths)


@pytest.mark.parametrize(("step", "found"), [(91, False), (92, True), (150, True), (151, False)])
def test_the_window_reaches_from_eight_steps_before_the_onset_to_the_end(step, found):
    said = match([LOSS], [alarm(step)])
    assert (said.answered[0][1] is not None) == found
    assert len(said.false) == (not found)


def test_an_alarm_of_another_role_is_a_false_alarm():
    said = match([LOSS], [alarm(100, role="mfu")])
    assert said.answered == ((LOSS, None),)
    assert len(said.false) == 1


def test_the_first_alarm_answers_and_the_others_are_duplicates():
    said = match([LOSS], [alarm(130), alarm(101), alarm(140)])
    assert said.answered[0][1].step == 101
    assert (said.matched, said.duplicates, said.false) == (1, 2, ())


def test_two_faults_at_once_need_two_alarms():
    both = [LOSS, replace(LOSS, onset=110)]
    assert [a is None for _, a in match(both, [alarm(120)]).answered].count(True) == 1
    assert [a.step for _, a in match(both, [alarm(105), alarm(120)]).answered] == [105, 120]


def test_the_hungarian_match_finds_as_many_as_can_be_found():
    # the first alarm fits both truths, the second one only the wide truth: greedily the narrow one would be missed
    wide, narrow = replace(LOSS, end=300), replace(LOSS, end=110)
    said = match([wide, narrow], [alarm(100), alarm(200)])
    assert [a.step for _, a in said.answered] == [200, 100]


def test_a_note_answers_a_truth_of_severity_1_and_no_other():
    assert match([LOSS], [alarm(100, severity=1)]).answered[0][1] is None
    said = match([replace(LOSS, severity=1)], [alarm(100, severity=1)])
    assert said.answered[0][1] is not None
    assert (said.matched, said.notes) == (0, 1)


def test_severity_0_is_neither_alarm_nor_note():
    said = match([replace(LOSS, severity=1)], [alarm(100, severity=0)])
    assert (said.answered[0][1], said.notes, said.false) == (None, 0, ())


def test_a_twin_is_paged_by_alarms_and_not_by_notes():
    twin = replace(LOSS, benign=True)
    said = match([twin], [alarm(100, severity=1), alarm(101), alarm(102, severity=3)])
    assert said.twins == ((twin, 2),)
    assert (said.answered, said.false, said.duplicates) == ((), (), 0)


def test_a_fault_beside_a_twin_takes_the_alarm():
    said = match([replace(LOSS, benign=True), LOSS], [alarm(100)])
    assert said.answered[0][1] is not None
    assert said.twins[0][1] == 0


def test_delays_are_counted_in_samples_steps_and_minutes_from_the_onset():
    said = [alarm(120, onset=104, patterns=("other", "loss_spike_fast"))]
    (answer,) = score.judge(case(LOSS), said, readings(every=10)).answers
    assert (answer.steps, answer.samples, answer.minutes) == (20, 2, 10.0)
    assert (answer.from_visible, answer.confirmation, answer.onset_error) == (18, 16, 4)
    assert (answer.top1, answer.top3) == (False, True)


def test_a_row_adds_up():
    twin = replace(LOSS, benign=True, onset=500, end=550)
    judged = [
        score.judge(case(LOSS, name="a"), [alarm(110), alarm(120), alarm(400)], readings()),
        score.judge(case(LOSS, twin, name="b"), [alarm(510), alarm(10, severity=1)], readings()),
        score.judge(case(name="c", family="recorded"), [alarm(1), alarm(2, severity=1)], readings()),
        score.judge(case(name="d", family="null"), [], readings()),
        score.broken(case(LOSS, name="e"), "ValueError: no"),
    ]
    row = score.row(judged)
    assert (row["found"], row["truths"], row["broken"]) == (1, 3, 1)
    assert row["alarms"] == {"matched": 1, "duplicates": 1, "false": 2, "twins": 1}
    assert row["precision"] == pytest.approx(1 / 4)
    assert row["f1"] == pytest.approx(2 / 7)
    assert row["twins"] == {"runs": 1, "paged": 1}
    assert row["healthy"]["per_100k"] == pytest.approx(100)
    assert row["healthy"]["notes_per_1000"] == pytest.approx(1)
    assert (row["null"]["alarms"], row["null"]["samples"]) == (0, 1_000)
    assert (row["delay"]["found"], row["delay"]["missed"]) == (1, 2)
    assert row["delay"]["steps"] == {"median": 10, "p90": 10}
    # three false pages in 3,000 steps are 100 per 100,000: three of the six decades of budgets are met
    assert row["score"] == pytest.approx(1 / 3 * 3 / 6)


def test_the_upper_limit_is_that_of_the_poisson_distribution():
    assert score.upper_limit(0, 72_000) == pytest.approx(4.16, abs=0.01)
    assert poisson.cdf(3, score.upper_limit(3, 1, per=1)) == pytest.approx(0.05)


def test_whoever_says_everything_or_nothing_is_worse_than_half_an_oracle():
    def scored(system):
        judged = [score.judge(c, system(c), readings()) for c in cases]
        return score.row(judged)

    places = range(100, 900, 40)
    cases = [case(replace(LOSS, onset=at, visible=at, end=at + 50), name=str(at)) for at in places]
    oracle = scored(lambda c: [alarm(c.truths[0].onset)])
    half = scored(lambda c: [alarm(c.truths[0].onset)] if c.truths[0].onset % 80 == 20 else [])
    noisy = scored(lambda c: [alarm(at) for at in range(0, 1_000, 25)])
    everything = scored(lambda c: [alarm(at) for at in range(1_000)])
    nothing = scored(lambda c: [])
    assert oracle["score"] == 1.0
    assert half["score"] == pytest.approx(half["recall"]) == pytest.approx(0.5)
    assert noisy["recall"] == everything["recall"] == 1.0
    assert 0.1 < noisy["score"] < half["score"]
    assert nothing["score"] == 0.0
    assert everything["score"] < 0.01


def test_a_truth_of_severity_0_is_answered_by_an_annotation_of_its_kind_or_by_anything_louder():
    back = replace(LOSS, kind="rewind", severity=0)
    note = replace(alarm(100, severity=0), kind="spike")
    assert match([back], [note]).answered[0][1] is None
    assert match([back], [note, replace(note, step=110, kind="rewind")]).answered[0][1].step == 110
    assert match([back], [alarm(120)]).answered[0][1].step == 120
