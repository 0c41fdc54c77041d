"""Counts that come more often, counters that begin to rise, checkpoints that grow old, clipping that is the rule."""

import math

import numpy as np
import pytest

from detectors import Finding, Recovery, Series, inspect
from detectors.rates import tail
from detectors.suite import advance, carried


def said(role, value, detector, name="", step=None):
    steps = np.arange(len(value), dtype=float) if step is None else step
    answers = inspect(Series(steps, np.asarray(value, dtype=float), role=role, name=name))
    mine = [a for a in answers if isinstance(a, Finding | Recovery) and a.detector == detector]
    return [a for a in mine if isinstance(a, Finding)], [a for a in mine if isinstance(a, Recovery)]


def a_loss(size=14_000, seed=0):
    step = np.arange(1.0, size + 1)
    return (1.7 + 8 * step**-0.35) * np.exp(0.005 * np.random.default_rng(seed).standard_normal(size))


def flags(size=14_000, rate=0.001, seed=0):
    return (np.random.default_rng(seed).random(size) < rate).astype(float)


def test_spikes_that_come_in_a_crowd_are_paged_when_they_fill_two_percent():
    loss = a_loss()
    for at in range(10_000, 10_900, 90):
        loss[at : at + 3] *= 1.1
    findings, recoveries = said("loss", loss, "rates")
    assert [f.severity for f in findings] == [1, 2, 3]
    assert findings[0].onset_step == 10_000
    assert findings[0].detected_step <= 10_180  # the third of them
    assert findings[2].evidence["in_spikes"] >= 0.02
    assert findings[2].evidence["p"] < 1e-3
    assert [r.step for r in recoveries] == [pytest.approx(10_810 + 2 + 1000, abs=2)]


def test_spikes_at_their_usual_rate_are_no_crowd():
    loss = a_loss()
    loss[500::400] *= 1.1
    assert said("loss", loss, "rates")[0] == []


@pytest.mark.parametrize("cumulative", [False, True])
def test_skips_are_counted_as_flags_and_as_a_counter(cumulative):
    value = flags()
    value[9_000:9_040] = 1
    findings, _ = said("skipped_steps", np.cumsum(value) if cumulative else value, "rates")
    assert [f.severity for f in findings] == [1, 2, 3]
    assert findings[0].onset_step == 9_000
    assert findings[0].detected_step <= 9_010
    assert findings[-1].detected_step <= 9_025


def test_skips_at_a_steady_rate_are_quiet():
    assert said("skipped_steps", flags(60_000, 0.002, seed=3), "rates")[0] == []


def test_the_poisson_tail_is_that_of_the_formula():
    assert tail(3, 0.1) == pytest.approx(1 - math.exp(-0.1) * (1 + 0.1 + 0.005))
    assert tail(0, 5.0) == 1.0


def test_a_link_that_begins_to_recover_is_told_at_its_second_count():
    value = np.zeros(1_000)
    value[400:] = 1
    value[450:] = 2
    findings, recoveries = said("link_errors", value, "counters")
    assert [(f.severity, f.onset_step, f.detected_step) for f in findings] == [(1, 400, 400), (2, 400, 450)]
    assert [r.step for r in recoveries] == [450 + 256]


def test_one_jump_of_a_counter_is_enough():
    value = np.full(300, 7.0)
    value[100:] = 512
    findings, _ = said("link_errors", value, "counters")
    assert [(f.severity, f.detected_step, f.magnitude) for f in findings] == [(2, 100, 505.0)]


def test_a_counter_that_always_counts_or_falls_is_no_news():
    assert said("link_errors", np.arange(500) // 7, "counters")[0] == []
    fell = np.full(300, 7.0)
    fell[100:] = 0
    assert said("link_errors", fell, "counters")[0] == []


def test_a_counter_of_another_node_after_a_restart_is_no_news():
    step, before = np.arange(300.0), np.full(300, 3.0)
    _, states, start = advance(step, before, step, 0, 0, {}, name="x", role="link_errors")
    states = carried(states, 200.0)
    states["counters"] = {**states["counters"], "launch": 300}
    value = np.concatenate([before, np.full(100, 40.0)])
    at = np.arange(400.0)
    answers, _, _ = advance(at, value, at, 0, start, states, name="x", role="link_errors")
    assert [a for _, a in answers if isinstance(a, Finding)] == []
    value[350:] = 60
    answers, _, _ = advance(at, value, at, 0, start, states, name="x", role="link_errors")
    assert [a.detected_step for _, a in answers if isinstance(a, Finding)] == [350]


def saves(size=4_000, every=500, missing=()):
    step = np.arange(size)
    done = [s for s in range(0, size, every) if s not in missing]
    return np.array([max(d for d in done if d <= max(s - 20, 0)) for s in step], dtype=float)


def test_a_checkpoint_of_twice_the_interval_is_paged_and_the_next_one_ends_it():
    findings, recoveries = said("checkpoint", saves(missing=(2_500, 3_000)), "checkpoints")
    assert [(f.severity, f.kind, f.detected_step) for f in findings] == [(3, "stall", 2_000 + 2 * 520 + 1)]
    assert findings[0].onset_step == 2_520
    assert (findings[0].evidence["before"], findings[0].evidence["peak"]) == (520, 1_041)
    assert [r.step for r in recoveries] == [3_520]


def test_one_missed_save_is_within_twice_the_interval_and_a_new_interval_is_learned():
    assert said("checkpoint", saves(missing=(2_500,)), "checkpoints")[0] == []
    slower = saves(14_000, missing=[s for s in range(2_500, 14_000, 500) if s % 2_000])
    findings, _ = said("checkpoint", slower, "checkpoints")
    assert len(findings) == 2


def test_an_age_is_read_as_an_age():
    age = np.arange(3_000.0) % 300
    age[2_400:] = np.arange(600.0)
    findings, _ = said("checkpoint", 17.0 * age, "checkpoints", name="checkpoint/age_seconds")
    assert [f.detected_step for f in findings] == [2_400 + 2 * 299 + 1]
    assert said("checkpoint", 17.0 * age[:2_700], "checkpoints", name="checkpoint/age_seconds")[0] == []


def test_clipping_that_becomes_the_rule_is_told_after_two_chunks_and_a_tight_clip_is_a_note():
    value = flags(4_096, 0.05)
    value[1_024:] = flags(3_072, 0.8)
    findings, _ = said("clipped", value, "saturation")
    assert [(f.severity, f.onset_step, f.detected_step) for f in findings] == [(2, 1_024, 1_535)]
    always, _ = said("clipped", flags(4_096, 0.9), "saturation")
    assert [(f.severity, f.detected_step) for f in always] == [(1, 2_047)]
    back = np.concatenate([value, np.zeros(512)])
    assert [r.step for r in said("clipped", back, "saturation")[1]] == [4_096 + 255]


def test_spikes_far_apart_are_a_crowd_where_there_were_none_and_slices_agree_on_where_it_began():
    loss = a_loss(8_500)
    for at in range(6_250, 8_500, 500):
        loss[at : at + 5] *= 1.1
    steps = np.arange(8_500.0)
    findings, _ = said("loss", loss, "rates")
    assert [(f.severity, f.onset_step, f.detected_step) for f in findings] == [(1, 6_250, 8_250)]
    _, states, start = advance(steps[:8_000], loss[:8_000], steps[:8_000], 0, 0, {}, name="loss", role="loss")
    first = start - 1_024
    later, _, _ = advance(steps[first:], loss[first:], steps[first:], first, start, states, name="loss", role="loss")
    assert [a for _, a in later if isinstance(a, Finding) and a.detector == "rates"] == findings
