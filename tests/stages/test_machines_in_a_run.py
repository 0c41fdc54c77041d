"""Routers, ranks, links, checkpoints and skips of one run, from the log's own names to incidents with a pattern."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from flows.playbook import load_playbook
from flows.records import SAMPLE_SCHEMA, Description
from flows.sources.roles import role_of
from flows.stages.attempts import Tracker, assign
from flows.stages.judge import judge
from flows.store import open_store

STEPS = 2_700


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    """Ten layers (the fifth overloaded from 2,400 on, with drops), ten ranks (the eighth late from 1,000 on)."""
    rng = np.random.default_rng(0)
    step = np.arange(float(STEPS))
    columns = {
        "train/loss": (1.7 + 8 * (step + 1) ** -0.35) * np.exp(0.005 * rng.standard_normal(STEPS)),
        "moe/drop_fraction": 0.02 * np.exp(0.1 * rng.standard_normal(STEPS)) * np.where(step >= 2_400, 1.8, 1),
        "system/gpu.3.nvlinkRecoveryCount": np.where(step >= 500, 5.0, 0) + np.where(step >= 530, 30.0, 0),
        "checkpoint/last_step": np.where(step >= 1_500, 1_400.0, np.maximum(step - 20, 0) // 100 * 100),
        "optim/skipped_step": ((step == 300) | ((step > 2_200) & (step < 2_240))).astype(float),
    }
    for k in range(10):
        late = np.where((k == 7) & (step >= 1_000), 1.06, 1)
        full = np.where((k == 4) & (step >= 2_400), 5, 1)
        columns[f"moe/layer_{k}/max_vio"] = (
            np.exp(0.1 * rng.standard_normal(STEPS) + 0.2 * rng.standard_normal()) * full
        )
        columns[f"perf/rank_{k + 1}/step_time"] = 10 * np.exp(0.01 * rng.standard_normal(STEPS)) * late
    wide = pl.DataFrame({"step": step, **columns})
    long = wide.unpivot(index="step", variable_name="name").with_columns(logged_at=pl.lit(None, pl.Datetime("us")))
    return long.select(list(SAMPLE_SCHEMA)).sort("step", maintain_order=True)


def judged(frames):
    store, tracker = open_store(":memory:", clock=lambda: 1e9), Tracker()
    store.register_run(Description("r", "made", "test", "step"))
    for number, part in enumerate(frames):
        rows = assign(part, tracker, final=number == len(frames) - 1)
        store.append("r", rows, tracker.attempts, "c", tracker.dump(), {}, role_of)
        judge(store, "r", load_playbook, clock=lambda: 1e9)
    findings = [{k: v for k, v in row.items() if k != "incident_id"} for row in store.findings("r")]
    return sorted(map(str, findings)), store.incidents("r")


def test_each_is_one_incident_with_its_name_and_pattern(frame):
    _, incidents = judged([frame])
    found = {(row["pattern"], row["severity"]): row["title"] for row in incidents}
    assert found[("link_precursor", 2)].startswith("system/gpu.3.nvlinkRecoveryCount jumped from 0 to 35 at step 500")
    assert found[("throughput_level_shift", 2)].startswith("perf/rank_8/step_time jumped from")
    assert "moe/layer_4/max_vio" in found[("single_layer_imbalance", 3)]
    assert "moe/drop_fraction" in found[("single_layer_imbalance", 3)]
    titles = " | ".join(found.values())
    assert "checkpoint/last_step has not moved since step 1,520: 241 old, 120 as a rule" in titles
    assert "optim/skipped_step counted" in titles
    assert len(incidents) == 5


def test_slices_give_the_same_findings_and_incidents(frame):
    cuts = [0, 7_000, 30_011, 55_002, 61_500, len(frame)]
    assert judged([frame[a:b] for a, b in pairwise(cuts)]) == judged([frame])
