"""Divergence, spikes and shifts of a loss: what is said, where, how loud."""

import numpy as np
import pytest

from detectors import Finding, Recovery, Series, inspect


def loss(size=2000, noise=0.01, seed=0):
    step = np.arange(1, size + 1, dtype=float)
    return step, (1.7 + 8 * step**-0.35) * np.exp(noise * np.random.default_rng(seed).standard_normal(size))


def said(value, step=None, role="loss", events=(), **rest):
    step = np.arange(1, len(value) + 1, dtype=float) if step is None else step
    answers = inspect(Series(step, value, role=role, **rest), events)
    return [a for a in answers if isinstance(a, Finding)], [a for a in answers if isinstance(a, Recovery)]


def test_a_healthy_loss_is_quiet():
    findings, recoveries = said(loss(20_000)[1])
    assert [f for f in findings if f.severity >= 1] == []
    assert recoveries == []


def test_a_loss_that_doubles_and_stays_is_a_page_at_its_second_sample():
    step, value = loss()
    value[1500:] *= 3
    findings, _ = said(value, step)
    first = next(f for f in findings if f.detector == "divergence")
    assert (first.severity, first.onset_step, first.detected_step) == (3, 1501, 1502)
    assert first.evidence["before"] == pytest.approx(2.3, rel=0.05)
    assert max(f.severity for f in findings) == 4  # 25 samples later it is still there


@pytest.mark.parametrize("at", [5, 255, 256, 263, 1500])
def test_other_data_that_was_declared_begins_a_new_best(at):
    step, value = loss()
    value[at:] *= 3
    declared = [{"kind": "data_mix", "step": float(step[at])}]
    assert [f for f in said(value, step, events=declared)[0] if f.kind == "divergence"] == []
    assert [f for f in said(value, step)[0] if f.kind == "divergence"] != []


@pytest.mark.parametrize("later", [3, 40, 400])
def test_what_blows_up_after_a_declared_change_is_still_told(later):
    step, value = loss()
    value[1500:] *= 1.2
    value[1500 + later :] *= 10
    (first, *_) = [
        f for f in said(value, step, events=[{"kind": "data_mix", "step": 1501.0}])[0] if f.kind == "divergence"
    ]
    assert (first.severity, first.onset_step, first.detected_step) == (3, 1501 + later, 1502 + later)


def test_divergence_needs_no_history():
    findings, _ = said(np.array([1.4, 3.3, 24.2, 26.4]))
    assert [(f.kind, f.severity, f.onset_step, f.detected_step) for f in findings] == [("divergence", 3, 2, 3)]


def test_one_high_sample_among_the_first_is_no_divergence():
    findings, _ = said(np.array([1.4, 1.3, 5.0, 1.3, 1.2, 1.3]))
    assert findings == []


def test_noise_near_zero_is_no_divergence():
    rng = np.random.default_rng(1)
    value = np.concatenate([np.linspace(2, 0.01, 50), 0.01 * np.exp(0.5 * rng.standard_normal(200))])
    findings, _ = said(value)
    assert [f for f in findings if f.kind == "divergence"] == []


def test_an_explosion_that_falls_back_recovers():
    step, value = loss()
    value[1000:1030] *= 5
    findings, recoveries = said(value, step)
    episode = next(f.episode for f in findings if f.detector == "divergence")
    back = next(r.step for r in recoveries if r.detector == "divergence" and r.episode == episode)
    assert 1031 < back <= 1045
    assert max(f.severity for f in findings if f.detector == "divergence") <= 4


def test_a_lone_spike_is_a_note_and_soon_over():
    step, value = loss()
    value[1500] *= 1.5
    findings, recoveries = said(value, step)
    assert [(f.detector, f.kind, f.severity, f.onset_step, f.detected_step) for f in findings] == [
        ("spikes", "spike", 1, 1501, 1501)
    ]
    assert findings[0].magnitude == pytest.approx(np.log(1.5), abs=0.05)
    assert [r.step for r in recoveries] == [1504]


def test_two_of_three_samples_are_s2():
    step, value = loss()
    value[[1500, 1502]] *= 1.5
    findings, _ = said(value, step)
    assert [(f.severity, f.detected_step) for f in findings if f.detector == "spikes"] == [(1, 1501), (2, 1503)]


