import json
from datetime import datetime

import pytest

DELIVERIES = [
    {
        "delivery_id": name,
        "incident_id": "i",
        "transition": "opened",
        "channel": "folder",
        "message": "{}",
        "message_id": f"<{name}>",
    }
    for name in ("d1", "d2")
]


@pytest.fixture
def outbox(store):
    store.save_judgement("hero", upto_batch=0, run_state="", states={}, deliveries=DELIVERIES)
    return store


def ids(store, now=2e9, **more):
    return [row["delivery_id"] for row in store.pending_deliveries(now, **more)]


@pytest.fixture
def row(look):
    return lambda store, wanted: look(store, f"FROM deliveries WHERE delivery_id = '{wanted}'").to_dicts()[0]


def test_a_message_stays_pending_until_its_receipt(outbox, row):
    outbox.mark_sending("d1", 10.0)
    assert ids(outbox) == ["d1", "d2"]
    outbox.mark_delivered("d1", 11.0)
    assert ids(outbox) == ["d2"]
    assert (row(outbox, "d1")["state"], row(outbox, "d1")["delivered_at"]) == (
        "delivered",
        datetime(1970, 1, 1, 0, 0, 11),
    )
    assert (row(outbox, "d1")["attempts"], row(outbox, "d1")["repeats"]) == (1, 0)


def test_a_failed_message_waits_for_its_time_and_its_second_try_is_no_repeat(outbox, row):
    outbox.mark_sending("d1", 10.0)
    outbox.mark_failed("d1", "HTTP 503", next_try_at=60.0)
    assert ids(outbox, now=59.0) == ["d2"] and ids(outbox, now=60.0) == ["d1", "d2"]
    outbox.mark_sending("d1", 60.0)
    outbox.mark_delivered("d1", 61.0)
    assert (row(outbox, "d1")["attempts"], row(outbox, "d1")["repeats"], row(outbox, "d1")["error"]) == (2, 0, None)


def test_a_kill_between_sending_and_receipt_is_a_counted_repeat_with_the_same_message_id(outbox, row):
    outbox.mark_sending("d1", 10.0)
    outbox.mark_sending("d1", 70.0)
    assert (row(outbox, "d1")["attempts"], row(outbox, "d1")["repeats"], row(outbox, "d1")["message_id"]) == (
        2,
        1,
        "<d1>",
    )


def test_a_message_that_can_never_arrive_is_dead_and_says_why(outbox, row):
    outbox.mark_failed("d1", "no such channel", next_try_at=None)
    assert ids(outbox) == ["d2"]
    assert (row(outbox, "d1")["state"], row(outbox, "d1")["error"]) == ("dead", "no such channel")


def test_deliveries_can_be_asked_for_by_run_and_an_unknown_one_is_an_error(outbox):
    assert ids(outbox, run="other") == []
    with pytest.raises(LookupError, match="no delivery 'd9'"):
        outbox.mark_delivered("d9", 1.0)


def test_a_receipt_is_kept_and_found_by_any_incident_that_the_message_told_of(store):
    def told(name, thread, incidents):
        text = json.dumps({"incidents": incidents})
        return {**DELIVERIES[0], "delivery_id": name, "incident_id": thread, "message": text}

    rows = [told("a", "i1", ["i1", "i2"]), told("b", "i3", ["i3"]), {**told("c", "i2", []), "message": "no JSON"}]
    store.save_judgement("hero", upto_batch=0, run_state="", states={}, deliveries=rows)
    for at, name in enumerate("abc"):
        store.mark_delivered(name, 10.0 + at, f"ts-{name}")
    assert [each["receipt"] for each in store.told("hero", "folder", ["i2"])] == ["ts-a", "ts-c"]
    assert [each["receipt"] for each in store.told("hero", "folder", ["i3", "i1"])] == ["ts-a", "ts-b"]
    assert store.told("hero", "other", ["i1"]) == store.told("other", "folder", ["i1"]) == []
    assert store.told("hero", "folder", ["i"]) == []
