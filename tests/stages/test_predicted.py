"""What a ladder expects of a run, as charts show it: on the metric's own scale, by version, with its horizon."""

import numpy as np
import polars as pl
import pytest

from detectors.ladder_fit import as_logged, transformed
from detectors.ladder_rungs import CENTRES
from flows.messages.document import IncidentDoc
from flows.records import SAMPLE_SCHEMA, Description
from flows.sources.roles import role_of
from flows.stages.attempts import Tracker, assign
from flows.stages.document import curves_of
from flows.stages.ladder import on_record
from flows.store import open_store

STEPS, BASE = 1000, 2.0794
ROLES = {
    "train/loss": ("loss", 2.0), "params/norm/total": ("param_norm", 80.0),
    "moe/drop_fraction": ("token_drop", 0.02), "train/router/routing_entropy_mean": ("router_entropy", 2.0),
}  # fmt: skip


def body(role: str, centre: float, censored: float | None = 0.8) -> dict:
    """A metric that is expected to stay where it is, with a tenth of noise and a quarter of doubt behind the horizon."""
    sd = np.where(CENTRES > 0.8, 0.25, 0.0)
    return {
        "role": role, "base": BASE if role == "router_entropy" else 1.0, "rungs": ["a", "b", "c"],
        "centre": [centre] * len(CENTRES), "sd": sd.tolist(), "level_sd": 0.0, "shape_sd": 0.0, "noise": 0.1,
        "censored_from": censored,
    }  # fmt: skip


def expectations(**changes) -> dict:
    metrics = {}
    for name, (role, value) in ROLES.items():
        base = {"router_entropy": BASE, "param_norm": value}.get(role, 1.0)
        metrics[name] = body(role, float(transformed(role, np.array([value]), base)[0]))
    return {
        "version": 1, "metrics": metrics, "at": CENTRES.tolist(), "per_step": 1 / STEPS, "parameters": 1e6, "rungs": [],
        "not_expected": {}, "refused": {}, **changes,
    }  # fmt: skip


@pytest.fixture
def store():
    kept = open_store(":memory:", clock=lambda: 1e9)
    kept.register_run(Description("big", "made", "test", "step"))
    return kept


def pull(store, steps: range) -> None:
    data = [(float(step), None, name, value) for step in steps for name, (_, value) in ROLES.items()]
    placed = assign(pl.DataFrame(data, schema=SAMPLE_SCHEMA, orient="row"), tracker := Tracker(), final=True)
    store.append("big", placed, tracker.attempts, "c", tracker.dump(), {}, role_of)


def incident() -> IncidentDoc:
    found = [{"metric": name, "onset_step": 500.0, "detected_step": 510.0, "kind": "ladder"} for name in ROLES]
    return {
        "id": "x",
        "title": "",
        "onset_step": 500.0,
        "detected_step": 510.0,
        "resolved_step": None,
        "findings": found,
    }


def drawn(store, ladder=None):
    return curves_of(
        store, "big", incident(), store.metrics("big"), on_record(store, "big") if ladder is None else ladder
    )


def test_the_band_is_on_the_scale_of_its_metric_and_wider_behind_the_horizon(store):
    store.expect("big", "ladder", expectations())
    pull(store, range(STEPS))
    curves = {curve.name: curve for curve in drawn(store)}
    assert curves.keys() == ROLES.keys()
    for name, (_, value) in ROLES.items():
        (part,) = curves[name].ladder
        assert (part.step[0], part.step[-1], part.known_until) == (80, 1000, 800)
        assert part.centre == pytest.approx(value), name
        assert (part.low < part.centre).all() and (part.centre < part.high).all(), name
        behind, before = part.step > 810, part.step < 790
        assert (part.high - part.low)[behind].min() > 2 * (part.high - part.low)[before].max(), name
    assert curves["train/loss"].ladder[0].high[0] == pytest.approx(2 * np.exp(1.6449 * 0.1))
    assert {name: curve.ladder[0].blocks for name, curve in curves.items() if curve.ladder[0].blocks > 1} == {
        "moe/drop_fraction": 16
    }


def test_each_version_is_drawn_over_the_steps_that_it_judges(store):
    store.expect("big", "ladder", expectations())
    pull(store, range(301))
    other = expectations()
    other["metrics"]["train/loss"]["centre"] = [np.log(3.0)] * len(CENTRES)
    store.expect("big", "ladder", other)
    pull(store, range(301, STEPS))
    first, second = drawn(store)[0].ladder
    assert (first.step[0], first.step[-1], second.step[0], second.step[-1]) == (80, 300, 300, 1000)
    assert (first.centre.mean(), second.centre.mean()) == pytest.approx((2, 3))


def test_without_a_ladder_nothing_is_drawn_and_one_that_is_not_on_record_can_be_given(store):
    pull(store, range(STEPS))
    assert [curve.ladder for curve in drawn(store)] == [()] * 4
    given = drawn(store, [expectations(from_step=None)])
    assert [len(curve.ladder) for curve in given] == [1] * 4


@pytest.mark.parametrize(
    ("role", "value", "base"),
    [("loss", 2.3, 1.0), ("token_drop", 0.03, 1.0), ("router_entropy", 2.01, BASE), ("param_norm", 81.0, 80.0)],
)
def test_what_is_compared_comes_back_as_it_was_logged(role, value, base):
    assert as_logged(role, transformed(role, np.array([value]), base), base) == pytest.approx(value)
