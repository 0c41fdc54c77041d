"""What the door must know of the outbox and of a channel: its hours, its limit, and what it has told already."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Any
from zoneinfo import ZoneInfo

from flows.incidents.door import GONE, HOLD, SEND, WITHDRAW, Parcel, Verdict, verdict
from flows.incidents.incident import Incident
from flows.incidents.people import PAGE
from flows.messages.document import severity_number
from flows.records import Operation
from flows.stages.document import last_step
from flows.stages.judge import stored
from flows.stages.notify import Door
from flows.store import Store

# words that tell what an incident is; that somebody has it in hand, or how it went on, replaces none of them
WHOLE = frozenset({"opened", "reopened", "escalated", "resolved", "still"})

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Gate:
    """When a channel rests (from `begin` to `end` of the clock in `zone`, but for severities of at least `passes`), and
    that it takes at most `most` messages in `seconds` (0: any number)."""

    begin: time | None = None
    end: time | None = None
    zone: str = "UTC"
    passes: int = PAGE
    most: int = 0
    seconds: float = 3600.0

    def rests(self, severity: int, now: float) -> str:
        """ "quiet hours until 07:00", or ""."""
        if self.begin is None or self.end is None or severity >= self.passes:
            return ""
        here = datetime.fromtimestamp(now, ZoneInfo(self.zone)).time()
        inside = self.begin <= here < self.end if self.begin <= self.end else here >= self.begin or here < self.end
        return f"quiet hours until {self.end:%H:%M} {self.zone}" if inside else ""


def door_of(store: Store, run: str, gates: Mapping[str, Gate], clock: Callable[[], float]) -> Door:
    """The door of a run's outbox; channels without a gate are open at all hours."""

    def door(rows: Sequence[Row]) -> dict[str, Verdict]:
        if not rows:
            return {}
        others = store.outbox(run, ("pending", "withdrawn"))
        asked = any(row["state"] == "withdrawn" or row["transition"] == "still" for row in others)
        told = store.outbox(run, ("delivered",)) if asked else []
        names = {name for row in rows for name in parcel_of(row).incidents}
        now = clock()
        sent = {name: store.sent_since(name, now - gate.seconds) for name, gate in gates.items() if gate.most}
        return decide(
            rows, [*others, *told], stored(store, run, names), store.log(run), last_step(store, run), now, gates, sent
        )

    return door


def decide(
    due: Sequence[Row],
    outbox: Sequence[Row],
    incidents: Sequence[Incident],
    log: Sequence[Operation],
    step: float,
    now: float,
    gates: Mapping[str, Gate],
    sent: Mapping[str, int],
) -> dict[str, Verdict]:
    """The verdict on each row that is `due`, by its delivery_id.

    `outbox` are the rows of the run that wait or were withdrawn, and those delivered where any were or a reminder waits;
    `sent` says how many messages a channel has taken in the time of its limit.
    """
    by_id = {each.id: each for each in incidents}
    others = [(row, parcel_of(row)) for row in outbox]
    arrived = [p for row, p in others if row["state"] == "delivered" or row["sending_since"] is not None]
    told = {(p.channel, name) for p in arrived for name in p.incidents}
    gone = [p for row, p in others if row["state"] == "withdrawn" and (row["held_by"] or "").startswith(GONE)]
    dropped = {(p.channel, name) for p in gone for name in p.incidents}
    room = Counter({name: gate.most - sent.get(name, 0) for name, gate in gates.items() if gate.most})
    held = Counter[str]()
    out: list[tuple[Row, Verdict]] = []
    for row in sorted(due, key=_order):
        parcel = parcel_of(row)
        gate = gates.get(parcel.channel, Gate())
        full = bool(gate.most) and parcel.severity < PAGE and room[parcel.channel] <= 0
        limit = f"limit of {gate.most} in {gate.seconds / 60:g} min" if full else ""
        said = verdict(
            parcel, by_id, log, step, now,
            barred=gate.rests(parcel.severity, now) or limit,
            newer=any(_says_more(other, it, row, parcel) for other, it in others),
            heard={name for name in parcel.incidents if (parcel.channel, name) in told},
            dropped={name for name in parcel.incidents if (parcel.channel, name) in dropped - told},
        )  # fmt: skip
        out.append((row, said))
        if said.what == WITHDRAW and said.why.startswith(GONE):
            dropped |= {(parcel.channel, name) for name in parcel.incidents}
        if said.what == SEND:  # if the channel fails, this one still waits for it
            told |= {(parcel.channel, name) for name in parcel.incidents}
            room[parcel.channel] -= 1
        held[parcel.channel] += said.what == HOLD and said.why == limit
    return {row["delivery_id"]: _counted(said, held[row["channel"]]) for row, said in out}


def parcel_of(row: Row) -> Parcel:
    """A row of `deliveries` as the door sees it; a message that cannot be read is a page about its incident."""
    try:
        message = json.loads(row["message"])
        severity, names = severity_number(message["severity"]), tuple(map(str, message["incidents"]))
    except (ValueError, KeyError, TypeError):
        severity, names = PAGE, (row["incident_id"],)
    created = _seconds(row["created_at"])
    since = None if row["held_since"] is None else _seconds(row["held_since"])
    return Parcel(row["channel"], row["transition"], severity, names, created, row["held_by"] or "", since)


def _seconds(moment: datetime) -> float:
    return moment.replace(tzinfo=UTC).timestamp()


def _order(row: Row) -> tuple[Any, ...]:
    return row["created_at"], row["delivery_id"]


def _says_more(other: Row, its: Parcel, row: Row, mine: Parcel) -> bool:
    """Whether another message of the channel that still waits was written later and tells of all the same incidents."""
    waits = other["state"] == "pending" and its.channel == mine.channel and its.transition in WHOLE
    return waits and _order(other) > _order(row) and set(mine.incidents) <= set(its.incidents)


def _counted(said: Verdict, held: int) -> Verdict:
    """What is sent says how many are not."""
    if said.what != SEND or not held:
        return said
    return Verdict(SEND, marks=(*said.marks, f"{held} more held back by the limit"))
