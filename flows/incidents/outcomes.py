"""What was done about an incident, whether it helped, and what that says for the next time. Plain data in and out.

An outcome is a line of the log (kind worked or failed, `metric` the action, `pattern` the cause), written once a later
stretch of the run shows it. Suggestions of the same cause are then put in order of what helped in this store.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from detectors.pattern import Suggestion
from flows.incidents.course import DIVERGING, RECOVERED, Course
from flows.incidents.filling import priced
from flows.incidents.incident import Incident
from flows.incidents.written import amount, steps
from flows.records import Event, Operation

WORKED, FAILED = "worked", "failed"
FOLLOWED = "followed"  # the line of a follow-up: how it stands some samples after it was seen
ROLLBACK, WAIT = "rollback", "wait"
ACTIONS = (ROLLBACK, "lr_schedule", "batch_size", "data_mix", "deploy", "restart")  # what people do to a run
GO_BACK = Suggestion(
    "Go back to a checkpoint before it began, and skip the batches around it.",
    "It helped against the same cause before.", "the steps since that checkpoint", True, goes_back=True,
)  # fmt: skip


def action_of(one: Suggestion) -> str:
    """The action that a suggestion asks for, as events name it; "" where none can be told from the log."""
    if one.goes_back:
        return ROLLBACK
    return WAIT if one.track is not None or one.cost == "none" else ""


def in_words(metric: str, found: Course, since: float) -> str:
    """ "train/loss plateaued at 2.02, expected 1.8 to 1.86, 150 samples later"."""
    if found.state == RECOVERED and found.back_step is not None:
        return f"{metric} back on forecast after {steps(max(found.back_step - since, 0.0))} steps"
    where = f"at {amount(found.now)}, expected {amount(found.low)} to {amount(found.high)}"
    return f"{metric} {'is ' if found.state in (DIVERGING, 'coming back') else ''}{found.state} {where}"


def verdict(found: Course) -> str:
    """Whether what was done has helped."""
    return WORKED if found.state == RECOVERED else FAILED


def told_of(event: Event) -> str:
    """How an action stands in the log, so that it is judged once: "rollback to step 1,300"."""
    return f"{event.kind} {'to' if event.kind == ROLLBACK else 'at'} step {steps(event.step)}"


def ranked(incident: Incident, log: Iterable[Operation]) -> tuple[Suggestion, ...]:
    """The suggestions of an incident in the order of what helped before in this store, with what was seen as evidence.

    One that helped more often than not goes up, one that failed more often goes down; the rest keeps the playbook's order.
    Going back is offered where it has helped, though the playbook does not name it.
    """
    lines = [each for each in log if each.kind in (WORKED, FAILED) and each.pattern == incident.pattern]
    offered = incident.suggestions
    back = [each for each in lines if each.metric == ROLLBACK]
    if _balance(back) > 0 and not any(one.goes_back for one in offered):
        offered += priced([GO_BACK], incident.findings, incident.severity)
    told = [_with_record(one, [each for each in lines if each.metric == action_of(one)]) for one in offered]
    return tuple(one for _, one in sorted(told, key=lambda pair: -pair[0]))


def _balance(lines: Sequence[Operation]) -> int:
    """1 where it helped more often than not, -1 where it failed more often."""
    good = sum(each.kind == WORKED for each in lines)
    return (2 * good > len(lines)) - (2 * good < len(lines))


def _with_record(one: Suggestion, lines: Sequence[Operation]) -> tuple[int, Suggestion]:
    good = [each for each in lines if each.kind == WORKED]
    bad = [each for each in lines if each.kind == FAILED]
    if not lines:
        return 0, one
    count = f"in this store it helped {len(good)} of {len(lines)} times"
    evidence = (_case(count, good), *one.evidence) if good else one.evidence
    counter = (_case(count, bad), *one.counter_evidence) if bad else one.counter_evidence
    return _balance(lines), replace(one, evidence=evidence, counter_evidence=counter)


def _case(count: str, lines: Sequence[Operation]) -> str:
    last = max(lines, key=lambda each: (each.at, each.turn))
    return f"{count}; last {last.run}: {last.why}"
