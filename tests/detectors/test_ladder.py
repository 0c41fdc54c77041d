"""Expectations from smaller runs: the recorded ladder, made ladders, and what departs from them."""

import json
from dataclasses import replace
from itertools import pairwise

import ladder_faults as recorded
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors import departure, given_loss, ladder_fit
from detectors.finding import Finding, Recovery
from detectors.ladder_law import schedule_of
from detectors.ladder_rungs import CENTRES, START, Line, Rung, refused

LARGE = 3e6


def made(parameters: float, name: str = "", ended: float = 1.0, seed: int = 0, **settings_: str) -> Rung:
    """A rung by a law of its own: loss 1.2 + 30 N^-0.25 (1 + 0.5 u^-0.4), 0.5 % of noise, a rate that falls to zero."""
    rng = np.random.default_rng([seed, int(parameters)])
    at = np.arange(1, int(2000 * ended)) / 2000
    loss = 1.2 + 30 * parameters**-0.25 * (1 + 0.5 * at**-0.4) * 0.5
    lines = {
        "loss": Line("loss", at, loss * np.exp(0.005 * rng.standard_normal(len(at)))),
        "lr": Line("learning_rate", at, np.minimum(at / 0.05, 1 - at)),
        "gn": Line("grad_norm", at, np.exp(-((at - 0.3) ** 2) / 0.1 + 0.05 * rng.standard_normal(len(at)))),
        "drop": Line("token_drop", at, 0.02 * np.exp(0.2 * rng.standard_normal(len(at))) * parameters**-0.05),
        "eval": Line("eval_loss", at[99::100], loss[99::100] * 1.02),
    }
    return Rung(name or f"r{parameters:g}", parameters, lines, settings_)


def only(rung_: Rung, *names: str) -> Rung:
    """A rung with some of its metrics."""
    return replace(rung_, lines={name: rung_.lines[name] for name in names})


RUNGS = [made(1e5), made(3e5), made(6e5, ended=0.81), made(1e6)]


@pytest.fixture(scope="module")
def body():
    return ladder_fit.fit(RUNGS, LARGE, {})


def judged(body, name, at, value, state=None):
    one = body["metrics"][name]
    expected = {**one, "at": body["at"], "per_step": 1 / 2000, "parameters": LARGE, "tokens": 1e9}
    return departure.scan(at * 2000, value, name, one["role"], expected, state or {})


def findings(answers):
    return [a for a in answers if isinstance(a, Finding)]


def test_the_end_of_a_larger_run_is_predicted_and_the_body_is_json(body):
    truth = made(LARGE).lines["loss"]
    end = float(np.exp(np.log(truth.value[truth.at >= 0.95]).mean()))
    final = body["metrics"]["loss"]["final"]
    assert final["value"] == pytest.approx(end, rel=0.01)
    assert final["low"] < end < final["high"]
    assert json.loads(json.dumps(body)) == body


def test_a_rung_that_ended_early_is_kept_and_widens_what_lies_behind_its_end(body):
    loss = body["metrics"]["loss"]
    assert [r["censored"] for r in body["rungs"]] == [False, False, True, False]
    assert loss["censored_from"] == pytest.approx(0.81, abs=0.01)
    assert "r600000" in loss["rungs"]
    for name in ("gn", "drop"):
        sd = np.array(body["metrics"][name]["sd"])
        assert sd[CENTRES > 0.82] == pytest.approx(sd[0] * np.sqrt(4 / 3))
        assert sd[CENTRES < 0.79] == pytest.approx(sd[0])


def test_the_rate_of_a_rung_that_ended_goes_on_as_the_others():
    full = RUNGS[0].rate()
    assert full is not None
    half = Line("learning_rate", full.at[:1000], full.value[:1000])
    whole, pooled = schedule_of(full, []), schedule_of(half, [full])
    assert pooled.done == pytest.approx(whole.done, abs=1e-3)
    assert pooled.fallen == pytest.approx(whole.fallen, abs=1e-3)


