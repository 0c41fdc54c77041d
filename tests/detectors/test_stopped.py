"""Metrics that are logged no more while the loss goes on."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors import Finding, Recovery
from detectors.stopped import scan

ROLES = {"loss": "loss", "lr": "learning_rate", "norm": "grad_norm", "eval": "eval_loss", "ckpt": "checkpoint"}


def judged(steps, cuts=()):
    """What is said when the steps arrive up to each cut."""
    state, said = {}, []
    for low, high in zip([-1, *cuts], [*cuts, 10**9], strict=True):
        part = {name: line[(line > low) & (line <= high)] for name, line in steps.items()}
        found, state = scan({name: line for name, line in part.items() if len(line)}, ROLES, state)
        said += found
    return said


def run(size=3_000):
    every = np.arange(float(size))
    return {"loss": every, "lr": every, "norm": every[::10], "eval": every[99::100], "ckpt": every[150::150]}


def brief(said):
    return [
        (a.metric, a.severity, a.onset_step, a.detected_step) if isinstance(a, Finding) else (a.metric, a.step)
        for a in said
    ]


def test_what_goes_on_is_quiet():
    assert judged(run()) == []


def test_a_metric_that_stops_is_told_after_twenty_of_its_distances_and_until_it_comes_again():
    steps = run()
    steps["norm"] = np.concatenate([steps["norm"][:100], steps["norm"][200:]])
    assert brief(judged(steps)) == [("norm", 1, 990, 1_190), ("norm", 2_000)]


def test_what_stops_with_the_loss_is_quiet():
    steps = {name: line[(line < 1_000) | (line > 2_500)] for name, line in run().items()}
    assert judged(steps) == []


def test_a_checkpoint_that_is_logged_when_saved_is_paged_after_two_distances_and_an_evaluation_noted_after_five():
    steps = run()
    steps["ckpt"], steps["eval"] = steps["ckpt"][:6], steps["eval"][:9]
    assert brief(judged(steps)) == [("ckpt", 3, 900, 1_200), ("eval", 1, 899, 1_399)]


def test_a_checkpoint_that_is_logged_every_step_is_no_rare_one():
    steps = run()
    steps["ckpt"] = np.concatenate([steps["loss"][:1_000], steps["loss"][1_010:]])
    assert judged(steps) == []


def test_logging_made_sparser_is_told_once():
    steps = run()
    steps["norm"] = np.concatenate([steps["norm"][:100], np.arange(1_250.0, 3_000, 250)])
    assert [a.detected_step for a in judged(steps) if isinstance(a, Finding)] == [1_190]


def test_a_short_or_unknown_metric_is_quiet():
    steps = run()
    steps["norm"] = steps["norm"][:19]
    assert judged(steps) == []
    assert scan({"x": np.arange(3.0)}, {"x": "other"}, {})[0] == []


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, 3_000), max_size=6).map(sorted), seed=st.integers(0, 1_000))
def test_slices_say_the_same(cuts, seed):
    rng = np.random.default_rng(seed)
    steps = {}
    for name, line in run().items():
        a, b = sorted(rng.integers(0, 3_000, 2))
        steps[name] = line if name == "loss" else line[(line < a) | (line > b)]
    whole = judged(steps)
    assert sorted(map(repr, judged(steps, cuts))) == sorted(map(repr, whole))
    assert all(isinstance(a, Recovery) or a.detected_step in steps["loss"] for a in whole)
