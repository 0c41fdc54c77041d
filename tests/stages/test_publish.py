import numpy as np
import polars as pl
import pytest

from flows.incidents.incident import Incident, Transition
from flows.messages.blocks import from_json
from flows.records import STORED_SCHEMA, Attempt, Description, Role
from flows.stages.announce import announcer
from flows.stages.document import curves_of, incidents_of, run_document
from flows.stages.publish import chart_of, charted, publish
from flows.store import open_store

NOW = 1_800_000_000.0


@pytest.fixture
def store():
    store = open_store(":memory:", clock=lambda: NOW)
    store.register_run(Description("hero/moe v3", "hero.jsonl", "jsonl", "step"))
    step = np.concatenate([np.arange(0.0, 600.0), np.arange(500.0, 700.0)])
    loss = 2.0 + np.random.default_rng(4).normal(0, 0.02, len(step))
    loss[700:] += 1.5
    frame = pl.DataFrame(
        {
            "step": step,
            "logged_at": [None] * len(step),
            "name": ["train/loss"] * len(step),
            "value": loss,
            "attempt": [0] * 600 + [1] * 200,
            "late": [False] * len(step),
        },
        schema=STORED_SCHEMA,
    )
    attempts = [Attempt(0, 0.0, None, "start", 500.0), Attempt(1, 500.0, 0, "rewind")]
    store.append("hero/moe v3", frame, attempts, "c", "t", {}, lambda name: Role("loss", "nats", "down"))
    return store


def finding(incident_id, onset=600.0):
    return {
        "finding_id": f"f-{incident_id}", "incident_id": incident_id, "attempt": 1, "detector": "shifts", "kind": "level",
        "metric": "train/loss", "role": "loss", "direction": "up", "onset_step": onset, "detected_step": onset + 8,
        "magnitude": 0.56, "unit": "log", "severity": 2, "episode": "e", "evidence": '{"before": 2.0, "after": 3.5}',
    }  # fmt: skip


def row(incident_id, severity=2, onset=600.0):
    return {
        "incident_id": incident_id, "severity": severity, "status": "open", "onset_step": onset, "detected_step": onset + 8,
        "title": f"train/loss jumped from 2 to 3.5 at step {onset:g}", "severity_history": '[{"step": 608, "severity": 2}]',
    }  # fmt: skip


def save(store, *incidents):
    store.save_judgement(
        "hero/moe v3", upto_batch=1, run_state="{}", states={}, incidents=incidents,
        findings=[finding(each["incident_id"], each["onset_step"]) for each in incidents],
        coverage=[{"check_name": "mfu", "reason": "no metric with this role"}, {"check_name": "loss", "reason": "checked"}],
    )  # fmt: skip


def test_a_run_is_read_as_check_writes_it(store):
    save(store, row("aa"))
    document = run_document(store, "hero/moe v3")
    assert (document["samples"], document["first_step"], document["last_step"]) == (800, 0.0, 699.0)
    assert document["not_checked"] == [{"check": "mfu", "reason": "no metric with this role"}]
    [incident] = document["incidents"]
    assert (incident["severity"], incident["severity_history"]) == ("S2", [{"step": 608, "severity": "S2"}])
    assert incident["findings"][0]["evidence"] == {"before": 2.0, "after": 3.5}
    with pytest.raises(LookupError, match="no run 'x'"):
        run_document(store, "x")


def test_the_curves_of_an_incident_hold_every_attempt(store):
    save(store, row("aa"))
    [curve] = curves_of(store, "hero/moe v3", incidents_of(store, "hero/moe v3")[0], store.metrics("hero/moe v3"))
    assert curve.name == "train/loss" and curve.unit == "nats"
    assert (curve.attempt == 0).sum() == 600 and (curve.attempt == 1).sum() == 200


def test_publishing_writes_a_page_and_pictures_and_the_same_bytes_again(store, tmp_path):
    save(store, row("aa"), row("bb", severity=0, onset=300.0))
    first = publish(store, "hero/moe v3", tmp_path)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    publish(store, "hero/moe v3", tmp_path)
    assert files == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert first.page.parent.parent == tmp_path and list(first.charts) == ["aa"]
    assert first.charts["aa"].read_bytes().startswith(b"\x89PNG")
    assert "var(--line)" in first.page.read_text()


def test_only_so_many_incidents_get_a_picture_the_gravest_first(store, tmp_path):
    save(store, *(row(f"i{n}", severity=1 + n % 3, onset=590.0 + n) for n in range(6)))
    assert [i["severity"] for i in charted(run_document(store, "hero/moe v3"), 3)] == ["S3", "S3", "S2"]
    assert len(publish(store, "hero/moe v3", tmp_path, most_charts=1).charts) == 1


def test_the_chart_of_a_delivery_is_that_of_its_incident(store):
    save(store, row("aa"))
    chart = chart_of(store)
    assert chart({"run": "hero/moe v3", "incident_id": "aa"}).startswith(b"\x89PNG")
    assert chart({"run": "hero/moe v3", "incident_id": "gone"}) is None


def incident(identity, severity, history=(), status="open"):
    past = history or ((608.0, severity),)
    return Incident(
        identity, "hero/moe v3", 1, severity, status, f"{identity} moved", "", 0.5, 600.0, 608.0, None, past, ()
    )


def announced(store, channels, *changes):
    takers = {name: lambda incident, least=least: incident.worst >= least for name, least in channels.items()}
    return list(announcer(store, "hero/moe v3", takers, clock=lambda: NOW)(changes, [])[0])


def test_each_channel_is_told_of_what_is_grave_enough_for_it(store):
    changes = [Transition(incident("mild", 1), "opened", 608.0), Transition(incident("grave", 3), "opened", 608.0)]
    rows = announced(store, {"pager": 3, "chat": 1}, *changes)
    assert [(row["channel"], row["incident_id"]) for row in rows] == [
        ("chat", "mild"), ("chat", "grave"), ("pager", "grave")
    ]  # fmt: skip
    assert from_json(rows[0]["message"]).title == "S1 hero/moe v3: mild moved"


def test_an_end_is_told_to_whom_the_worst_was_told(store):
    over = incident("x", 1, history=((608.0, 3), (650.0, 1)), status="resolved")
    assert [row["transition"] for row in announced(store, {"pager": 3}, Transition(over, "resolved", 700.0))] == [
        "resolved"
    ]


def test_a_lowered_severity_wakes_nobody(store):
    assert announced(store, {"chat": 0}, Transition(incident("x", 1), "lowered", 650.0)) == []


def test_announcing_the_same_again_is_the_same_delivery(store):
    change = Transition(incident("x", 3), "opened", 608.0)
    assert (
        announced(store, {"chat": 0}, change)[0]["delivery_id"]
        == announced(store, {"chat": 0}, change)[0]["delivery_id"]
    )
    store.save_judgement(
        "hero/moe v3", upto_batch=1, run_state="{}", states={}, deliveries=announced(store, {"chat": 0}, change)
    )
    store.save_judgement(
        "hero/moe v3", upto_batch=1, run_state="{}", states={}, deliveries=announced(store, {"chat": 0}, change)
    )
    assert len(store.pending_deliveries(NOW)) == 1