def test_what_ran_otherwise_is_refused_where_it_matters_with_the_reason():
    other = made(3e5, name="pooled", backend="pooled")
    why = refused(other, {"backend": "ragged"})
    assert why["token_drop"] == "pooled ran with backend pooled, the large run with ragged"
    assert "loss" not in why
    assert refused(other, {}) == {}  # nobody said what the large run has
    rungs = [only(each, "loss", "drop") for each in (made(1e5), other, made(1e6))]
    found = ladder_fit.fit(rungs, LARGE, {"backend": "ragged"})
    assert "loss" in found["metrics"]
    assert "pooled ran with backend pooled" in found["not_expected"]["drop"]
    assert "token_drop" in found["refused"]["pooled"]
    with pytest.raises(ValueError, match="2 of at least 3 rungs"):
        ladder_fit.fit(RUNGS[:2], LARGE, {})


def test_rungs_of_one_size_give_a_band_without_a_trend():
    found = ladder_fit.fit([only(made(1e5, name=str(k), seed=k), "loss") for k in range(3)], 1e5, {})
    truth = made(1e5, seed=9).lines["loss"]
    centre = np.exp(np.interp(truth.at, found["at"], found["metrics"]["loss"]["centre"]))
    inside = truth.at >= START
    assert np.abs(np.log(truth.value / centre))[inside].mean() < 0.006


@pytest.mark.parametrize("name", ["loss", "gn", "drop"])
def test_a_run_that_goes_on_as_the_ladder_says_is_silent(body, name):
    line = made(LARGE, seed=5).lines[name]
    assert [f for f in findings(judged(body, name, line.at, line.value)[0]) if f.severity] == []


def test_an_offset_is_said_once_and_is_no_drift(body):
    line = made(LARGE).lines["loss"]
    found = findings(judged(body, "loss", line.at, line.value * 1.2)[0])
    assert [(f.evidence["how"], f.severity, f.direction, f.kind) for f in found] == [("offset", 1, "up", "ladder")]
    assert found[0].evidence["tokens_behind"] > 0
    assert found[0].evidence["compute_behind"] == pytest.approx(6 * LARGE * found[0].evidence["tokens_behind"])


def test_a_slow_drift_of_a_loss_is_found_and_pages_where_every_rung_speaks(body):
    line = made(LARGE).lines["loss"]
    for since, severity in ((0.3, 3), (0.85, 2)):
        rising = line.value * np.exp(np.maximum(line.at - since, 0) * 0.8)
        found = findings(judged(body, "loss", line.at, rising)[0])
        assert max(f.severity for f in found) == severity
        assert all(f.evidence["how"] != "offset" for f in found if f.severity)
        first = min(f.detected_step for f in found if f.severity) / 2000
        assert since < first < since + 0.1
        behind_the_end = [f for f in found if f.detected_step > 0.82 * 2000]
        assert all(f.severity <= 2 and "extrapolated_from" in f.evidence for f in behind_the_end)


def test_what_comes_back_is_over(body):
    line = made(LARGE).lines["loss"]
    high = (line.at > 0.4) & (line.at < 0.55)
    said = [a for a in judged(body, "loss", line.at, line.value * np.where(high, 1.05, 1))[0] if a.episode != "offset"]
    assert isinstance(said[0], Finding) and 0.4 < said[0].detected_step / 2000 < 0.45
    assert isinstance(said[-1], Recovery) and 0.55 < said[-1].step / 2000 < 0.8


def test_a_gradient_norm_that_rises_behind_the_peak_of_the_rungs_is_noted(body):
    assert body["metrics"]["gn"]["peak"]["at"] == pytest.approx(0.3, abs=0.04)
    line = made(LARGE).lines["gn"]
    rising = line.value * np.exp(np.maximum(line.at - 0.25, 0) * 12)
    found = findings(judged(body, "gn", line.at, rising)[0])
    assert "peak" in [f.evidence["how"] for f in found]


