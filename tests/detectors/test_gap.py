"""The gap between evaluations and the training loss: one that grows, and ones that do not."""

import math

import numpy as np

from detectors import Finding, Recovery
from detectors.overfit import Anchor, scan


def anchors(gap, seed=0):
    rng = np.random.default_rng(seed)
    train = 2 + 2 * np.arange(1, len(gap) + 1) ** -0.5
    noise = 0.003 * rng.standard_normal((2, len(gap)))
    return [
        Anchor(100.0 * k, t * math.exp(g + e), t * math.exp(n), 100.0 * k + 1)
        for k, (t, g, e, n) in enumerate(zip(train, gap, *noise, strict=True))
    ]


def test_a_gap_that_grows_while_both_fall_is_a_note_and_ends_when_it_closes():
    gap = np.concatenate([np.full(20, 0.02), np.linspace(0.02, 0.08, 30), np.full(20, 0.02)])
    said, _ = scan(anchors(gap), "eval/loss", {})
    found, back = said
    assert isinstance(found, Finding)
    assert (found.kind, found.severity, found.direction) == ("trend", 1, "up")
    assert 2_000 < found.detected_step < 5_000
    assert found.evidence["gap_after"] - found.evidence["gap_before"] >= 0.02
    assert isinstance(back, Recovery)
    assert back.step > 5_000


def test_a_steady_gap_of_any_size_is_quiet():
    for seed, level in enumerate((-0.01, 0.0, 0.3)):
        assert scan(anchors(np.full(200, level), seed), "eval/loss", {})[0] == []


def test_one_evaluation_at_a_time_says_the_same():
    line = anchors(np.linspace(0.0, 0.2, 60))
    state, said = {}, []
    for each in line:
        found, state = scan([each], "eval/loss", state)
        said += found
    assert said == scan(line, "eval/loss", {})[0]
    assert said