def test_the_tail_of_one_bad_sample_is_not_a_second_one():
    step, value = loss()
    value[1500:1503] *= [1.5, 1.08, 1.02]
    findings, _ = said(value, step)
    assert [f.severity for f in findings if f.detector == "spikes"] == [1]


def test_a_spike_that_settles_worse_is_a_page():
    step, value = loss(2500)
    value[1500:1503] *= 1.6
    value[1500:] *= 1.05
    findings, _ = said(value, step)
    worse = next(f for f in findings if f.detector == "spikes" and f.kind == "level")
    assert worse.severity == 3
    assert worse.onset_step == 1501
    assert worse.detected_step <= 1501 + 176


@pytest.mark.parametrize("share", [1.015, 1.03])
def test_a_small_shift_that_stays_is_found_where_it_began(share):
    step, value = loss(4000, noise=0.005)
    value[3000:] *= share
    findings, _ = said(value, step)
    shift = next(f for f in findings if f.detector == "shifts")
    assert (shift.kind, shift.severity, shift.direction) == ("level", 2, "up")
    assert abs(shift.onset_step - 3001) <= 5
    assert shift.detected_step - 3001 <= 60


def test_a_benign_step_down_is_annotated_only():
    step, value = loss(3000)
    value[2000:] *= 0.6
    findings, _ = said(value, step)
    assert {f.severity for f in findings} == {0}
    assert {f.direction for f in findings} == {"down"}


def test_a_loss_that_only_falls_more_slowly_is_no_shift():
    step = np.arange(1, 6001, dtype=float)
    value = np.where(step < 3000, 5 - step * 5e-4, 3.5 - (step - 3000) * 1e-4) * np.exp(
        0.005 * np.random.default_rng(0).standard_normal(6000)
    )
    findings, _ = said(value, step)
    assert [f for f in findings if f.severity >= 2] == []


def test_a_shift_that_keeps_rising_becomes_a_divergence():
    step, value = loss(3000)
    value[2000:] *= np.exp(0.002 * np.arange(1000))
    findings, _ = said(value, step)
    assert {f.kind for f in findings if f.severity == 3} >= {"divergence"}


def test_autocorrelated_noise_is_scaled_not_alarmed():
    rng = np.random.default_rng(4)
    noise = np.zeros(20_000)
    for i, shock in enumerate(rng.standard_normal(20_000)):
        noise[i] = 0.8 * noise[i - 1] + 0.6 * shock
    findings, _ = said(2.0 * np.exp(0.01 * noise))
    assert [f for f in findings if f.detector == "shifts"] == []


def far_and_back(peak, calm=900, out=48, back=96):
    """A loss that leaves its curve by `peak` (log) for `out` samples, and comes back over `back` samples."""
    value = loss(2600)[1]
    rise = np.zeros(len(value))
    rise[calm : calm + out] = np.linspace(0.02, peak, out)
    rise[calm + out : calm + out + back] = np.linspace(peak, 0.03, back)
    # something is left of it for good: the curve is not reached again, only what stood before
    rise[calm + out + back :] = 0.015
    return value * np.exp(rise)


def test_a_loss_that_stands_far_above_its_curve_pages_though_it_is_not_twice_its_best():
    found, over = said(far_and_back(0.55))
    (paged,) = [f for f in found if f.detector == "shifts" and f.severity == 3]
    assert paged.kind == "divergence"
    assert 915 <= paged.detected_step - 1 <= 960
    assert paged.evidence["after"] > 1.3 * paged.evidence["before"]
    assert not [f for f in said(far_and_back(0.25))[0] if f.severity == 3 and f.detector == "shifts"]
    # and it is over when it stands no higher than before it began
    (end,) = [o for o in over if o.detector == "shifts"]
    assert 1044 < end.step < 1500


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_spike_that_is_followed_by_no_loss_at_all_is_one_of_one_sample(value):
    loss_ = loss(900)[1]
    loss_[600:602] = [6.0, value]
    (found,) = [f for f in said(loss_)[0] if f.detector == "spikes"]
    assert (found.severity, found.onset_step, found.detected_step) == (1, 601, 601)
