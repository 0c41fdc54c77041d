"""Which leaf carries the rise of the gradient norm: the share of the squared norm, once an episode."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors import Finding, Recovery, shares

COUNT = 520  # blocks of 16 samples


def rows(values: np.ndarray, first: int = 0) -> np.ndarray:
    block = first + np.arange(len(values))
    return np.column_stack([block, block * 16.0 + 15, values])


def leaves(head: np.ndarray, *, also: float = 0.0, calm: int = 6) -> dict[str, np.ndarray]:
    """A head that follows `head` in log, calm leaves, and one that grows in proportion `also` of it."""
    rng = np.random.default_rng(0)
    noise = 0.02 * rng.standard_normal((calm + 2, len(head)))
    out = {"g/head": np.exp(head + noise[0]), "g/attn": np.exp(also * head + noise[1])}
    out |= {f"g/calm{k}": 0.3 * np.exp(noise[k + 2]) for k in range(calm)}
    return {name: rows(each) for name, each in out.items()}


def ramp(top: float = 0.6, start: int = 150) -> np.ndarray:
    return top * np.clip((np.arange(COUNT) - start) / 150, 0, 1)


def said(blocks: dict[str, np.ndarray]) -> tuple[list[Finding], list[Recovery]]:
    answers, _ = shares.scan(blocks, {}, {})
    return [a for a in answers if isinstance(a, Finding)], [a for a in answers if isinstance(a, Recovery)]


def test_the_leaf_that_carries_the_rise_is_named_once_as_an_annotation():
    findings, recoveries = said(leaves(ramp()))
    assert [(f.metric, f.severity, f.kind, f.direction) for f in findings] == [("g/head", 0, "trend", "up")]
    evidence = findings[0].evidence
    assert evidence["growth_share"] > 0.9
    assert evidence["groups"] == 1
    assert evidence["leaves"][0] == ["g/head", evidence["growth_share"]]
    assert evidence["share_after"] > evidence["share_before"]
    assert evidence["after"] > 1.05 * evidence["before"]
    assert 130 * 16 < findings[0].onset_step < 230 * 16
    assert [r.episode for r in recoveries] == [findings[0].episode]  # the growth is over at block 300


def test_a_rise_that_many_leaves_share_is_spread_over_groups():
    blocks = {f"g/{k}": rows(np.exp(ramp() + 0.02 * np.random.default_rng(k).standard_normal(COUNT))) for k in range(9)}
    findings, _ = said(blocks)
    assert len(findings) == 1
    assert findings[0].evidence["groups"] in (7, 8)
    assert findings[0].evidence["growth_share"] < 0.2


def test_another_carrier_is_told_again():
    second = 0.02 * np.maximum(np.arange(COUNT) - 300, 0)
    blocks = leaves(ramp(0.5)) | {"g/late": rows(0.3 * np.exp(second))}
    findings, recoveries = said(blocks)
    assert [f.metric for f in findings][:2] == ["g/head", "g/late"]
    assert (recoveries[0].metric, recoveries[0].step) <= ("g/head", findings[1].detected_step)


@pytest.mark.parametrize("head", [np.zeros(COUNT), -ramp()])
def test_a_norm_that_holds_or_falls_says_nothing(head):
    assert said(leaves(head)) == ([], [])


def test_a_stack_beside_its_layers_is_not_counted_twice():
    layers = {f"g/blocks.{k}.w": rows(np.exp(0.5 * ramp())) for k in range(2)}
    stack = {"g/blocks.stacked.w": rows(np.sqrt(2) * np.exp(0.5 * ramp()))}
    findings, _ = said({**layers, **stack, "g/head": rows(np.ones(COUNT))})
    assert findings[0].evidence["growth_share"] == pytest.approx(0.5)
    assert findings[0].evidence["after"] ** 2 < 3 * np.exp(0.6)


def test_one_leaf_that_is_not_logged_for_a_while_does_not_hide_the_others():
    blocks = leaves(ramp())
    blocks["g/calm0"][200:230, 2] = np.nan
    assert [f.metric for f in said(blocks)[0]] == ["g/head"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, COUNT), max_size=6), st.integers(0, 2))
def test_shares_judged_in_slices_say_the_same(cuts, lag):
    """One leaf comes up to two blocks later than the others, and one begins in the middle."""
    whole, edges = leaves(ramp()), [0, *sorted(cuts), COUNT]
    whole["g/young"] = whole["g/calm1"][100:]
    answers, state = [], {}
    for low, high in pairwise([*edges, COUNT + 2]):
        late = slice(max(low - lag, 0), max(high - lag, 0))
        part = {name: each[late] if name == "g/calm0" else each[low:high] for name, each in whole.items()}
        part["g/young"] = whole["g/young"][max(low - 100, 0) : max(high - 100, 0)]
        found, state = shares.scan(part, {}, state)
        answers += found
    assert answers == shares.scan(whole, {}, {})[0]


def test_a_restart_goes_on_with_the_squares_of_its_parent():
    whole = leaves(ramp())
    _, state = shares.scan({name: each[:230] for name, each in whole.items()}, {}, {})
    kept = shares.carry(state, 225 * 16.0)
    again = {name: np.column_stack([np.arange(224, 224 + 120), each[225:345, 1:]]) for name, each in whole.items()}
    answers, _ = shares.scan(again, {}, kept)
    findings = [a for a in answers if isinstance(a, Finding)]
    assert [f.metric for f in findings] == ["g/head"]
    assert findings[0].detected_step < 260 * 16
