from dataclasses import replace
from datetime import datetime

import pytest

from flows.records import Operation

ACK = Operation("hero", "ack", "ana", 100.0, "mine", "i1", step=50.0, severity=3, findings=2)
SNOOZE = replace(ACK, kind="snooze", until_time=5000.0, until_step=80.0, at=99.0)
MUTE = Operation("her*", "mute", "bo", 101.0, metric="val/*", until_step=90.0)
SILENT = Operation("hero", "opened", "watchkeeper", 102.0, "muted by bo", "i2", step=60.0, severity=4, silent=True)
INCIDENT = {
    "incident_id": "i1", "attempt": 1, "severity": 3, "status": "open", "title": "loss rose by 0.3", "pattern": "spike",
    "confidence": 0.5, "onset_step": 4.0, "detected_step": 5.0,
}  # fmt: skip


def judge(store, **said):
    store.save_judgement("hero", upto_batch=0, run_state="", states={}, **said)


def test_the_log_comes_back_as_it_was_written_in_the_order_of_writing(store):
    store.operate(ACK)
    store.operate(SNOOZE)  # an earlier clock changes nothing of the order
    store.operate(MUTE)
    judge(store, log=[SILENT, replace(SILENT, kind="resolved")])
    written = [ACK, SNOOZE, MUTE, SILENT, replace(SILENT, kind="resolved")]
    assert store.log() == [replace(each, turn=turn) for turn, each in enumerate(written, 1)]


def test_the_rows_of_the_log_hold_what_the_page_says(store, look):
    store.operate(SNOOZE)
    assert look(store, "FROM operations").rows() == [
        (
            1, "hero", "i1", "snooze", "", "", datetime(1970, 1, 1, 1, 23, 20), 80.0, 50.0, 3, 2, False, "ana", "mine",
            datetime(1970, 1, 1, 0, 1, 39),
        )
    ]  # fmt: skip


def test_a_runs_log_has_every_mute_and_nothing_of_other_runs(store):
    other = replace(ACK, run="other", incident_id="i9")
    for each in (ACK, other, MUTE, replace(MUTE, kind="unmute")):
        store.operate(each)
    assert [(each.run, each.kind) for each in store.log("hero")] == [
        ("hero", "ack"),
        ("her*", "mute"),
        ("her*", "unmute"),
    ]
    assert [(each.run, each.kind) for each in store.log("ghost")] == [("her*", "mute"), ("her*", "unmute")]


def test_what_is_resolved_by_hand_is_closed_at_once_and_keeps_an_end_that_it_has(store):
    judge(store, incidents=[INCIDENT, INCIDENT | {"incident_id": "i2", "status": "resolved", "resolved_step": 9.0}])
    for name in ("i1", "i2"):
        store.operate(replace(ACK, kind="resolve", incident_id=name))
    rows = {row["incident_id"]: (row["status"], row["resolved_step"]) for row in store.incidents("hero")}
    assert rows == {"i1": ("resolved", 50.0), "i2": ("resolved", 9.0)}


def test_words_of_a_person_are_kept_as_they_are(store):
    store.operate(replace(ACK, why="it's $name? -- '); DROP TABLE runs; \0"))
    assert store.log("hero")[0].why == "it's $name? -- '); DROP TABLE runs; \0"


def test_what_was_told_and_that_it_was_told_are_one_transaction(store):
    row = {"incident_id": "i1", "transition": "still", "channel": "c", "message": "{}", "message_id": "m"}
    store.save_told("hero", [row | {"delivery_id": "d"}], [INCIDENT], [ACK])
    with pytest.raises(ValueError, match="unknown columns"):
        store.save_told("hero", [row | {"delivery_id": "e"}], [INCIDENT | {"colour": 1}], [ACK])
    assert [each["delivery_id"] for each in store.pending_deliveries()] == ["d"]
    assert len(store.log("hero")) == 1
