"""Sixty evaluations by domain through the store: who is told of what, however the run was cut into passes."""

import json

import numpy as np
import polars as pl
import pytest

from detectors.tiers import SEATS
from flows.playbook import load_playbook
from flows.records import SAMPLE_SCHEMA, Description
from flows.sources.roles import role_of
from flows.stages.attempts import Tracker, assign
from flows.stages.judge import judge
from flows.store import open_store

EVALS, NETS, SIZE, EVERY = 60, 30, 1300, 40
SCATTER = 0.002


def a_run(shift: float) -> pl.DataFrame:
    """Heavy-tailed losses of 60 domains, number 7 higher by `shift` scatters after step 900; and 30 gradient norms."""
    rng = np.random.default_rng(26)
    losses = 2.5 * np.exp(SCATTER * rng.standard_t(3, size=(SIZE // EVERY + 1, EVALS)))
    losses[900 // EVERY + 1 :, 7] *= np.exp(SCATTER * shift)
    rows = []
    for step in range(SIZE):
        rows.append((step, "train/loss", (2 + 3 * (step + 1) ** -0.4) * np.exp(0.01 * rng.standard_normal())))
        for k in range(NETS):
            rows.append((step, f"net{k:02}/grad_norm", np.exp(0.1 * rng.standard_normal())))
        if step % EVERY == 0:
            rows += [(step, f"eval/d{k:02}/loss", losses[step // EVERY, k]) for k in range(EVALS)]
    data = [(float(s), None, n, float(v)) for s, n, v in rows]
    return pl.DataFrame(data, schema=SAMPLE_SCHEMA, orient="row")


def judged(frames):
    store = open_store(":memory:", clock=lambda: 1e9)
    store.register_run(Description("r", "made", "test", "step"))
    tracker = Tracker()
    for number, frame in enumerate(frames):
        rows = assign(frame, tracker, final=number == len(frames) - 1)
        store.append("r", rows, tracker.attempts, "c", tracker.dump(), {}, role_of)
        judge(store, "r", load_playbook, clock=lambda: 1e9)
    findings = sorted(store.findings("r"), key=lambda row: json.dumps(row, default=str))
    coverage = {row[0]: row[3] for row in store.coverage("r").iter_rows()}
    return findings, store.incidents("r"), {**json.loads(store.run_state("r")), "coverage": coverage}


@pytest.fixture(scope="module")
def one():
    frame = a_run(20.0)
    return frame, judged([frame])


def loud(findings):
    return {(row["detector"], row["metric"]) for row in findings if row["severity"] >= 2}


def test_the_one_that_moved_by_20_scatters_is_told_at_s2(one):
    _, (findings, incidents, _) = one
    assert ("evals", "eval/d07/loss") in loud(findings)
    assert {metric for detector, metric in loud(findings) if detector == "evals"} == {"eval/d07/loss"}
    assert {metric for detector, metric in loud(findings) if detector == "siblings"} == {"eval/d07/loss"}
    mine = [row for row in findings if row["metric"] == "eval/d07/loss" and row["detector"] == "evals"]
    (row,) = [row for row in mine if row["severity"] == 2]
    why = json.loads(row["evidence"])["second_tier"]
    assert why["p"] <= why["alpha"] == 1e-5
    (incident,) = [each for each in incidents if each["incident_id"] == row["incident_id"]]
    assert incident["severity"] == 2


def test_seats_are_25_and_the_train_loss_has_the_first(one):
    _, (_, _, state) = one
    names = [seat[3] for seat in state["seats"]]
    assert names == ["train/loss", *(f"net{k:02}/grad_norm" for k in range(SEATS - 1))]
    assert state["coverage"]["second tier"] == EVALS + NETS - SEATS + 1


def test_60_that_move_by_chance_are_told_at_s1_at_most():
    findings, _, _ = judged([a_run(0.0)])
    asked = [row for row in findings if "second_tier" in row["evidence"]]
    assert len(asked) == 2  # the detector itself would have called twice: of 1,980 evaluations with tails like t(3)
    assert {row["severity"] for row in asked} == {1}
    assert not [row for row in loud(findings) if row[0] in ("evals", "siblings")]


@pytest.mark.parametrize("steps", [pytest.param(35, marks=pytest.mark.faults), 211])
def test_slices_give_the_same_findings_incidents_and_state(one, steps):
    frame, (findings, incidents, state) = one
    per = len(frame) // SIZE * steps + 17
    again = judged([frame[k : k + per] for k in range(0, len(frame), per)])
    assert (again[0], again[1]) == (findings, incidents)
    assert (again[2]["seats"], again[2]["second"]) == (state["seats"], state["second"])
