"""Tokens seen so far: falls, tokens a step, and what is no count at all."""

import numpy as np
import pytest

from detectors import Finding, Series, inspect


def said(value, step=None):
    steps = np.arange(len(value), dtype=float) if step is None else step
    answers = inspect(Series(steps, np.asarray(value, dtype=float), role="tokens"))
    return [a for a in answers if isinstance(a, Finding) and a.detector == "tokens"]


def test_a_fall_is_paged_at_once():
    tokens = 4096.0 * np.arange(1, 101)
    tokens[60:] -= 4096 * 30
    (found,) = said(tokens)
    assert (found.severity, found.kind, found.direction, found.detected_step) == (3, "invariant", "down", 60)
    assert (found.evidence["before"], found.evidence["after"]) == (4096 * 60, 4096 * 31)


def test_a_count_by_epoch_is_told_once():
    assert [(f.severity, f.detected_step) for f in said(4096.0 * (np.arange(400) % 100 + 1))] == [(2, 100)]


def test_another_number_of_tokens_a_step_is_an_annotation_after_three_samples():
    step = np.cumsum(np.random.default_rng(0).integers(1, 5, 200)).astype(float)
    tokens = 1000 * step + 1000 * np.maximum(step - step[120], 0)
    (found,) = said(tokens, step)
    assert (found.severity, found.onset_step, found.detected_step) == (0, step[121], step[123])
    assert found.magnitude == pytest.approx(1.0)


@pytest.mark.parametrize("tokens", [np.random.default_rng(0).integers(900, 1100, 500), np.full(500, 4096.0)])
def test_tokens_of_a_batch_are_no_count(tokens):
    assert said(tokens) == []


def test_tokens_of_packed_batches_vary_and_are_quiet():
    assert said(np.cumsum(np.random.default_rng(1).integers(900, 1100, 500))) == []


def test_rounding_to_32_bits_is_no_other_rate():
    tokens = np.float32(46_137_344.0) * np.arange(1, 60_001, dtype=np.float32)
    assert said(tokens + np.float32(12_345)) == []
