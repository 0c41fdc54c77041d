"""Judging through the store: at once, in slices, step by step, with metrics that arrive apart."""

import json

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


@pytest.fixture(scope="module", params=[0, 1])
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
