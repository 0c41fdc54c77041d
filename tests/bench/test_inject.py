"""Injected faults: the base run up to the onset, the asked effect after it, and nothing at amplitude 0."""

from functools import cache

import base
import inject
import numpy as np
import polars as pl
import pytest
from cases import Case
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import recorded_cases

FAULTS = st.sampled_from(sorted(inject.FAULTS))
SEEDS = st.integers(1, 10_000)


@cache
def healthy():
    return base.base_of(next(case for case in recorded_cases() if case.name == "runs/healthy"))


@cache
def made():
    return base.base_of(base.made_cases()[0])


def measured(run, frame, name):
    return frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy()[-len(run.frame) :], run.values(name)


@given(FAULTS, SEEDS)
@settings(max_examples=12, deadline=None)
def test_amplitude_0_changes_nothing(fault, seed):
    frame, _, _ = inject.inject(healthy(), fault, 0.0, seed)
    assert frame.equals(healthy().frame)


@given(FAULTS, SEEDS, st.data())
@settings(max_examples=20, deadline=None)
def test_before_the_onset_the_log_is_that_of_the_base_run_to_the_bit(fault, seed, data):
    run, amplitude = healthy(), data.draw(st.sampled_from(inject.FAULTS[fault].ladder))
    run = run if inject.possible(run, fault) else made()
    frame, truth, _ = inject.inject(run, fault, float(amplitude), seed)
    at, _ = inject.place(run, fault, seed)
    steps = frame[run.step].to_numpy()
    back = np.flatnonzero(np.diff(steps) <= 0)
    before = int(back[0]) + 1 if len(back) else int(np.searchsorted(steps, truth.onset))
    assert abs(before - at) <= 10
    assert frame[:before].equals(run.frame[:before])
    assert frame.schema == run.frame.schema
    assert truth.onset <= truth.visible <= truth.end <= steps.max()
    assert not frame.equals(run.frame)


@given(FAULTS, SEEDS)
@settings(max_examples=4, deadline=None)
def test_the_same_seed_gives_the_same_case(fault, seed):
    amplitude = float(inject.FAULTS[fault].ladder[-1])
    first, second = (inject.inject(healthy(), fault, amplitude, seed) for _ in range(2))
    assert first[0].equals(second[0])
    assert first[1:] == second[1:]


@given(SEEDS, st.sampled_from([0.5, 1.0, 2.0, 4.0]))
@settings(max_examples=4, deadline=None)
def test_a_level_shift_is_as_many_sigmas_high_as_asked(seed, amplitude):
    run = healthy()
    frame, truth, _ = inject.inject(run, "level_shift", amplitude, seed)
    new, old = measured(run, frame, "train/loss")
    shift = np.log(new / old)[truth.onset :] / base.sigma(old, truth.onset)
    assert shift == pytest.approx(amplitude, rel=1e-4)


@given(SEEDS, st.sampled_from([0.05, 0.4]))
@settings(max_examples=5, deadline=None)
def test_a_slower_run_loses_the_asked_share_of_speed_and_its_clock_runs_on(seed, amplitude):
    run = made()
    frame, truth, _ = inject.inject(run, "throughput_level", amplitude, seed)
    for name, factor in (("throughput/mfu", 1 - amplitude), ("throughput/duration", 1 / (1 - amplitude))):
        new, old = measured(run, frame, name)
        assert new[truth.onset :] / old[truth.onset :] == pytest.approx(factor, rel=1e-4)
    new, old = measured(run, frame, run.clock)
    assert np.diff(new)[truth.onset :] == pytest.approx(np.diff(old)[truth.onset :] / (1 - amplitude), abs=1e-5)


def test_a_stall_takes_as_many_minutes_as_asked():
    run = healthy()
    frame, _, _ = inject.inject(run, "stall", 15.0, 3)
    new, old = measured(run, frame, run.clock)
    assert (new - old)[-1] == pytest.approx(900, rel=0.3)  # the step that hangs is itself slower or faster than most


def test_the_spread_grows_by_the_asked_factor():
    run = healthy()
    frame, truth, _ = inject.inject(run, "variance", 1.0, 3)
    new, old = measured(run, frame, "train/loss")
    wide = np.log(new[truth.onset :])
    tight = np.log(old[truth.onset :])
    assert base.sigma(np.exp(wide), len(wide)) / base.sigma(np.exp(tight), len(tight)) == pytest.approx(2, rel=0.1)


def test_a_burst_of_nan_is_as_long_as_asked_and_a_missing_value_stays_missing():
    run = healthy()
    frame, _, _ = inject.inject(run, "nan_burst", 50.0, 3)
    assert frame["train/loss"].is_nan().sum() == 50
    assert frame["grad/norm/total"].null_count() == run.frame["grad/norm/total"].null_count()
    assert frame["grad/norm/total"].is_nan().sum() == 5  # it is logged every tenth step


def test_a_rewind_repeats_the_asked_steps():
    run = healthy()
    frame, truth, _ = inject.inject(run, "rewind", 200.0, 3)
    steps = frame[run.step].to_numpy()
    (at,) = np.flatnonzero(np.diff(steps) < 0)
    assert (len(frame) - len(run.frame), steps[at] - steps[at + 1] + 1) == (200, 200)
    assert truth.onset == steps[at + 1]
    assert (np.diff(frame[run.clock].to_numpy()) > 0).all()


def test_one_gradient_norm_is_corrupt_and_it_was_logged():
    run = healthy()
    frame, truth, _ = inject.inject(run, "sdc", 2.0, 3)
    new, old = measured(run, frame, "grad/norm/total")
    (row,) = np.flatnonzero(np.isfinite(old) & (new != old))
    assert new[row] / old[row] == pytest.approx(100, rel=1e-4)
    assert truth.onset == truth.visible == row


def test_a_twin_is_benign_and_its_event_is_known_before():
    _, truth, (event,) = inject.inject(healthy(), "twin_data_mix", 2.0, 3)
    assert truth.benign
    assert event["kind"] == "data_mix"
    assert event["recorded_at_step"] < event["step"] == truth.onset


def test_a_case_is_a_small_file_of_the_base_runs_half(tmp_path):
    case = inject.write(healthy(), "resume_hot_rate", 2.0, 3, tmp_path)
    assert isinstance(case, Case)
    assert (case.family, case.half) == ("injected", "tuning")
    assert [t.fault for t in case.truths] == ["resume_hot_rate", "rewind"]
    assert case.log.stat().st_size < 1_000_000
    assert {r.role for r in healthy().roles.values()} == set(base.CORE) - base.SPEED


def test_bases_are_the_healthy_recordings_and_then_the_stretches_before_a_fault():
    names = [case.name for case in base.choose(recorded_cases()) if case.name.startswith("runs/")]
    assert names[0] == "runs/healthy"
    (case,) = base.choose(recorded_cases(), ["runs/capacity_cut"])
    run = base.base_of(case)
    assert run.frame["global_step"].max() == 1_999
    assert not run.named(*base.SPEED)  # other work on the computer: its slow-downs are real
    assert inject.possible(run, "spike")
    assert not inject.possible(run, "throughput_level")
