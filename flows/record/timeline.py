"""What happened to a run, in order: attempts, events, incidents, what people did. Rows in, rows out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.messages.document import IncidentDoc, severity_number
from flows.messages.plain import plain, step
from flows.records import Attempt, Event

SAID = {
    "ack": "acknowledged it", "snooze": "snoozed it", "resolve": "resolved it by hand", "note": "wrote a note",
    "right": "called it right", "wrong": "called it wrong", "known": "called it known", "mute": "muted it",
    "unmute": "unmuted it",
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One thing that happened: `kind` is attempt, abandoned, event, incident, resolved or people; `incident` its id, if any."""

    step: float | None
    at: str  # ISO 8601, "" where no clock is known
    kind: str
    text: str
    incident: str = ""


def timeline(
    attempts: Sequence[Attempt],
    reached: Mapping[int, float],
    started: Mapping[int, str],
    events: Sequence[Event],
    incidents: Sequence[IncidentDoc],
) -> list[Line]:
    """Everything by step. `reached` is the last step of each attempt, `started` when it began."""
    found = [
        line for each in attempts for line in _attempt(each, reached.get(each.attempt), started.get(each.attempt, ""))
    ]
    found += [Line(e.step, "", "event", _event(e)) for e in events]
    for each in incidents:
        found += _incident(each)
    order = ("attempt", "event", "incident", "people", "resolved", "abandoned")
    return sorted(
        found,
        key=lambda line: (float("inf") if line.step is None else line.step, order.index(line.kind), line.at, line.text),
    )


def _attempt(each: Attempt, reached: float | None, started: str) -> list[Line]:
    if each.parent is None:
        lines = [Line(each.first_step, started, "attempt", f"The run started (attempt {each.attempt}).")]
    else:
        lines = [
            Line(
                each.first_step,
                started,
                "attempt",
                f"Attempt {each.attempt} went on from here ({plain(each.reason, 80)}).",
            )
        ]
    if each.valid_until is not None and reached is not None and reached >= each.valid_until:
        lost = f"what it had done from step {step(each.valid_until)} on was abandoned"
        lines.append(Line(reached, "", "abandoned", f"Attempt {each.attempt} ended; {lost}."))
    return lines


def _event(event: Event) -> str:
    until = f" to step {step(event.end_step)}" if event.end_step is not None else ""
    return f"{plain(event.kind, 40)}{until}" + (f": {plain(event.note, 200)}" if event.note else "")


def _incident(each: IncidentDoc) -> list[Line]:
    if severity_number(each["severity"]) < 1:
        return []
    lines = [Line(each["onset_step"], "", "incident", f"{each['severity']}: {plain(each['title'], 240)}", each["id"])]
    if each.get("status") == "resolved" and each.get("resolved_step") is not None:
        lines.append(
            Line(
                each["resolved_step"],
                "",
                "resolved",
                f"{each['severity']} over: {plain(each['title'], 160)}",
                each["id"],
            )
        )
    for done in each.get("operations", []):
        if done["what"] in SAID:
            why = f": {plain(done['why'], 200)}" if done.get("why") else "."
            text = f"{plain(done['who'], 60)} {SAID[done['what']]}{why}"
            lines.append(Line(done.get("step"), done.get("at", ""), "people", text, each["id"]))
    return lines
