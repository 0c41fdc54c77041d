"""The runs that ship, judged whole: what their labels ask for is found, and what must stay quiet is quiet."""

import json
from pathlib import Path

import polars as pl
import pytest

from flows.playbook import load_playbook
from flows.sources.catalogue import open_sources
from flows.sources.roles import role_of
from flows.stages.document import run_document
from flows.stages.judge import judge
from flows.stages.pull import pull
from flows.store import open_store

RUNS = Path(__file__).parents[2] / "data" / "runs"
LABELS = {run["file"]: run for run in json.loads((RUNS / "labels.json").read_text())["runs"]}
# roles whose shifts are judged so far; the labels tell of more
JUDGED = {"loss", "learning_rate", "token_drop", "router_entropy", "step_time", "throughput"}
SPEED = {"mfu", "throughput", "step_time"}
LEVEL = {"info": 0, "note": 1, "investigate": 2, "page": 3, "never": 99}


def severity(incident):
    return int(incident["severity"][1])


@pytest.fixture(scope="module", params=sorted(LABELS))
def judged(request):
    store = open_store(":memory:", clock=lambda: 1e9)
    (source,) = open_sources(str(RUNS / request.param))
    run = pull(store, source, role_of, final=True).run
    judge(store, run, load_playbook(), clock=lambda: 1e9)
    return LABELS[request.param], run_document(store, run)


def window(event):
    slack = event.get("tol", max(2, 0.02 * event["end"]))
    return event["start"] - slack, event["end"] + slack


def test_every_labelled_event_is_found_at_its_place_and_loud_enough(judged):
    label, document = judged
    for event in label["events"]:
        if not JUDGED.intersection(event["roles"]) or event["level"] == "info":
            continue
        low, high = window(event)
        fitting = [
            i
            for i in document["incidents"]
            if any(f["role"] in event["roles"] and low <= f["onset_step"] <= high for f in i["findings"])
            or (i["onset_step"] < low and i["status"] == "open")  # its cause is known and being told
        ]
        assert fitting, f"{label['file']}: nothing answers {event['kind']} of {event['roles']} at {event['start']}"
        assert max(map(severity, fitting)) >= LEVEL[event["level"]]


def test_nothing_is_loud_outside_the_labelled_events(judged):
    """But for the speed: the computer of the recordings was shared, its slow-downs are real."""
    label, document = judged
    spans = [*map(window, label["events"]), *map(tuple, label["allow"])]
    loud = [
        i["title"]
        for i in document["incidents"]
        if severity(i) >= LEVEL[label["quiet_at"]]
        and not any(a <= i["onset_step"] <= b for a, b in spans)
        and not SPEED.issuperset(f["role"] for f in i["findings"] if f["severity"] >= 1)
    ]
    assert loud == []


@pytest.mark.parametrize(
    ("run", "pattern"),
    [
        ("lr_hot_resume", "lr_schedule_reset"),
        ("capacity_cut", "capacity_or_transport_drops"),
        ("router_collapse", "router_collapse"),
    ],
)
def test_the_cause_is_named(run, pattern):
    store = open_store(":memory:", clock=lambda: 1e9)
    (source,) = open_sources(str(RUNS / f"{run}.parquet"))
    pull(store, source, role_of, final=True)
    judge(store, run, load_playbook(), clock=lambda: 1e9)
    fault = {"lr_hot_resume": (1700, 1705), "capacity_cut": (2000, 2005), "router_collapse": (1800, 1840)}[run]
    (incident,) = [
        i for i in run_document(store, run)["incidents"] if fault[0] <= i["onset_step"] <= fault[1] and severity(i) >= 2
    ]
    assert incident["pattern"] == pattern
    assert all(s["counter_evidence"] for s in incident["suggestions"])


def test_the_runs_are_recordings_of_at_least_3000_steps_and_small():
    files = sorted(RUNS.glob("*.parquet"))
    assert len(files) == 4
    assert sum(path.stat().st_size for path in files) < 3_000_000
    for path in files:
        frame = pl.read_parquet(path)
        assert frame["global_step"].n_unique() >= 3000
        assert frame["_timestamp"].is_sorted()
        assert (RUNS / f"{path.stem}.md").is_file()
