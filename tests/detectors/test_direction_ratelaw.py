"""What a falling learning rate explains of a rising gradient norm: fitted before the window, never assumed."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors import Finding, Recovery, ratelaw

COUNT = 700
ROLES = {"norm": ("grad_norm", ""), "rate": ("learning_rate", "")}


def blocks(log: np.ndarray) -> np.ndarray:
    block = np.arange(len(log))
    return np.column_stack([block, block * 16.0 + 15, np.exp(log)])


def run(beta: float, rise: float = 0.0, earlier: bool = True, noise: float = 0.02) -> dict[str, np.ndarray]:
    """A rate that fell to a fifth and came back (or not), and falls again to a tenth from block 450 on."""
    at = np.arange(COUNT)
    rate = -7 - np.log(10) * np.clip((at - 450) / 200, 0, 1)
    if earlier:
        rate = rate - np.log(5) * np.clip((at - 120) / 100, 0, 1) + np.log(5) * np.clip((at - 280) / 20, 0, 1)
    drift = rise * np.clip((at - 450) / 200, 0, 1)
    norm = -beta * (rate + 7) + drift + noise * np.random.default_rng(0).standard_normal(COUNT)
    return {"norm": blocks(norm), "rate": blocks(rate)}


def caps(whole: dict[str, np.ndarray], since: float = 450 * 16) -> list[Finding]:
    answers, _ = ratelaw.scan(whole, ROLES, {})
    return [a for a in answers if isinstance(a, Finding) and a.detected_step > since]


def test_an_exponent_that_is_not_known_caps_the_trend_at_a_note_and_says_so():
    found = caps(run(0.4, earlier=False))
    assert (found[0].severity, found[0].evidence["cap"], found[0].evidence["beta"]) == (0, 1, None)
    assert found[0].evidence["rate_fell"] > 0.2


def test_a_rise_that_follows_an_earlier_decay_is_explained():
    found = caps(run(0.3))
    assert found[0].evidence["cap"] == 0
    assert found[0].evidence["beta"] == pytest.approx(0.3, abs=0.05)
    assert abs(found[0].evidence["left"]) < 0.1


def test_a_rise_beyond_what_the_rate_explains_is_as_loud_as_its_own_trend():
    found = caps(run(0.1, rise=1.5))
    assert found[-1].evidence["cap"] == 4
    assert found[-1].evidence["beta"] == pytest.approx(0.1, abs=0.05)
    assert found[-1].evidence["left"] > np.log(1.5)


def test_a_norm_that_falls_with_the_rate_has_the_exponent_zero():
    rows = np.column_stack([np.arange(100.0), -0.3 * np.linspace(0, 2, 100), -(np.linspace(0, 2, 100) ** 1.5)])
    assert ratelaw.exponent(rows + 0.001 * np.random.default_rng(0).standard_normal(rows.shape)) in (None, 0.0)


def test_a_rate_that_never_varied_tells_no_exponent():
    rng = np.random.default_rng(0)
    assert ratelaw.exponent(np.column_stack([np.arange(50.0), rng.standard_normal(50), np.zeros(50)])) is None
    assert ratelaw.exponent(np.empty((0, 3))) is None


def test_a_rate_that_stands_still_says_nothing():
    whole = run(0.0, rise=0.6, earlier=False)
    whole["rate"] = blocks(np.full(COUNT, -7.0))
    assert ratelaw.scan(whole, ROLES, {})[0] == []


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, COUNT), max_size=5), st.integers(0, 40))
def test_a_rate_that_arrives_later_changes_nothing(cuts, lag):
    whole = run(0.3)
    answers, state = [], {}
    for low, high in pairwise([0, *sorted(cuts), COUNT, COUNT + lag]):
        late = slice(max(low - lag, 0), max(high - lag, 0))
        found, state = ratelaw.scan({"norm": whole["norm"][low:high], "rate": whole["rate"][late]}, ROLES, state)
        answers += found
    assert answers == ratelaw.scan(whole, ROLES, {})[0]


def test_a_cap_ends_when_the_rise_is_over():
    whole = run(0.4, earlier=False)
    rest = 400
    for name in whole:
        last = np.log(whole[name][-1, 2]) + 0.02 * np.random.default_rng(1).standard_normal(rest) * (name == "norm")
        whole[name] = blocks(np.concatenate([np.log(whole[name][:, 2]), last]))
    answers, _ = ratelaw.scan(whole, ROLES, {})
    assert isinstance(answers[-1], Recovery)
