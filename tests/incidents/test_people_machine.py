"""Any order of findings, recoveries, what people do, broken channels and kills: no page is lost, none is told twice but
after a kill between its receipt and the commit, no state is illegal."""

from collections import Counter
from datetime import UTC, datetime, time
from fnmatch import fnmatchcase

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from detectors.finding import Finding, Pending, Recovery
from flows.channels.contract import Receipt, TryLater
from flows.errors import DeliveryFailed
from flows.incidents import Transition, fold, transitions
from flows.incidents.pending import follow
from flows.incidents.people import (
    PEOPLE,
    by_hand,
    known,
    of,
    owed,
    said,
    standing,
    unanswered,
    unsettled,
    words,
)
from flows.incidents.states import MOVES, OPEN, PENDING, STATES
from flows.messages.blocks import Header, Message, to_json
from flows.playbook import load_playbook
from flows.records import Operation
from flows.stages.announce import newest_words
from flows.stages.door import Gate, decide
from flows.stages.notify import notify

PLAYBOOK = load_playbook()
METRICS = {"train/loss": "loss", "val/loss": "eval_loss", "mfu": "mfu"}
GLOBS = ["train/*", "*loss", "mfu", "*"]
FAR = 1e9
REMIND = 600.0
ASKED = 20  # samples beyond a user's bound
CHANNELS = ("chat", "ops")
GATES = {
    "chat": Gate(time(0, 0), time(0, 30), most=2, seconds=900.0),  # the model's clock begins at 00:16
    "ops": Gate(),
}


class Killed(BaseException):
    """The process is gone between the receipt and its commit."""


class Outbox:
    """The table of deliveries, a channel each, as `notify` sees it."""

    def __init__(self):
        self.rows, self.killing = {}, False

    def put(self, channel, changes, turn, now):
        changes = sorted(changes, key=lambda each: (each.incident.status == "resolved", -each.incident.severity))
        names = tuple(each.incident.id for each in changes)
        worst = max(each.incident.worst for each in changes)
        what = changes[0].what
        message = Message(f"{what} {names}", f"S{worst}", "run", what, names[0], (Header("x"),), incidents=names)
        identity = f"{turn:06}-{channel}-{names[0]}"
        self.rows.setdefault(
            identity,
            {
                "run": "run", "delivery_id": identity, "incident_id": names[0], "transition": what, "channel": channel,
                "message": to_json(message), "message_id": "", "state": "pending", "attempts": 0, "next_try_at": None,
                "sending_since": None, "delivered_at": None, "repeats": 0, "error": None, "held_by": None,
                "held_since": None, "created_at": datetime.fromtimestamp(now, UTC).replace(tzinfo=None),
                "severities": {each.incident.id: each.incident.severity for each in changes},
            },
        )  # fmt: skip

    def of(self, *states):
        return [row for row in self.rows.values() if row["state"] in states]

    def pending_deliveries(self, now, run):
        return [dict(row) for row in self.of("pending") if row["next_try_at"] is None or row["next_try_at"] <= now]

    def told(self, run, channel, ids):
        return []  # these channels edit nothing in place

    def mark_sending(self, identity, now):
        row = self.rows[identity]
        row.update(attempts=row["attempts"] + 1, repeats=row["repeats"] + (row["sending_since"] is not None))
        row["sending_since"] = now

    def mark_delivered(self, identity, now, receipt=""):
        if self.killing:
            raise Killed
        self.rows[identity].update(state="delivered", delivered_at=now, sending_since=None)

    def mark_failed(self, identity, error, next_try_at):
        assert next_try_at is not None
        self.rows[identity].update(next_try_at=next_try_at, sending_since=None, error=error)

    def hold(self, identity, why, now):
        row = self.rows[identity]
        row.update(held_by=why, held_since=row["held_since"] or row["created_at"], error=None)

    def withdraw(self, identity, why):
        self.rows[identity].update(state="withdrawn", held_by=why)


class Line:
    """A channel that is up, or down in one of two ways; `sent` is what people have got."""

    def __init__(self, name, sent):
        self.name, self.sent, self.trouble = name, sent, None

    def send(self, outgoing):
        if self.trouble is not None:
            raise self.trouble
        self.sent.append((self.name, outgoing.message))
        return Receipt(self.name)


