"""A run with an abandoned attempt, a diverging loss and values that are no numbers; made from a seed."""

import shutil

import guarded
import numpy as np
import pytest
from chromium import browser, tab  # noqa: F401  # fixtures

from flows.record.curves import Curve
from flows.records import Attempt, Event
from flows.stages.record import write_record


@pytest.fixture
def store():
    return guarded.made_store()


@pytest.fixture(scope="session")
def rendered(tmp_path_factory):
    """The record of that store: to be read, not written."""
    out = tmp_path_factory.mktemp("rendered") / "out"
    done = write_record(guarded.made_store(), out, guarded.PRIVATE)
    assert done.kept == [] and len(done.written) >= 7
    return out


@pytest.fixture
def out(rendered, tmp_path):
    """The same, to be brought up to date."""
    return shutil.copytree(rendered, tmp_path / "out")


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
