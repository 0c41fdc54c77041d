"""Any order of findings, recoveries and what people do: no page is lost, none is told twice, no state is illegal."""

from collections import Counter
from fnmatch import fnmatchcase

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from detectors.finding import Finding, Recovery
from flows.incidents import fold, transitions
from flows.incidents.people import PEOPLE, by_hand, known, of, owed, said, standing, unsettled, words
from flows.incidents.states import MOVES
from flows.playbook import load_playbook
from flows.records import Operation

PLAYBOOK = load_playbook()
METRICS = {"train/loss": "loss", "val/loss": "eval_loss", "mfu": "mfu"}
GLOBS = ["train/*", "*loss", "mfu", "*"]
FAR = 1e9


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
        self.operate(kind, data.draw(st.sampled_from(self.before)))

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
        for change, line in words(changes, self.log, self.now):
            self.add(line)
            if not line.silent:
                told[change.incident.id, change.what] += 1
                self.told.append((change.incident.id, change.what, change.incident.severity))
        for change in changes:
            loud = change.what in ("opened", "reopened", "escalated") and change.incident.severity >= 3
            if loud and not self.is_silent(change):
                assert told[change.incident.id, change.what] == 1
            if change.what != "lowered" and self.is_silent(change):
                assert told[change.incident.id, change.what] == 0
        self.before = after
        self.tell_what_is_owed()
        assert self.tell_what_is_owed() == []  # nothing is told twice

    def tell_what_is_owed(self):
        names = unsettled(self.log)
        words_owed = [
            (each, what)
            for each in self.before
            if each.id in names and (what := owed(each, self.log, self.step, self.now))
        ]
        for incident, what in words_owed:
            assert not self.is_quiet(incident, self.step, self.now)
            self.add(said(incident, what, self.step, self.now))
            self.told.append((incident.id, what, incident.severity))
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
        for name in {each.incident_id for each in self.log if each.incident_id}:
            state = ""
            for each in of(self.log, name):
                if each.kind not in PEOPLE or each.kind == "resolve":
                    assert (state, each.kind) in MOVES, (state, each.kind)
                    state = MOVES[state, each.kind]
            assert standing(of(self.log, name)).state == state

    def teardown(self):
        """When every silence has ended, whoever was loud and goes on has been told of, as loud as it is."""
        self.now += FAR
        self.step += FAR
        for metric, pattern in list(self.mutes):
            self.add(Operation("*" if pattern else "r*", "unmute", "bo", self.now, metric=metric, pattern=pattern))
        self.mutes, self.snoozes = {}, {}
        self.tell_what_is_owed()
        assert self.tell_what_is_owed() == []
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


def _holds(ends, step, now):
    until_time, until_step = ends
    return (until_time is None or now < until_time) and (until_step is None or step < until_step)


def test_no_page_is_lost_and_no_state_is_illegal():
    run_state_machine_as_test(Watch, settings=settings(max_examples=40, stateful_step_count=20, deadline=None))


@pytest.mark.faults
def test_ten_thousand_sequences_lose_no_page():
    run_state_machine_as_test(Watch, settings=settings(max_examples=10_000, stateful_step_count=20, deadline=None))