class Watch(RuleBasedStateMachine):
    """A watch of one run, with the judge's own functions; what must be told is counted apart from them."""

    def __init__(self):
        super().__init__()
        self.step, self.now = 100.0, 1000.0
        self.answers, self.before, self.log = [], [], []
        self.told = []  # (incident, what, severity)
        self.mutes = {}  # (metric, pattern) -> (until_time, until_step), as the model has them
        self.snoozes = {}  # incident -> (until_time, until_step, severity)
        self.resolved = {}  # incident -> what was known of it
        self.acknowledged = {}  # incident -> its severity then
        self.rows, self.said, self.waits = {}, [], []  # metric -> onset and length of a row beyond a bound
        self.gone = ""  # the metric whose bound somebody took away
        self.outbox, self.sent, self.kills = Outbox(), [], 0
        self.lines = {name: Line(name, self.sent) for name in CHANNELS}

    # the way out

    @rule(name=st.sampled_from(CHANNELS), how=st.sampled_from(["up", "down", "slow"]))
    def a_channel_changes(self, name, how):
        self.lines[name].trouble = {
            "up": None,
            "down": DeliveryFailed("down"),
            "slow": TryLater("wait", 300.0),
        }[how]

    @rule(killed=st.booleans())
    def what_waits_is_sent(self, killed=False):
        self.outbox.killing = killed
        before = len(self.sent)
        try:
            notify(self.outbox, self.lines, lambda: self.now, door=self.door)
        except Killed:
            self.kills += 1
        self.outbox.killing = False
        for at, (name, message) in enumerate(self.sent[before:], before):
            heard = {each for other, said in self.sent[:at] if other == name for each in said.incidents}
            self.nobody_silenced(name, message, heard)

    def door(self, rows):
        sent = {
            "chat": sum(
                row["channel"] == "chat" and row["delivered_at"] > self.now - 900.0
                for row in self.outbox.of("delivered")
            )
        }
        outbox = self.outbox.of("pending", "withdrawn", "delivered")
        return decide(rows, outbox, self.before, self.log, self.step, self.now, GATES, sent)

    def nobody_silenced(self, name, message, heard):
        about = [each for each in self.before if each.id in message.incidents]
        louder = [each for each in about if each.severity > self.snoozes.get(each.id, (None, None, 9))[2]]
        quiet = [each for each in about if self.is_muted(each, self.step, self.now)]
        quiet += [each for each in about if each not in quiet + louder and self.is_snoozed(each, self.step, self.now)]
        assert not about or len(quiet) < len(about)
        if message.transition == "still":
            assert any(each.status == "open" for each in about)
            assert any(each.id not in heard or not standing(of(self.log, each.id)).acknowledged for each in about)
        if name == "chat" and message.severity in ("S1", "S2"):
            assert not 0 <= self.now % 86_400.0 < 1800.0

    def write_down(self, changes):
        for channel in CHANNELS:
            if len(changes) > 3:
                self.outbox.put(channel, changes, len(self.log), self.now)
            else:
                for each in changes:
                    self.outbox.put(channel, [each], len(self.log), self.now)

    # the run

    @rule(
        name=st.sampled_from(sorted(METRICS)),
        severity=st.integers(1, 4),
        ahead=st.sampled_from([1, 2, 5, 400]),
        judged=st.booleans(),
    )
    def something_is_found(self, name, severity, ahead, judged):
        self.step += ahead
        self.answers.append(
            Finding(
                "level", 1, "level", name, METRICS[name], "up", self.step, self.step, 0.3, "log", severity,
                f"{name}{self.step:g}", {"cadence": 1.0, "samples": 1000},
            )
        )  # fmt: skip
        if judged:
            self.a_pass()

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def something_recovers(self, data):
        finding = data.draw(st.sampled_from([a for a in self.answers if isinstance(a, Finding)]))
        self.step += 3
        self.answers.append(Recovery(finding.detector, finding.metric, finding.episode, self.step))

    @rule(name=st.sampled_from(sorted(METRICS)), more=st.sampled_from([5, 9, 20]))
    def a_row_goes_on_beyond_a_bound(self, name, more):
        self.step += 1
        onset, seen = self.rows.get(name, (self.step, 0))
        self.step += more
        self.rows[name] = onset, seen + more
        if seen < ASKED <= seen + more:
            self.answers.append(
                Finding(
                    "bounds", 1, "level", name, METRICS[name], "up", onset, self.step, 0.3, "", 3,
                    f"above:2.0:20@{onset:.15g}", {"cadence": 1.0, "samples": 1000, "side": "above", "limit": 2.0},
                )
            )  # fmt: skip
        elif seen + more < ASKED:
            self.said.append(self.pending(name))

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def a_row_breaks(self, data):
        name = data.draw(st.sampled_from(sorted(self.rows)))
        self.step += 1
        if self.rows[name][1] < ASKED:
            self.said.append(self.pending(name, "it is no longer beyond the limit"))
        del self.rows[name]

    @precondition(lambda self: self.waits)
    @rule(data=st.data())
    def somebody_takes_a_bound_away(self, data):
        self.gone = data.draw(st.sampled_from(sorted(each.what.metric for each in self.waits)))
        self.rows.pop(self.gone, None)
        self.said = [each for each in self.said if each.metric != self.gone]
        self.a_pass()
        self.gone = ""

    def pending(self, name, over=""):
        onset, seen = self.rows[name]
        episode = f"above:2.0:20@{onset:.15g}"
        return Pending("bounds", name, episode, onset, self.step, seen, ASKED, "above 2", "samples", 3, over)

    @rule(seconds=st.sampled_from([1.0, 50.0, 500.0]), steps=st.sampled_from([0.0, 20.0]))
    def time_passes(self, seconds, steps):
        self.now += seconds
        self.step += steps

    # people

    def operate(self, kind, incident, **more):
        about = {"incident_id": incident.id, "step": self.step, "severity": incident.severity}
        self.add(Operation("run", kind, "ana", self.now, findings=known(incident), **about, **more))

    def add(self, operation):
        self.log.append(Operation(**{**vars(operation), "turn": len(self.log) + 1}))

    @precondition(lambda self: self.before)
    @rule(data=st.data(), kind=st.sampled_from(["ack", "note", "right", "wrong", "known"]))
    def somebody_says(self, data, kind):
        incident = data.draw(st.sampled_from(self.before))
        self.operate(kind, incident)
        if kind == "ack":
            self.acknowledged[incident.id] = incident.severity

    @precondition(lambda self: self.before)
    @rule(data=st.data(), seconds=st.sampled_from([None, 40.0, 400.0]), steps=st.sampled_from([None, 10.0, 100.0]))
    def somebody_snoozes(self, data, seconds, steps):
        if seconds is None and steps is None:
            return
        incident = data.draw(st.sampled_from(self.before))
        ends = self.ends(seconds, steps)
        self.operate("snooze", incident, until_time=ends[0], until_step=ends[1])
        self.snoozes[incident.id] = (*ends, incident.severity)

    @precondition(lambda self: any(each.status == "open" for each in self.before))
    @rule(data=st.data())
    def somebody_resolves(self, data):
        incident = data.draw(st.sampled_from([each for each in self.before if each.status == "open"]))
        self.operate("resolve", incident)
        self.resolved[incident.id] = set(map(repr, incident.findings))
        self.snoozes.pop(incident.id, None)
        self.acknowledged.pop(incident.id, None)
        self.before = [by_hand(each, self.log) if each is incident else each for each in self.before]

    @rule(glob=st.sampled_from(GLOBS), seconds=st.sampled_from([40.0, 400.0]), steps=st.sampled_from([None, 50.0]))
    def somebody_mutes(self, glob, seconds, steps):
        ends = self.ends(seconds, steps)
        self.add(Operation("r*", "mute", "bo", self.now, metric=glob, until_time=ends[0], until_step=ends[1]))
        self.mutes[glob, ""] = ends

    @precondition(lambda self: self.before)
    @rule(data=st.data())
    def somebody_mutes_a_cause(self, data):
        pattern = data.draw(st.sampled_from(self.before)).pattern
        ends = self.ends(400.0, None)
        self.add(Operation("*", "mute", "bo", self.now, pattern=pattern, until_time=ends[0]))
        self.mutes["", pattern] = ends

    @precondition(lambda self: self.mutes)
    @rule(data=st.data())
    def somebody_unmutes(self, data):
        metric, pattern = data.draw(st.sampled_from(sorted(self.mutes)))
        run = "*" if pattern else "r*"
        self.add(Operation(run, "unmute", "bo", self.now, metric=metric, pattern=pattern))
        del self.mutes[metric, pattern]

    def ends(self, seconds, steps):
        return (None if seconds is None else self.now + seconds), (None if steps is None else self.step + steps)

    # a pass of the watch

    @rule()
    def a_pass(self):
        raw = fold("run", 1, self.answers, [], PLAYBOOK, horizon_step=self.step, known=self.before)
        after = [by_hand(each, self.log) for each in raw]
        changes = transitions(self.before, after)
        self.hand_resolved_stay_closed(raw, after)
        told = Counter()
        said, self.said = [(1, each) for each in self.said], []
        self.waits, kept = follow(
            "run", self.waits, said, after, lambda each: "gone" if each.what.metric == self.gone else "", self.now
        )
        for line in kept:
            assert line.silent and line.why
            self.add(line)
        lines = words(changes, self.log, self.now)
        for _, line in lines:
            self.add(line)
        self.write_down(newest_words([change for change, line in lines if not line.silent]))
        for change, line in lines:
            if not line.silent:
                told[change.incident.id, change.what] += 1
                self.told.append((change.incident.id, change.what, change.incident.severity))
        for change in changes:
            if change.what in ("cooling", "firing"):
                assert not told[change.incident.id, change.what]
                continue
            loud = change.what in ("opened", "reopened", "escalated") and change.incident.severity >= 3
            if loud and (
                change.what == "reopened" or change.incident.severity > self.acknowledged.get(change.incident.id, 9)
            ):
                self.acknowledged.pop(change.incident.id, None)
            if loud and not self.is_silent(change):
                assert told[change.incident.id, change.what] == 1
            if change.what != "lowered" and self.is_silent(change):
                assert told[change.incident.id, change.what] == 0
        self.before = after
        self.tell_what_is_owed()
        assert self.tell_what_is_owed() == []  # nothing is told twice

    def tell_what_is_owed(self):
        again = unanswered(self.log, self.now, REMIND)
        names = unsettled(self.log) | again
        words_owed = [
            (each, what)
            for each in self.before
            if each.id in names and (what := owed(each, self.log, self.step, self.now, remind=each.id in again))
        ]
        for incident, what in words_owed:
            if what == "still" and not standing(of(self.log, incident.id)).snooze:
                assert incident.severity >= 3 and not self.acknowledged.get(incident.id)
            assert not self.is_quiet(incident, self.step, self.now)
            self.add(said(incident, what, self.step, self.now))
            self.told.append((incident.id, what, incident.severity))
        self.write_down([Transition(incident, what, self.step) for incident, what in words_owed])
        return words_owed

    def hand_resolved_stay_closed(self, raw, after):
        for incident, now in zip(raw, after, strict=True):
            seen = self.resolved.get(incident.id)
            if seen is None:
                continue
            if set(map(repr, incident.findings)) <= seen:
                assert now.status == "resolved"
            else:
                assert now is incident

    # the model's own idea of silence

    def is_silent(self, change):
        incident, step = change.incident, change.step
        if self.is_muted(incident, step, self.now):
            return True
        louder = incident.severity > self.snoozes.get(incident.id, (None, None, 9))[2]
        return self.is_snoozed(incident, step, self.now) and not (change.what == "escalated" and louder)

    def is_quiet(self, incident, step, now):
        return self.is_muted(incident, step, now) or self.is_snoozed(incident, step, now)

    def is_muted(self, incident, step, now):
        held = [key for key, ends in self.mutes.items() if _holds(ends, step, now)]
        if any(pattern == incident.pattern for _, pattern in held if pattern):
            return True
        return all(
            any(fnmatchcase(each.metric, glob) for glob, _ in held if glob) for each in incident.findings
        )  # every finding here is above an annotation

    def is_snoozed(self, incident, step, now):
        return incident.id in self.snoozes and _holds(self.snoozes[incident.id][:2], step, now)

    # what must always hold

    @invariant()
    def every_move_is_legal(self):
        for name in self.names():
            state, incident = "", next((each for each in self.before if each.id == name), None)
            for each in of(self.log, name):
                if each.kind not in PEOPLE or each.kind == "resolve":
                    assert (state, each.kind) in MOVES, (state, each.kind)
                    state = MOVES[state, each.kind]
            assert standing(of(self.log, name)).state == state
            if incident is not None:
                assert (state in OPEN) == (incident.status == "open")

    @invariant()
    def what_is_pending_is_no_incident_and_nobody_was_told(self):
        names = {each.id for each in self.waits}
        assert names == {each for each in self.names() if standing(of(self.log, each)).state == PENDING}
        assert names.isdisjoint(each.id for each in self.before if each.status == "open")
        assert names.isdisjoint(name for name, *_ in self.told)
        assert {standing(of(self.log, each)).state for each in self.names()} <= {"", *STATES}

    def names(self):
        return {each.incident_id for each in self.log if each.incident_id}

    def teardown(self):
        """When every silence has ended, whoever was loud and goes on has been told of, as loud as it is."""
        self.now += FAR
        self.step += FAR
        for metric, pattern in list(self.mutes):
            self.add(Operation("*" if pattern else "r*", "unmute", "bo", self.now, metric=metric, pattern=pattern))
        self.mutes, self.snoozes = {}, {}
        self.tell_what_is_owed()
        assert self.tell_what_is_owed() == []
        self.everything_leaves()
        last = {}
        for name, what, severity in self.told:
            last[name] = (what, severity)
        for incident in self.before:
            if incident.status == "open":
                assert incident.id in last, "never told"
                what, severity = last[incident.id]
                assert what != "resolved" and severity >= incident.severity
            else:
                assert incident.id not in last or last[incident.id][0] == "resolved"

    def everything_leaves(self):
        """With every channel up nothing stays behind, and each has heard of whatever goes on, as loud as it is."""
        for line in self.lines.values():
            line.trouble = None
        for _ in range(200):
            if not self.outbox.of("pending"):
                break
            self.what_waits_is_sent()
            self.now += 3600.0
        assert not self.outbox.of("pending")
        rows = sorted(self.outbox.of("delivered"), key=lambda row: row["delivery_id"])
        assert sum(row["repeats"] for row in self.outbox.rows.values()) <= self.kills
        gone = self.outbox.of("withdrawn")
        may_have_arrived = sum(row["repeats"] + (row["sending_since"] is not None) for row in gone)
        assert len(self.sent) == len(rows) + sum(row["repeats"] for row in rows) + may_have_arrived
        for channel in CHANNELS:
            last = {name: row for row in rows if row["channel"] == channel for name in row["severities"]}
            for incident in self.before:
                if incident.status == "open":
                    row = last[incident.id]
                    assert row["transition"] != "resolved" and row["severities"][incident.id] >= incident.severity
                else:
                    closed = incident.id not in last or last[incident.id]["transition"] == "resolved"
                    assert closed or self.was_marked(channel, incident)

    def was_marked(self, channel, incident):
        """The newest message about it says that it is over."""
        mine = [m for name, m in self.sent if name == channel and incident.id in m.incidents]
        return "over since" in mine[-1].title or "closed by" in mine[-1].title or len(mine[-1].incidents) > 1


def _holds(ends, step, now):
    until_time, until_step = ends
    return (until_time is None or now < until_time) and (until_step is None or step < until_step)


def test_no_page_is_lost_and_no_state_is_illegal():
    run_state_machine_as_test(Watch, settings=settings(max_examples=40, stateful_step_count=20, deadline=None))


@pytest.mark.faults
def test_ten_thousand_sequences_lose_no_page():
    run_state_machine_as_test(Watch, settings=settings(max_examples=10_000, stateful_step_count=20, deadline=None))
