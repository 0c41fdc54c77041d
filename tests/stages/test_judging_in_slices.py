"""Judging through the store: at once, in slices, step by step, with metrics that arrive apart."""

import json
import re
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.playbook import load_playbook
from flows.records import SAMPLE_SCHEMA, Description
from flows.sources.roles import role_of
from flows.stages.attempts import Tracker, assign
from flows.stages.judge import judge
from flows.store import open_store


def a_run(seed: int, size: int = 560) -> pl.DataFrame:
    """A run in source order: dense metrics, evaluations, parameter norms of nine groups; one restart in it."""
    rng = np.random.default_rng(seed)
    value = 2 + 3 * np.arange(1, size + 1) ** -0.4
    bad = int(rng.integers(200, size - 50))
    rows = []
    order = [*range(size), *range(size - 200, size)] if seed % 2 else list(range(size))
    for position, step in enumerate(order):
        late = position >= size
        rows.append(
            (
                step,
                "train/loss",
                value[step] * np.exp(0.01 * rng.standard_normal()) * (2.5 if bad <= step < bad + 30 else 1),
            )
        )
        rows.append((step, "grad/norm/total", np.exp(0.1 * rng.standard_normal()) * (4 if step == bad else 1)))
        rows.append(
            (step, "throughput/mfu", (40 + 0.3 * rng.standard_normal()) * (0.8 if bad <= step < bad + 120 else 1))
        )
        rows.append((step, "optim/learning_rate", 1e-3 * (3 if late else 1)))
        rows += [
            (step, f"params/norm/leaf{k}", np.exp(step * (4e-3 if k == 0 and step > 300 else 1e-4 * k)))
            for k in range(9)
        ]
        if step % 40 == 0:
            rows.append((step, "eval/loss", 2.5 + (0.002 * max(0, step - 300))))
    data = [(float(s), None, n, float(v)) for s, n, v in rows]
    return pl.DataFrame(data, schema=SAMPLE_SCHEMA, orient="row")


def judged(frames: list[pl.DataFrame]) -> tuple[list[dict], list[dict]]:
    """Findings and incidents after pulling and judging the frames one after the other."""
    store = open_store(":memory:", clock=lambda: 1e9)
    store.register_run(Description("r", "made", "test", "step"))
    tracker = Tracker()
    for number, frame in enumerate(frames):
        rows = assign(frame, tracker, final=number == len(frames) - 1)
        store.append("r", rows, tracker.attempts, "c", tracker.dump(), {}, role_of)
        judge(store, "r", load_playbook, clock=lambda: 1e9)
    findings = [{k: v for k, v in row.items() if k != "incident_id"} for row in store.findings("r")]
    return sorted(findings, key=lambda row: json.dumps(row, default=str)), store.incidents("r")


@pytest.fixture(scope="module", params=[0, pytest.param(1, marks=pytest.mark.faults)])
def run(request):
    frame = a_run(request.param)
    return frame, judged([frame])


@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_slices_give_the_same_findings_and_incidents_to_the_bit(run, data):
    frame, (findings, incidents) = run
    cuts = sorted(data.draw(st.lists(st.integers(1, len(frame) - 1), max_size=6)))
    parts = [frame[a:b] for a, b in zip([0, *cuts], [*cuts, len(frame)], strict=True)]
    assert judged(parts) == (findings, incidents)


def test_35_steps_at_a_time_give_the_same(run):
    frame, whole = run
    step = 13 * 35
    assert judged([frame[k : k + step] for k in range(0, len(frame), step)]) == whole


def test_metrics_that_arrive_apart_give_the_same_findings():
    frame = a_run(0)
    whole, _ = judged([frame])
    rare = frame.filter(pl.col("name") == "eval/loss")
    dense = frame.filter(pl.col("name") != "eval/loss")
    half = len(dense) // 2
    late_evals = judged([dense[:half], rare[: len(rare) // 2], dense[half:], rare[len(rare) // 2 :]])[0]
    early_evals = judged([rare, dense])[0]
    assert late_evals == whole
    assert early_evals == whole


def test_the_made_run_shows_what_is_in_it(run):
    _, (findings, _) = run
    kinds = {(row["detector"], row["metric"]) for row in findings}
    assert ("divergence", "train/loss") in kinds or ("spikes", "train/loss") in kinds
    assert ("throughput", "throughput/mfu") in kinds
    assert ("groups", "params/norm/leaf0") in kinds
    assert ("overfit", "eval/loss") in kinds
    assert not [
        row for row in findings if row["metric"].startswith("params/norm/leaf") and not row["metric"].endswith("leaf0")
    ]


def test_a_first_pass_in_many_transactions_hears_no_silence_in_the_middle():
    store = open_store(":memory:", clock=lambda: 1e9)
    store.register_run(Description("r", "made", "test", "step"))
    began, tracker = datetime(2026, 9, 1, tzinfo=UTC), Tracker()
    for first, stop in ((0, 30), (30, 100)):
        rows = [
            (float(k), (began + timedelta(seconds=20 * k)).replace(tzinfo=None), "train/loss", 2.0)
            for k in range(first, stop)
        ]
        assigned = assign(pl.DataFrame(rows, schema=SAMPLE_SCHEMA, orient="row"), tracker, final=True)
        store.append("r", assigned, tracker.attempts, "c", tracker.dump(), {}, role_of)
    last = began.timestamp() + 20 * 99
    judge(store, "r", load_playbook, clock=lambda: last + 60, live=True, rows=1)
    assert [row for row in store.findings("r") if row["detector"] == "silence"] == []
    judge(store, "r", load_playbook, clock=lambda: last + 2000, live=True, rows=1)
    (found,) = [row for row in store.findings("r") if row["detector"] == "silence"]
    assert (found["onset_step"], found["magnitude"]) == (99.0, 2000.0)


def test_a_memory_of_another_version_is_given_up_and_coverage_says_so():
    frame = a_run(0)
    half = len(frame) // 2
    store = open_store(":memory:", clock=lambda: 1e9)
    store.register_run(Description("r", "made", "test", "step"))
    tracker = Tracker()
    for part in (frame[:half], frame[half:]):
        rows = assign(part, tracker)
        store.append("r", rows, tracker.attempts, "c", tracker.dump(), {}, role_of)
        judge(store, "r", load_playbook, clock=lambda: 1e9)
        old = {
            key: re.sub(rb'"format": [^,]+', b'"format": "x"', data, count=1)
            for key, data in store.judge_states("r").items()
        }
        found = store.waiting("r", 1)
        store.save_judgement("r", upto_batch=found.upto_batch, run_state=found.run_state or "", states=old)
    (said,) = store.coverage("r").filter(pl.col("check_name") == "judge").rows()
    assert said[2].startswith("memories of another version were given up")
