"""A plan in the configuration: its events, its findings through the store, what it could not check."""

import json
from pathlib import Path

import polars as pl
import pytest

from flows.config import load_config, load_plan
from flows.errors import BadConfig
from flows.playbook import load_playbook
from flows.records import SAMPLE_SCHEMA, Description, Event
from flows.sections import PlanSection
from flows.sources.roles import role_of
from flows.stages.against import Against
from flows.stages.attempts import Tracker, assign
from flows.stages.judge import judge
from flows.stages.planned import plan_of, planned_events
from flows.store import open_store

PLAN = """
steps = 300
batch_size = [{step = 0, value = 4}, {step = 100, value = 8}]
mixture = [{step = 200, name = "phase 2"}]
peak_learning_rate = 0.01
warmup_steps = 20
schedule = "linear"
decay_from = 250
checkpoint_interval = 10
"""


def frame(metrics: dict[str, dict[float, float]]) -> pl.DataFrame:
    """Rows step by step."""
    steps = sorted({s for values in metrics.values() for s in values})
    rows = [(float(s), None, n, float(v[s])) for s in steps for n, v in metrics.items() if s in v]
    return pl.DataFrame(rows, schema=SAMPLE_SCHEMA, orient="row")


def section(tmp_path: Path, text: str = PLAN) -> PlanSection:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return load_plan(path)


def test_planned_changes_are_events(tmp_path):
    found = [(e.kind, e.step, e.end_step, e.note, e.source) for e in planned_events(section(tmp_path))]
    assert found == [
        ("batch_size", 100, None, "planned: 4 to 8", "plan"),
        ("data_mix", 200, None, "planned: phase 2", "plan"),
        ("warmup", 0, 20, "planned", "plan"),
        ("lr_decay", 250, 300, "planned", "plan"),
    ]


def test_a_plan_that_was_changed_takes_its_coming_events_with_it():
    store = open_store(":memory:", clock=lambda: 1e9)
    store.register_run(Description("r", "made", "test", "step"))
    rows = assign(frame({"loss": dict.fromkeys(range(60), 1.0)}), tracker := Tracker(), final=True)
    store.append("r", rows, tracker.attempts, "c", tracker.dump(), {}, role_of)
    store.add_event("r", Event("data_mix", 90))
    store.keep_events("r", "plan", [Event("data_mix", s, source="plan") for s in (50, 100, 200)])
    store.keep_events("r", "plan", [Event("data_mix", s, source="plan") for s in (100, 300)])
    assert [(e.step, e.source) for e in store.events("r")] == [
        (50, "plan"), (90, "user"), (100, "plan"), (300, "plan"),
    ]  # fmt: skip


def judged(plan: PlanSection, cuts: list[int]):
    steps = range(300)
    values = {
        "train/loss": {s: 3.0 - 0.001 * s for s in steps},
        "batch_size": {s: 4.0 if s < 110 else 8.0 for s in steps},
        "optim/learning_rate": {s: 0.01 * min(s / 20, 1) * (1.0 if s < 150 else 0.8) for s in steps},
    }
    store = open_store(":memory:", clock=lambda: 1e9)
    store.register_run(Description("r", "made", "test", "step"))
    store.keep_events("r", "plan", list(planned_events(plan)))
    tracker, whole = Tracker(), frame(values)
    for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        rows = assign(whole[a:b], tracker, final=b == len(whole))
        store.append("r", rows, tracker.attempts, "c", tracker.dump(), {}, role_of)
        judge(store, "r", load_playbook, clock=lambda: 1e9, against=Against(plan_of(plan)))
    return store


def test_what_is_late_or_off_is_found_whatever_the_cadence_and_its_own_event_does_not_explain_it(tmp_path):
    plan = section(tmp_path)
    store = judged(plan, [])
    found = {
        (f["metric"], f["kind"], f["onset_step"], f["severity"]) for f in store.findings("r") if f["detector"] == "plan"
    }
    assert found == {
        ("batch_size", "schedule", 101, 3),
        ("optim/learning_rate", "schedule", 150, 3),
        ("optim/learning_rate", "schedule", 262, 3),  # it does not decay
        ("optim/learning_rate", "schedule", 262, 4),
    }
    titles = [i["title"] for i in store.incidents("r") if i["severity"] == 3]
    assert any(t.startswith("batch_size is 4 since step 101, and 8 in the plan; back") for t in titles), titles
    rows = {(r["check_name"], r["reason"]) for r in store.coverage("r").iter_rows(named=True)}
    assert ("plan", "no metric with the role checkpoint") in rows
    slices = judged(plan, [7, 100, 333, 450, 800])
    assert json.dumps(store.incidents("r"), default=str) == json.dumps(slices.incidents("r"), default=str)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("step = 3", "plan.step: no such key; did you mean steps?"),
        ("batch_size = [{step = 0, vale = 3}]", "plan.batch_size[1].vale: no such key; did you mean value?"),
        ("batch_size = [{step = 5, value = 3}, {step = 5, value = 4}]", "batch_size: give its stages by rising step"),
        ('schedule = "cosine"', "schedule cosine needs steps and peak_learning_rate"),
        ("steps = 10\nwarmup_steps = 10", "does not lie before the last of 10 steps"),
        ("steps = -1", "greater than 0"),
        ("steps = [", "this is no TOML"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said(tmp_path, text, said):
    with pytest.raises(BadConfig) as caught:
        section(tmp_path, text)
    assert said in str(caught.value)


def test_a_plan_stands_in_the_configuration_too(tmp_path):
    path = tmp_path / "watchkeeper.toml"
    path.write_text('[[run]]\nsource = "a.jsonl"\n[run.plan]\nsteps = 10\ntokens_per_step = 64\n')
    plan = load_config(path).run[0].plan
    assert plan is not None
    assert plan_of(plan).stages == {"tokens": ((0, 64),)}
