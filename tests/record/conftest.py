"""A run with an abandoned attempt, a diverging loss and values that are no numbers; made from a seed."""

import numpy as np
import pytest
from chromium import browser, tab  # noqa: F401  # fixtures

from flows.record.curves import Curve
from flows.records import Attempt, Event


@pytest.fixture
def attempts():
    return [Attempt(0, 0.0, None, "start", 5150.0), Attempt(1, 5150.0, 0, "rewind")]


@pytest.fixture
def events():
    return [Event("resume", 5150.0, note="from checkpoint 5,150"), Event("config", 5200.0, note="learning rate up")]


@pytest.fixture
def curves():
    chance = np.random.default_rng(7)
    step = np.concatenate([np.arange(4000.0, 5260.0), np.arange(5150.0, 5400.0)])
    attempt = np.concatenate([np.zeros(1260, dtype=np.int64), np.ones(250, dtype=np.int64)])
    trouble = (attempt == 1) & (step >= 5204)
    loss = 1.83 + chance.normal(0, 0.03, len(step))
    loss[trouble] += np.linspace(0, 2.8, trouble.sum())
    norm = np.exp(chance.normal(-0.9, 0.12, len(step)))
    norm[trouble] *= np.linspace(2, 9, trouble.sum())
    loss[np.flatnonzero(trouble)[60]] = np.nan
    norm[np.flatnonzero(trouble)[80]] = np.inf
    return [Curve("train/loss", step, loss, attempt, "nats"), Curve("grad/norm/total", step, norm, attempt)]
