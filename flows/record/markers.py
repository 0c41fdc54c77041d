"""What is marked on a chart's step axis, and the theme that a chart is drawn in."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flows.incidents.reach import LAG_SHARE, SLOW
from flows.messages.document import IncidentDoc
from flows.messages.plain import number, plain, step
from flows.records import Attempt, Event

# each is used for one purpose only: pages exchange them for their own theme
INK, MUTED, LINE, ALARM, BAND, GRID, PAPER = "#1a1a1f", "#5f6670", "#1d5fa9", "#b3261f", "#9aa7b5", "#e3e6eb", "#fffffe"
LADDER = "#8a5a00"
DASH = {
    "onset": [1, 0],
    "seen": [6, 3],
    "resolved": [2, 2],
    "event": [1, 3],
    "attempt": [8, 2, 1, 2],
    "ladder": [12, 4],
}
TONE = {"onset": ALARM, "seen": ALARM, "resolved": INK, "event": MUTED, "attempt": MUTED, "ladder": LADDER}
ORDER = ("attempt", "event", "ladder", "onset", "seen", "resolved")  # at one step
MOST_EVENTS = 4
MOST_ATTEMPTS = 3


@dataclass(frozen=True)
class Marker:
    """A vertical line with its label. `look` is onset, seen, resolved, event, attempt or ladder."""

    step: float
    label: str
    look: str


def markers(
    incident: IncidentDoc,
    events: Sequence[Event],
    attempts: Sequence[Attempt],
    span: tuple[float, float],
    known_until: float = math.inf,
) -> list[Marker]:
    """What happened within `span`, in order of step: onset, detection, resolution, the nearest events, new attempts.

    `known_until` is the step behind which the ladder lacks a rung that ended early.
    """
    onset, detected, resolved = incident["onset_step"], incident["detected_step"], incident.get("resolved_step")
    if detected == onset:
        found = [Marker(onset, f"began and seen {step(onset)}", "onset")]
    else:
        about = "about " if onset_interval(incident) is not None else ""
        found = [
            Marker(onset, f"began {about}{step(onset)}", "onset"),
            Marker(detected, f"seen {step(detected)}", "seen"),
        ]
    if resolved is not None:
        found.append(Marker(resolved, f"resolved {step(resolved)}", "resolved"))
    near = sorted((e for e in events if span[0] <= e.step <= span[1]), key=lambda e: abs(e.step - onset))
    found += [Marker(e.step, _told(e), "event") for e in near[:MOST_EVENTS]]
    starts = [a for a in attempts if a.parent is not None and span[0] <= a.first_step <= span[1]][-MOST_ATTEMPTS:]
    found += [Marker(a.first_step, f"attempt {a.attempt} from {step(a.first_step)}", "attempt") for a in starts]
    if known_until < span[1]:
        at = max(known_until, span[0])
        found.append(Marker(at, f"ladder extrapolated from {number(known_until)}", "ladder"))
    return sorted((m for m in found if span[0] <= m.step <= span[1]), key=lambda m: (m.step, ORDER.index(m.look)))


def onset_interval(incident: IncidentDoc) -> tuple[float, float] | None:
    """The steps in which it may have begun, where its onset is an estimate over a long window; else None."""
    first = min(
        (f for f in incident.get("findings", []) if f["onset_step"] == incident["onset_step"]),
        key=lambda f: f["detected_step"],
        default=None,
    )
    if first is None or first["kind"] not in SLOW or first["role"] == "learning_rate":
        return None
    error = LAG_SHARE * (first["detected_step"] - first["onset_step"])
    return (first["onset_step"] - error, first["onset_step"] + error) if error > 0 else None


def _told(event: Event) -> str:
    return plain(f"{event.kind} {step(event.step)}" + (f": {event.note}" if event.note else ""), 120)
