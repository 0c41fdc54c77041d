"""Hours, limits and digests on rows of the outbox, to the second and to the step."""

import json
from dataclasses import replace
from datetime import UTC, datetime, time

import pytest

from flows.incidents.incident import Incident, incident_row
from flows.records import Description, Operation
from flows.stages.digest import Digest, tell_digests
from flows.stages.door import Gate, decide
from flows.store import open_store

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()
NIGHT = Gate(time(22), time(7))
DAY = Gate(time(9), time(17))


def at(hour, minute=0):
    return datetime(2026, 1, 1, hour, minute, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("gate", "moment", "rests"),
    [
        (NIGHT, at(21, 59), False), (NIGHT, at(22), True), (NIGHT, at(2), True), (NIGHT, at(6, 59), True),
        (NIGHT, at(7), False), (NIGHT, at(12), False), (DAY, at(8, 59), False), (DAY, at(9), True), (DAY, at(17), False),
    ],
)  # fmt: skip
def test_a_gate_is_shut_from_its_beginning_to_its_end(gate, moment, rests):
    assert bool(gate.rests(2, moment)) == rests


def test_what_passes_passes_and_a_zone_has_its_own_night():
    assert [bool(NIGHT.rests(severity, at(23))) for severity in (2, 3, 4)] == [True, False, False]
    assert not replace(NIGHT, zone="Asia/Tokyo").rests(2, at(23))
    assert replace(NIGHT, zone="Asia/Tokyo").rests(2, at(14)) == "quiet hours until 07:00 Asia/Tokyo"
    assert Gate().rests(0, NOON) == ""


def row(name, severity="S2", channel="ops", state="pending", transition="opened", seconds=0, **more):
    return {
        "delivery_id": name, "incident_id": name, "channel": channel, "transition": transition, "state": state,
        "message": json.dumps({"severity": severity, "incidents": [more.pop("incident", name)]}), "held_by": None,
        "held_since": None, "sending_since": None, "created_at": datetime(2026, 1, 1, 12, 0, seconds), **more,
    }  # fmt: skip


def decided(due, *others, gates=None, sent=None, incidents=(), log=()):
    found = decide(due, [*due, *others], incidents, log, 700.0, NOON, gates or {}, sent or {})
    return {name: (said.what, said.marks) for name, said in found.items()}


def test_a_limit_counts_what_was_sent_and_what_is_about_to_be():
    due = [row(name, seconds=k) for k, name in enumerate("abc")]
    limit = {"ops": Gate(most=3, seconds=60.0)}
    count = ("1 more held back by the limit",)
    assert decided(due, gates=limit, sent={"ops": 1}) == {"a": ("send", count), "b": ("send", count), "c": ("hold", ())}
    assert {what for what, _ in decided(due, gates=limit, sent={"ops": 0}).values()} == {"send"}
    assert {what for what, _ in decided(due, gates={"chat": limit["ops"]}, sent={"chat": 9}).values()} == {"send"}


def test_a_limit_holds_no_page():
    due = [row("a", "S2", seconds=1), row("b", "S3", seconds=2), row("c", "S4", seconds=3)]
    found = decided(due, gates={"ops": Gate(most=1, seconds=60.0)}, sent={"ops": 5})
    assert [found[name][0] for name in "abc"] == ["hold", "send", "send"]


def over(name="i"):
    return Incident(name, "r", 1, 2, "resolved", "x", "", 0.5, 600.0, 608.0, 650.0, ((608.0, 2),), ())


def going(name="i"):
    return replace(over(name), status="open", resolved_step=None)


def test_only_a_later_message_of_the_same_channel_says_more():
    held = row("a", incident="i", held_by="quiet hours", seconds=5)
    for other, what in (
        (row("b", incident="i", seconds=6), "withdraw"),
        (row("b", incident="i", seconds=4), "send"),
        (row("b", incident="i", seconds=6, channel="chat"), "send"),
        (row("b", incident="j", seconds=6), "send"),
        (row("b", incident="i", seconds=6, transition="acknowledged"), "send"),
        (row("b", incident="i", seconds=6, state="delivered"), "send"),
    ):
        assert decided([held], other, incidents=[going()])["a"][0] == what


@pytest.mark.parametrize(
    ("arrived", "what"),
    [
        ({"state": "withdrawn"}, "withdraw"),
        ({"state": "withdrawn", "sending_since": datetime(2026, 1, 1)}, "send"),
        ({"state": "delivered"}, "send"),
    ],
)
def test_an_end_follows_a_beginning_that_may_have_arrived(arrived, what):
    began = row("a", incident="i", held_by="it came and went while muted by bo", **arrived)
    end = row("b", incident="i", seconds=9, transition="resolved")
    assert decided([end], began, incidents=[over()])["b"][0] == what


def test_an_acknowledged_reminder_leaves_where_the_page_has_not_and_only_there():
    ack = Operation("r", "ack", "ana", NOON + 3, incident_id="i", step=640.0, severity=2, findings=0)
    reminder = row("b", incident="i", seconds=2, transition="still")
    log = [Operation("r", "opened", "watchkeeper", NOON, incident_id="i", step=608.0, severity=2, findings=0), ack]
    assert decided([reminder], incidents=[going()], log=log)["b"] == ("send", ("ana has it",))
    assert decided([row("a", incident="i"), reminder], incidents=[going()], log=log)["b"][0] == "withdraw"


# digests


class Lab:
    def __init__(self):
        self.now = NOON
        self.store = open_store(":memory:", clock=lambda: self.now)
        self.store.register_run(Description("r", "r.jsonl", "jsonl", "step"))

    def say(self, name, what="opened", severity=1, silent=False):
        moment = datetime.fromtimestamp(self.now, UTC).replace(tzinfo=None)
        one = replace(going(name), severity=severity, severity_history=((608.0, severity),))
        line = Operation(
            "r",
            what,
            "watchkeeper",
            self.now,
            incident_id=name,
            step=608.0,
            severity=severity,
            findings=0,
            silent=silent,
        )
        self.store.save_told("r", [], [incident_row(one, moment, moment)], [line])

    def tell(self, **more):
        digest = Digest("ops", lambda incident: incident.worst == 1, **more)
        before = {each["delivery_id"] for each in self.store.outbox("r", ("pending",))}
        tell_digests(self.store, "r", [digest], clock=lambda: self.now)
        new = [each for each in self.store.outbox("r", ("pending",)) if each["delivery_id"] not in before]
        return [json.loads(each["message"])["title"] for each in new]


@pytest.fixture
def lab():
    return Lab()


def test_a_digest_comes_when_its_time_is_over_and_holds_only_what_is_new(lab):
    lab.say("a")
    lab.now += 99.0
    assert lab.tell(seconds=100.0) == []
    lab.now += 1.0
    assert lab.tell(seconds=100.0) == ["S1 r: digest: 1 note, 1 of them open"]
    lab.now += 1000.0
    assert lab.tell(seconds=100.0) == []
    lab.say("b")
    lab.say("c")
    assert lab.tell(seconds=100.0) == ["S1 r: digest: 2 notes, 2 of them open"]


def test_a_digest_leaves_out_what_was_silenced_or_told_at_once(lab):
    lab.say("a", silent=True)
    lab.say("b", severity=3)
    lab.say("c", what="lowered")
    lab.now += 1000.0
    assert lab.tell(seconds=100.0) == []
    lab.say("d")
    lab.now += 1000.0
    assert lab.tell(seconds=100.0) == ["S1 r: digest: 1 note, 1 of them open"]
