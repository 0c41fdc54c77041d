"""Empties the outbox: draw, mark as sending, send, and only after the channel's receipt mark as delivered.

A kill between the receipt and its commit is the one way to a repeat; it carries the same Message-ID, and the store
counts it, because it finds an attempt that never said how it ended. The chart takes longest and is therefore drawn
before the mark: a kill meanwhile leaves no such attempt. Nothing transient is ever given up.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from flows.channels.contract import Channel, Outgoing, Told, message_id, thread_id
from flows.errors import DeliveryFailed, PermanentError, TransientError
from flows.incidents.door import SEND, WITHDRAW, Verdict
from flows.messages.blocks import Header, Link, Message, Paragraph, from_json
from flows.messages.marked import marked
from flows.messages.plain import plain

FIRST_PAUSE_SECONDS = 30.0
LONGEST_PAUSE_SECONDS = 3600.0


class Outbox(Protocol):
    """What this stage needs of the store; every call is one transaction. Times are unix seconds."""

    def pending_deliveries(self, now: float, run: str | None) -> Sequence[Mapping[str, Any]]:
        """Rows of `deliveries` whose turn has come."""

    def mark_sending(self, delivery_id: str, now: float) -> None:
        """Count an attempt, and a repeat if the last one left no outcome."""

    def mark_delivered(self, delivery_id: str, now: float, receipt: str) -> None:
        """The channel has it, under what the receipt calls it."""

    def told(self, run: str, channel: str, incidents: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """message, receipt, delivered_at of what a channel has taken of any of these incidents, oldest first."""

    def mark_failed(self, delivery_id: str, error: str, next_try_at: float | None) -> None:
        """It has not: try again at `next_try_at`, or never (None: state dead)."""

    def hold(self, delivery_id: str, why: str, now: float) -> None:
        """It waits at the door."""

    def withdraw(self, delivery_id: str, why: str) -> None:
        """Nobody needs it any more."""


@dataclass
class Notified:
    """What became of the deliveries that were due; `notes` what could not be carried, `errors` a line a failure.

    `held` wait at the door (`flows/incidents/door.py`), `withdrawn` will not be sent.

    Neither holds a secret.
    """

    delivered: int = 0
    postponed: int = 0
    dead: int = 0
    repeats: int = 0
    held: int = 0
    withdrawn: int = 0
    notes: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


Door = Callable[[Sequence[Mapping[str, Any]]], Mapping[str, Verdict]]
Drawing = Callable[[Mapping[str, Any]], bytes | None]
Linking = Callable[[str, Message, float], Link | None]
Paging = Callable[[Message], Message]


@dataclass(frozen=True)
class _Pass:
    outbox: Outbox
    channels: Mapping[str, Channel]
    clock: Callable[[], float]
    chart: Drawing | None
    link: Linking | None
    pages: Paging
    done: Notified


def notify(
    outbox: Outbox,
    channels: Mapping[str, Channel],
    clock: Callable[[], float],
    chart: Drawing | None = None,
    run: str | None = None,
    link: Linking | None = None,
    door: Door | None = None,
    pages: Paging = lambda message: message,
) -> Notified:
    """Send what is due, of one run or of all. `chart` makes the PNG of a delivery row, or gives None.

    `link` gives what a message to a channel is given on its way only (it may be a secret), by channel, message and time.
    `door` says which of them may leave now, and how they are marked; without it all may. `pages` gives a message, and
    those that the channel has taken before it, their links to the operating record.

    An alert goes out without its chart rather than not at all. A channel that fails transiently is left alone for the
    rest of this pass, so that it holds up none of the others.
    """
    done = Notified()
    resting: set[str] = set()
    due = outbox.pending_deliveries(clock(), run)
    said = door(due) if door is not None else {}
    for row in sorted(due, key=_turn):
        verdict = said.get(row["delivery_id"], Verdict(SEND))
        if verdict.what != SEND:
            _keep_back(row, verdict, outbox, clock(), done)
            continue
        if row["channel"] in resting:
            continue
        at = _Pass(outbox, channels, clock, chart, link, pages, done)
        picture = _picture(row, at)
        outbox.mark_sending(row["delivery_id"], clock())
        done.repeats += row.get("sending_since") is not None
        if not _deliver({**row, "attempts": row["attempts"] + 1}, verdict.marks, picture, at):
            resting.add(row["channel"])
    return done


def pause_seconds(attempts: int) -> float:
    """The wait after the n-th failed attempt: 30 s, doubled each time, at most an hour. No chance in it."""
    return min(FIRST_PAUSE_SECONDS * 2.0 ** min(max(attempts - 1, 0), 20), LONGEST_PAUSE_SECONDS)


def _turn(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """New ones first: a channel that keeps failing waits behind those that work."""
    return row["attempts"], row["created_at"], row["delivery_id"]


def _keep_back(row: Mapping[str, Any], said: Verdict, outbox: Outbox, now: float, done: Notified) -> None:
    if said.what == WITHDRAW:
        outbox.withdraw(row["delivery_id"], said.why)
        done.withdrawn += 1
        return
    done.held += 1
    if row.get("held_by") != said.why:
        outbox.hold(row["delivery_id"], said.why, now)


def _deliver(row: Mapping[str, Any], marks: Sequence[str], picture: bytes | None, at: _Pass) -> bool:
    """Whether the channel may be asked again in this pass."""
    try:
        receipt = _channel(at.channels, row).send(_outgoing(row, marks, picture, at))
    except PermanentError as error:
        at.outbox.mark_failed(row["delivery_id"], str(error), None)
        at.done.dead += 1
        at.done.errors.append(str(error))
        return True
    except TransientError as error:
        _postpone(row, str(error), getattr(error, "retry_after_seconds", 0.0), at)
        return False
    except Exception as error:  # noqa: BLE001  # one broken plugin must not silence the others; its text may hold secrets
        _postpone(row, f"channel {row['channel']!r} broke with {type(error).__name__}; run watchkeeper doctor", 0.0, at)
        return False
    at.outbox.mark_delivered(row["delivery_id"], at.clock(), receipt.reference)
    at.done.delivered += 1
    at.done.notes += [f"{receipt.channel}: {receipt.note}"] if receipt.note else []
    return True


def _postpone(row: Mapping[str, Any], error: str, asked_seconds: float, at: _Pass) -> None:
    wait = max(pause_seconds(row["attempts"]), asked_seconds)
    at.outbox.mark_failed(row["delivery_id"], error, at.clock() + wait)
    at.done.postponed += 1
    at.done.errors.append(error)


def _channel(channels: Mapping[str, Channel], row: Mapping[str, Any]) -> Channel:
    """A channel that is gone from the configuration may come back: its deliveries wait."""
    if row["channel"] not in channels:
        known = ", ".join(sorted(channels)) or "none"
        raise DeliveryFailed(
            f"channel {row['channel']!r} is not in the configuration, or could not be opened (open: {known}); "
            "`watchkeeper doctor` tells why"
        )
    return channels[row["channel"]]


def _picture(row: Mapping[str, Any], at: _Pass) -> bytes | None:
    if at.chart is None or row["channel"] not in at.channels:
        return None
    try:
        return at.chart(row)
    except Exception as error:  # noqa: BLE001  # a picture that cannot be drawn must not hold back an alert
        at.done.errors.append(f"no chart for {row['delivery_id']}: {plain(error, 200)}")
        return None


def _outgoing(row: Mapping[str, Any], marks: Sequence[str], picture: bytes | None, at: _Pass) -> Outgoing:
    message, now = marked(_message(row), marks), at.clock()
    link = at.link(row["channel"], message, now) if at.link is not None else None
    paged = at.pages(message)
    before = told_before(at.outbox, row["run"], row["channel"], message)
    return Outgoing(
        paged if link is None else replace(paged, blocks=(*paged.blocks, link)),
        row.get("message_id") or message_id(row["delivery_id"]),
        thread_id(message.thread),
        picture,
        at=now,
        since=seconds(row["created_at"]),
        again=row["attempts"] > 1,
        before=tuple(replace(each, message=at.pages(each.message)) for each in before),
    )


def told_before(outbox: Outbox, run: str, channel: str, message: Message) -> tuple[Told, ...]:
    """What a channel has taken of the incidents of a message, and of those that were told of in the same breath."""
    ids = {message.thread, *message.incidents}
    near = told(outbox.told(run, channel, sorted(ids)))
    wider = ids.union(*({each.message.thread, *each.message.incidents} for each in near))
    return tuple(near if wider == ids else told(outbox.told(run, channel, sorted(wider))))


def told(rows: Iterable[Mapping[str, Any]]) -> list[Told]:
    """What a channel has taken, from the rows of the outbox; one that cannot be read is passed over."""
    kept = []
    for row in rows:
        with suppress(ValueError):
            kept.append(Told(from_json(row["message"]), row["receipt"], seconds(row["delivered_at"])))
    return kept


def seconds(moment: datetime) -> float:
    """Unix seconds of a time of the store."""
    return moment.replace(tzinfo=UTC).timestamp()


def _message(row: Mapping[str, Any]) -> Message:
    """The stored message; one that cannot be read is still told, as it stands."""
    try:
        return from_json(row["message"])
    except ValueError:
        title = f"watchkeeper: {row['transition']} {row['incident_id']}"
        blocks = (Header(title), Paragraph(f"watchkeeper incidents show {row['incident_id']}"))
        return Message(title, "S3", "", row["transition"], row["incident_id"], blocks)
