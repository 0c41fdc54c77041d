import math
from datetime import datetime

import polars as pl
import pytest

from flows.errors import BadInput
from flows.records import Attempt, Event, Role

FINDING = {
    "finding_id": "f1", "incident_id": "i1", "attempt": 1, "detector": "loss_spike", "version": "1", "parameters": "{}",
    "kind": "spike", "metric": "loss", "role": "loss", "direction": "up", "onset_step": 4.0, "detected_step": 5.0,
    "magnitude": 0.3, "unit": "log", "severity": 2, "evidence": "{}",
}  # fmt: skip
INCIDENT = {
    "incident_id": "i1", "attempt": 1, "severity": 2, "status": "open", "title": "loss rose by 0.3", "pattern": "spike",
    "confidence": 0.5, "onset_step": 4.0, "detected_step": 5.0,
}  # fmt: skip
DELIVERY = {
    "delivery_id": "d1", "incident_id": "i1", "transition": "opened", "channel": "folder", "message": "{}",
    "message_id": "m1",
}  # fmt: skip


def judge(store, upto, **said):
    store.save_judgement("hero", upto_batch=upto, run_state=f"upto {upto}", states=said.pop("states", {}), **said)


def test_unjudged_rows_come_in_the_order_in_which_the_run_wrote_them(store, append):
    append(store, (1, "loss", 2.0), (1, "grad", 5.0), (2, "loss", 1.5))
    append(store, (2, "grad", 6.0), (3, "loss", 1.2))
    found = store.unjudged("hero", limit=100)
    assert found.upto_batch == 2
    assert found.rows.drop("seconds").rows() == [
        ("loss", "loss", "nats", 1, 1.0, 2.0),
        ("grad", "other", "", 1, 1.0, 5.0),
        ("loss", "loss", "nats", 1, 2.0, 1.5),
        ("grad", "other", "", 1, 2.0, 6.0),
        ("loss", "loss", "nats", 1, 3.0, 1.2),
    ]
    assert found.rows["seconds"][0] == datetime(2026, 1, 1, 0, 0, 1).timestamp() - datetime(1970, 1, 1).timestamp()


def test_unjudged_takes_whole_batches_and_at_least_one(store, append):
    for step in range(0, 9, 3):
        append(store, *((step + i, "loss", 1.0) for i in range(3)))
    assert (store.unjudged("hero", 7).upto_batch, len(store.unjudged("hero", 7).rows)) == (2, 6)
    assert (store.unjudged("hero", 1).upto_batch, len(store.unjudged("hero", 1).rows)) == (1, 3)
    judge(store, 3)
    assert (store.unjudged("hero", 7).upto_batch, len(store.unjudged("hero", 7).rows)) == (3, 0)


def test_the_judge_sees_first_values_and_no_late_rows(store, append):
    append(store, (1, "loss", 2.0), (3, "loss", math.nan))
    append(store, (1, "loss", 9.0), (3, "loss", 8.0), (2, "loss", 7.0, 1, True))
    assert str(store.unjudged("hero", 100).rows["value"].to_list()) == "[2.0, nan]"


def test_a_sample_without_a_clock_has_nan_seconds(store, rows):
    timeless = rows((1, "loss", 2.0)).with_columns(logged_at=pl.lit(None, dtype=pl.Datetime("us")))
    store.append("hero", timeless, [], "c", "t", {}, lambda _: Role("loss"))
    assert math.isnan(store.unjudged("hero", 9).rows["seconds"][0])


def test_a_judgement_is_saved_whole_and_saving_it_again_changes_nothing(store, append):
    append(store, (1, "loss", 2.0))
    no_mfu = {"check_name": "mfu", "metric": "", "reason": "no metric with this role", "count": 1}
    said = {"findings": [FINDING], "incidents": [INCIDENT], "deliveries": [DELIVERY], "coverage": [no_mfu]}
    for _ in range(2):
        judge(store, 1, states={("loss", 1): b"\x00s"}, **said)
    assert store.run_state("hero") == "upto 1"
    assert store.judge_states("hero") == {("loss", 1): b"\x00s"}
    assert store.judge_states("hero", ["grad"]) == {}
    assert [row["title"] for row in store.incidents("hero")] == ["loss rose by 0.3"]
    assert [row["detector"] for row in store.findings("hero", "i1")] == ["loss_spike"]
    assert [row["message_id"] for row in store.pending_deliveries()] == ["m1"]
    assert store.coverage("hero").select("check_name", "reason", "count").rows() == [
        ("mfu", "no metric with this role", 1)
    ]
    assert store.runs().select("judged_batch", "judged_at").rows() == [(1, datetime(2023, 11, 14, 22, 13, 20))]


