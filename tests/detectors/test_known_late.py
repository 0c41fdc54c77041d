"""What was planned or done explains nothing that was said before it was known, and whatever comes after."""

import math

import numpy as np
import pytest

from detectors.finding import Finding
from detectors.suite import advance
from detectors.window import Known


def said(value, role, kind, at, since):
    """(detector, severity, detected step) of the findings about samples 0, 1, 2 ...; something of a kind was done at `at`,
    which is known since a step (None: never)."""
    step = np.arange(len(value), dtype=float)
    events = [] if since is None else [Known(float(at), kind, float(since))]
    answers, _, _ = advance(step, value, step, 0, 0, {}, name="m", role=role, events=events)
    found = [item for _, item in answers if isinstance(item, Finding)]
    return [(item.detector, item.severity, item.detected_step) for item in found]


def noisy(level, scatter):
    return level * np.exp(scatter * np.random.default_rng(4).standard_normal(len(level)))


def trebled():
    return noisy(np.where(np.arange(1_800) < 1_500, 2.0, 6.0), 0.01)


def higher():
    """A loss that stands 60 % above its curve for 300 samples."""
    return noisy(np.where(np.arange(1_800) < 1_400, 2.0, 3.2), 0.01)


def steadier():
    """A loss that scatters a fifth as much from sample 1,290 on, and is 2 % higher from 1,600 on."""
    step = np.arange(1_800)
    return noisy(np.where(step < 1_600, 2.0, 2.04), np.where(step < 1_290, 0.1, 0.02))


def bent():
    step = np.arange(12_000)
    return noisy(np.exp(1e-5 * step + 4e-5 * np.maximum(step - 5_000, 0)), 0.01)


@pytest.mark.parametrize(
    ("make", "kind", "at", "early", "late"),
    [
        (trebled, "data_mix", 1_500, 1_500, 1_540),
        (higher, "data_mix", 1_400, 1_405, 1_410),
        (steadier, "batch_size", 1_290, 1_320, 1_540),  # what it scattered before is no longer at hand in a later chunk
    ],
)
def test_an_explanation_counts_from_when_it_was_known(make, kind, at, early, late):
    never, beforehand = (said(make(), "loss", kind, at, since) for since in (None, -math.inf))
    assert never != beforehand
    assert said(make(), "loss", kind, at, early) == beforehand
    assert said(make(), "loss", kind, at, late) == never


def test_a_bend_is_looked_for_at_what_was_done_once_that_is_known():
    def told(since):
        return [step for name, severity, step in said(bent(), "grad_norm", "deploy", 5_000, since) if severity == 2]

    assert (told(-math.inf), told(9_000), told(None)) == ([6_399], [9_215], [])


def test_a_slide_begins_anew_at_what_was_done_once_that_is_known():
    speed = noisy(40 * (1 - 0.2 * np.clip(np.arange(4_096) - 1_024, 0, 1_500) / 1_500), 0.002)

    def told(since):
        return [step for name, _, step in said(speed, "mfu", "deploy", 1_500, since) if name == "slide"]

    never = told(None)
    assert never and told(-math.inf)[0] > never[0]
    assert told(never[0] + 1) == never
