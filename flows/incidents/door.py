"""Whether a message that waits in the outbox may leave now: the one place that lets it obey what was said meanwhile.

The judge decides what is written down, by what people had said by then; this decides the rest. What is silenced waits
until the silence ends; what nobody needs any more is withdrawn; whatever else has changed is marked on the message.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from flows.incidents.incident import Incident
from flows.incidents.people import of, silence, standing
from flows.incidents.states import RESOLVED
from flows.records import Operation

SEND, HOLD, WITHDRAW = "send", "hold", "withdraw"
GONE = "it came and went while"
SILENCES = ("muted", "snoozed")  # what `held_by` begins with where people held it


@dataclass(frozen=True)
class Parcel:
    """A message that waits: of which incidents, and why it was held before ("": it was not), since when (unix s)."""

    channel: str
    transition: str
    severity: int
    incidents: tuple[str, ...]
    created_at: float
    held_by: str = ""
    held_since: float | None = None


@dataclass(frozen=True)
class Verdict:
    """send, hold or withdraw; `why` of the latter two, and what to mark on a message that is sent."""

    what: str
    why: str = ""
    marks: tuple[str, ...] = ()


def verdict(
    parcel: Parcel,
    incidents: Mapping[str, Incident],
    log: Sequence[Operation],
    step: float,
    now: float,
    *,
    barred: str = "",
    newer: bool = False,
    heard: Collection[str] = (),
    dropped: Collection[str] = (),
) -> Verdict:
    """`incidents` as they stand, `log` of the run, `step` and `now` of this moment.

    `barred` says why the channel takes nothing of this severity now (quiet hours, a limit), `newer` that a later message
    about the same incidents waits beside it, `heard` of which incidents the channel was told, and `dropped` of which it was
    told nothing because they came and went in a silence.
    """
    mine = [incidents[name] for name in parcel.incidents if name in incidents]
    quiet = [_silenced(each, log, step, now) for each in mine]
    held = quiet[0] if quiet and all(quiet) else ""
    # a digest, and what the store has lost, are told as they stand
    if why := _needless(parcel, mine, log, held, newer, heard, dropped) if mine else "":
        return Verdict(WITHDRAW, why)
    if held or barred:
        return Verdict(HOLD, held or barred)
    marks = [mark for each in mine if (mark := _since(each, parcel, log))]
    marks += [f"held back: {parcel.held_by}"] if parcel.held_by else []
    return Verdict(SEND, marks=tuple(dict.fromkeys(marks)))


def _needless(
    parcel: Parcel,
    mine: Sequence[Incident],
    log: Sequence[Operation],
    held: str,
    newer: bool,
    heard: Collection[str],
    dropped: Collection[str],
) -> str:
    """Why nobody needs the message any more; "" where somebody does."""
    reminder = parcel.transition == "still"
    over = all(each.status == "resolved" for each in mine)
    # what a channel never heard of is no reminder to it
    in_hand = all(each.id in heard and standing(of(log, each.id)).acknowledged for each in mine)
    if reminder and (over or in_hand):
        return "acknowledged or over before it was sent"
    # only where the log has the end as told: else it would take the incident for known to who never heard of it
    gone = over and all(standing(of(log, each.id)).told == RESOLVED for each in mine)
    if gone and not held and parcel.transition != "resolved" and parcel.held_by.startswith(SILENCES):
        return f"{GONE} {parcel.held_by}"
    if newer and (reminder or parcel.held_by):
        return "a later message says more"
    if parcel.transition == "resolved" and not held and all(each.id in dropped for each in mine):
        return "its beginning was withdrawn"
    return ""


def _silenced(incident: Incident, log: Sequence[Operation], step: float, now: float) -> str:
    """Who holds it; "" where nobody does, or where it has grown worse than it was when it was snoozed."""
    by = silence(incident, log, step, now)
    if by is None or (by.kind == "snooze" and incident.severity > (by.severity or 0)):
        return ""
    return f"{SILENCES[by.kind == 'snooze']} by {by.who}"


def _since(incident: Incident, parcel: Parcel, log: Sequence[Operation]) -> str:
    """What has become of an incident after its message was written, in a few words; that it is over is the last word."""
    if parcel.transition == "resolved":
        return ""
    lines = of(log, incident.id)
    later = [each for each in lines if each.at > parcel.created_at]
    if incident.status == "resolved":
        closed = next((each for each in reversed(lines) if each.kind == "resolve"), None)
        return (
            f"closed by {closed.who}"
            if closed and closed in later
            else f"over since step {incident.resolved_step:,.15g}"
        )
    ack = standing(lines).acknowledged
    return f"{ack.who} has it" if ack is not None and ack in later else ""
