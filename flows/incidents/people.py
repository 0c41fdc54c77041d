"""What people did to incidents, and so what is told of them: the log of an incident is folded, nothing else is asked.

Its states and moves stand in states.py; acknowledged and snoozed are flags beside them. Silence only delays: what was not
told, and still holds when the silence ends, is told then.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from flows.incidents.incident import Incident, Transition, identity_of
from flows.incidents.states import COOLING, DROPPED, FIRING, PENDING, RESOLVED, moved
from flows.records import Operation

JUDGE = "watchkeeper"  # who the judge is, in the log
FEEDBACK = ("right", "wrong", "known")
PEOPLE = frozenset({"ack", "snooze", "resolve", "note", *FEEDBACK})
PAGE = 3  # the least severity that wakes somebody
QUIETLY = frozenset({"lowered", COOLING, FIRING, PENDING, DROPPED})  # words that are kept and told to nobody


@dataclass(frozen=True)
class Standing:
    """Where an incident stands by its log. `told` and `told_severity` are what people were told last ("": nothing)."""

    state: str = ""
    severity: int = 0
    told: str = ""
    told_severity: int = 0
    told_at: float = 0.0  # unix seconds
    acknowledged: Operation | None = None
    snooze: Operation | None = None
    feedback: str = ""


def standing(log: Iterable[Operation]) -> Standing:
    """Fold the log of one incident, oldest first."""
    now = Standing()
    for each in log:
        now = _person(now, each) if each.kind in PEOPLE else _word(now, each)
    return now


def _person(was: Standing, done: Operation) -> Standing:
    if not was.state:  # older than the log: whoever acts on it has heard of it
        severity = done.severity or 0
        was = replace(was, state=FIRING, severity=severity, told=FIRING, told_severity=severity, told_at=done.at)
    if done.kind == "ack":
        return replace(was, acknowledged=done)
    if done.kind == "snooze":
        return replace(was, snooze=done)
    if done.kind == "resolve":
        return replace(was, state=moved(was.state, "resolve"), acknowledged=None, snooze=None)
    return replace(was, feedback=done.kind) if done.kind in FEEDBACK else was


def _word(was: Standing, said: Operation) -> Standing:
    severity = said.severity or 0
    now = replace(was, state=moved(was.state, said.kind), severity=severity)
    if said.kind == "lowered":
        return replace(now, told_severity=min(was.told_severity, severity))
    if not said.silent:
        told = RESOLVED if now.state == RESOLVED else FIRING
        now = replace(now, told=told, told_severity=severity, told_at=said.at)
        if was.snooze is not None and not lasts(was.snooze, said.step, said.at):
            now = replace(now, snooze=None)
    ack = was.acknowledged
    again = said.kind == "reopened" or (said.kind == "escalated" and ack is not None and severity > (ack.severity or 0))
    return replace(now, acknowledged=None) if again else now


def lasts(silence: Operation, step: float | None, now: float) -> bool:
    """Whether a snooze or mute is still in force at `step` and unix second `now`; the first of its two ends ends it."""
    by_time = silence.until_time is None or now < silence.until_time
    return by_time and (silence.until_step is None or step is None or step < silence.until_step)


def mutes_in_force(log: Iterable[Operation], run: str | None, step: float | None, now: float) -> list[Operation]:
    """The mutes that hold for a run (None: for any)."""
    newest: dict[tuple[str, str, str], Operation] = {}
    for each in log:
        if each.kind in ("mute", "unmute"):
            newest[each.run, each.metric, each.pattern] = each
    return [
        each
        for each in newest.values()
        if each.kind == "mute" and (run is None or fnmatchcase(run, each.run)) and lasts(each, step, now)
    ]


def silence(incident: Incident, log: Sequence[Operation], step: float, now: float) -> Operation | None:
    """The mute or snooze that keeps an incident from being told at `step`; `log` is that of its run.

    A muted metric silences only what moved nothing else: an incident is muted when each of its findings above an
    annotation is, so that a mute hides no second metric.
    """
    mutes = mutes_in_force(log, incident.run, step, now)
    by_cause = [each for each in mutes if each.pattern and each.pattern == incident.pattern]
    if by_cause:
        return by_cause[0]
    globs = [each for each in mutes if each.metric]
    loud = [item.metric for item in incident.findings if item.severity >= 1]
    moved = {item.metric for item in incident.findings} if not loud else set(loud)
    covering = [[each for each in globs if fnmatchcase(name, each.metric)] for name in sorted(moved)]
    if covering and all(covering):
        return covering[0][0]
    snooze = standing(of(log, incident.id)).snooze
    return snooze if snooze is not None and lasts(snooze, step, now) else None


def of(log: Iterable[Operation], incident_id: str) -> list[Operation]:
    """The lines of one incident."""
    return [each for each in log if each.incident_id == incident_id]


def words(changes: Sequence[Transition], log: Sequence[Operation], now: float) -> list[tuple[Transition, Operation]]:
    """Each change with its line for the log; the line is silent where nobody is to be told.

    An escalation above the severity at which an incident was snoozed is told all the same. Lowered severities are kept,
    not told.
    """
    return [(change, _line(change, log, now)) for change in changes]


def _line(change: Transition, log: Sequence[Operation], now: float) -> Operation:
    incident = change.incident
    by = silence(incident, log, change.step, now)
    louder = by is not None and by.kind == "snooze" and incident.severity > (by.severity or 0)
    if by is not None and not (louder and change.what == "escalated"):
        return said(incident, change.what, change.step, now, f"{by.kind}d by {by.who}", silent=True)
    return said(incident, change.what, change.step, now, silent=change.what in QUIETLY)


def said(incident: Incident, what: str, step: float, now: float, why: str = "", *, silent: bool = False) -> Operation:
    """A line of the judge in the log."""
    return Operation(
        incident.run, what, JUDGE, now, why, incident.id, step=step, severity=incident.severity, silent=silent,
        findings=known(incident),
    )  # fmt: skip


def known(incident: Incident) -> int:
    """How many findings an incident has, the same one counted once."""
    return len({identity_of(item) for item in incident.findings})


def unsettled(log: Sequence[Operation]) -> set[str]:
    """Incidents of which a word may be owed: people had a hand in them, and what was told is not how they stand."""
    by_people = {
        each.incident_id
        for each in log
        if each.incident_id and (each.kind in PEOPLE or (each.silent and each.kind not in QUIETLY))
    }
    return {name for name in by_people if _differs(standing(of(log, name)))}


def _differs(at: Standing) -> bool:
    if at.state == RESOLVED:
        return at.told == FIRING
    return at.told != FIRING or at.severity > at.told_severity or (at.snooze is not None and at.acknowledged is None)


def unanswered(log: Sequence[Operation], now: float, every: float) -> set[str]:
    """Pages that go on, were told `every` seconds ago or longer, and that nobody has acknowledged."""
    names = {each.incident_id for each in log if each.incident_id}
    stands = {name: standing(of(log, name)) for name in names}
    return {
        name
        for name, at in stands.items()
        if at.state == at.told == FIRING
        and at.told_severity >= PAGE
        and not at.acknowledged
        and now - at.told_at >= every
    }


def owed(incident: Incident, log: Sequence[Operation], step: float, now: float, *, remind: bool = False) -> str:
    """What must be told now of an incident as it stands, because a silence is over or somebody resolved it; else "".

    `still` reminds that something goes on after its snooze has ended, or, with `remind`, that it goes on at all; unless
    somebody has acknowledged it.
    """
    if silence(incident, log, step, now) is not None:
        return ""
    stands = standing(of(log, incident.id))
    if incident.status == "resolved":
        return "resolved" if stands.told == FIRING else ""
    if stands.told != FIRING:
        return "reopened" if stands.told else "opened"
    if incident.severity > stands.told_severity:
        return "escalated"
    return "still" if (stands.snooze is not None or remind) and stands.acknowledged is None else ""


def by_hand(incident: Incident, log: Sequence[Operation]) -> Incident:
    """The incident, closed if somebody resolved it and nothing was found of it since."""
    last = next((each for each in reversed(of(log, incident.id)) if each.kind == "resolve"), None)
    if last is None or known(incident) > (last.findings or 0):
        return incident
    return replace(incident, status="resolved", resolved_step=last.step)