def test_evaluations_are_judged_given_the_loss():
    level = np.stack([np.arange(1, 101) / 100, np.linspace(1.0, 0.5, 100)])
    given_ = {"loss": "loss", "slope": 1.0, "cut": 0.02, "sd": 0.01}
    step = np.arange(20, 100, 5.0)
    fine = np.exp(np.interp(step / 100, *level) + 0.02)

    def said(value, at=slice(None), state=None):
        return given_loss.scan(step[at], value[at], 0.01, level, "eval", "eval_loss", given_, state or {})

    assert said(fine)[0] == []
    worse = fine * np.where((step >= 50) & (step < 80), 1.06, 1.0)
    found, back = said(worse)[0]
    assert (found.onset_step, found.detected_step, found.severity, found.kind) == (50, 60, 2, "ladder")
    assert back.step == 85
    first, state = said(worse, slice(0, 7))
    assert [*first, *said(worse, slice(7, None), state)[0]] == [found, back]


@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(1, 1998), max_size=8), name=st.sampled_from(["loss", "drop"]))
def test_slices_give_the_same_to_the_bit(body, cuts, name):
    line = made(LARGE).lines[name]
    value = line.value * np.exp(np.maximum(line.at - 0.4, 0) * 2)
    value[500] = np.nan
    whole, state, parts = judged(body, name, line.at, value)[0], {}, []
    for a, b in pairwise(sorted({0, *cuts, len(value)})):
        answers, state = judged(body, name, line.at[a:b], value[a:b], state)
        parts += answers
    assert whole
    assert parts == whole


@pytest.fixture(scope="module")
def ladder():
    logs = {name: recorded.read(recorded.DATA / "ladder" / f"{name}.parquet") for name in recorded.PARAMETERS}
    for values in logs.values():
        for name in ("eval/loss", "params/norm/total", "grad/norm/total"):
            values.pop(name)
    return logs


def predicted(logs, names, large):
    rungs = [recorded.rung(n, logs[n], recorded.PARAMETERS[n], recorded.STEPS[n]) for n in names]
    found = ladder_fit.fit(rungs, recorded.PARAMETERS[large], {})
    one, (step, value) = found["metrics"]["train/loss"], logs[large]["train/loss"]
    at = step / recorded.STEPS[large]
    half = ladder_fit.Z90 * np.hypot(np.interp(at, found["at"], one["sd"]), one["noise"])
    seen = at >= START
    inside = np.abs(np.log(value) - np.interp(at, found["at"], one["centre"])) <= half
    end = float(np.exp(np.log(value[at >= 0.95]).mean()))
    return found, one["final"]["value"] / end - 1, float(inside[seen].mean())


def test_the_recorded_ladder_predicts_the_largest_run_within_1_percent_and_it_stays_silent(ladder):
    found, miss, covered = predicted(ladder, ("w24", "w32", "w48", "w64"), "w96")
    assert abs(miss) < 0.01
    assert 0.85 <= covered <= 0.95
    said = [f for m in found["metrics"] for f in recorded.with_ladder(found, ladder["w96"], 5805, m)]
    assert [f for f in said if f.severity > 1 or f.evidence["how"] != "offset"] == []


@pytest.mark.faults
@pytest.mark.parametrize(
    ("names", "large"),
    [(("w24", "w32", "w48"), "w64"), (("w24", "w32", "w64"), "w96"), (("w24", "w48", "w64"), "w96"),
     (("w32", "w48", "w64"), "w96"), (("w24", "w48", "w64"), "w32")],
)  # fmt: skip
def test_three_recorded_rungs_predict_another_within_1_percent(ladder, names, large):
    _, miss, covered = predicted(ladder, names, large)
    assert abs(miss) < 0.01
    assert 0.85 <= covered <= 0.95