def test_a_failing_judgement_leaves_the_watermark_where_it_was(store, append):
    append(store, (1, "loss", 2.0))
    with pytest.raises(ValueError, match=r"unknown columns \['colour'\]"):
        judge(store, 1, findings=[FINDING], incidents=[INCIDENT | {"colour": "red"}])
    assert store.findings("hero") == [] and store.run_state("hero") is None
    assert len(store.unjudged("hero", 9).rows) == 1


def test_an_incident_takes_its_new_words_and_keeps_when_it_was_opened(store):
    judge(store, 0, incidents=[INCIDENT | {"opened_at": 100.0}])
    judge(store, 0, incidents=[INCIDENT | {"status": "resolved", "resolved_step": 9.0, "severity": 3}])
    (row,) = store.incidents()
    assert (row["status"], row["severity"], row["resolved_step"]) == ("resolved", 3, 9.0)
    assert row["opened_at"] == datetime(1970, 1, 1, 0, 1, 40)
    assert store.open_incidents("hero") == []


def test_a_finding_that_was_said_stays_as_it_was_said_but_may_move_to_a_joined_incident(store):
    judge(store, 0, findings=[FINDING])
    judge(store, 0, findings=[FINDING | {"magnitude": 99.0, "incident_id": "i2"}])
    (row,) = store.findings("hero")
    assert (row["magnitude"], row["incident_id"]) == (0.3, "i2")


def test_coverage_replaces_what_was_said_of_the_same_check_and_metric(store):
    short = {"check_name": "trend", "metric": "loss", "reason": "needs 100 samples, has 7", "count": 1}
    judge(store, 0, coverage=[short])
    judge(store, 0, coverage=[short | {"reason": "checked"}])
    assert store.coverage("hero").select("reason").rows() == [("checked",)]


def test_the_tail_of_a_lineage_holds_what_stood_before_the_fork(store, append):
    line = [Attempt(1, 0.0, None, "start", 3.0), Attempt(2, 5.0, 1, "rewind", 3.0), Attempt(3, 3.0, 2, "rewind")]
    append(store, *((i, "loss", float(i)) for i in range(8)), attempts=line)
    append(store, (2, "loss", -2.0), (1, "loss", 50.0, 1), attempts=line)  # written again: the judge saw the first
    append(store, (5, "loss", 50.0, 2), (6, "loss", 60.0, 2), (3, "loss", 300.0, 3), attempts=line)
    assert store.lineage_tail("hero", "loss", 2, 3).select("step", "value").rows() == [(2, 2.0), (3, 3.0), (4, 4.0)]
    assert store.lineage_tail("hero", "loss", 3, 2).select("step", "value").rows() == [(1, 1.0), (2, 2.0)]
    assert store.lineage_tail("hero", "loss", 1, 5).is_empty()
    assert store.lineage_tails("hero", 3, 1).drop("seconds").rows() == [("loss", 2.0, 2.0)]


def test_the_tail_of_a_long_line_is_whole_where_a_metric_is_rare_or_had_a_gap(store, append):
    line = [Attempt(1, 0.0, None, "start", 401.0), Attempt(2, 401.0, 1, "rewind")]
    dense = [(i, "loss", float(i)) for i in range(401)]
    rare = [(i, "eval", float(i)) for i in range(0, 401, 100)]
    gap = [*((i, "norm", float(i)) for i in range(100)), (400, "norm", 400.0)]
    once = [(0, "weight", 0.5)]
    append(store, *dense, *rare, *gap, *once, attempts=line)
    found = store.lineage_tails("hero", 2, 3)
    assert found.group_by("name", maintain_order=True).agg("step").rows() == [
        ("loss", [398.0, 399.0, 400.0]),
        ("eval", [200.0, 300.0, 400.0]),
        ("norm", [98.0, 99.0, 400.0]),
        ("weight", [0.0]),
    ]


def test_an_event_is_stored_once_and_counts_from_its_recording(store):
    event = Event("batch_ramp", 100.0, note="to 4M", detail={"from": 2})
    assert store.add_event("hero", event) == store.add_event("hero", event)
    assert store.events("hero") == [
        Event("batch_ramp", 100.0, note="to 4M", detail={"from": 2}, recorded_at=1_700_000_000.0)
    ]


def test_an_unknown_run_is_named_with_those_that_exist(store):
    with pytest.raises(BadInput, match=r"run 'ghost': not in the store. Known runs: hero"):
        store.unjudged("ghost", 1)
