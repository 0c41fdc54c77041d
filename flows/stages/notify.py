"""Empties the outbox: claim, send, and only after the channel's receipt mark as delivered.

A kill between the receipt and its commit is the one way to a repeat; it carries the same Message-ID, and the store
counts it when the delivery is claimed again without an outcome of the claim before. Nothing transient is ever given up.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from flows.channels.contract import Channel, Outgoing, TryLater, message_id, thread_id
from flows.errors import PermanentError, TransientError
from flows.messages.blocks import Message, from_json
from flows.messages.plain import plain

FIRST_PAUSE_SECONDS = 30.0
LONGEST_PAUSE_SECONDS = 3600.0


class Outbox(Protocol):
    """What this stage needs of the store; every call is one transaction. Times are naive UTC."""

    def pending_deliveries(self, now: datetime) -> Sequence[Mapping[str, Any]]:
        """Rows of `deliveries` in state pending whose next_try_at is null or not after `now`."""

    def claim_delivery(self, delivery_id: str, now: datetime) -> Mapping[str, Any] | None:
        """Count an attempt (and a repeat, if the last attempt left no outcome); None if it is no longer pending."""

    def mark_delivered(self, delivery_id: str, now: datetime, note: str = "") -> None:
        """The channel has it."""

    def mark_failed(self, delivery_id: str, error: str, next_try_at: datetime | None) -> None:
        """It has not: try again at `next_try_at`, or never (None: state dead)."""


@dataclass
class Notified:
    """What became of the deliveries that were due. `errors` holds one line a failure, free of secrets."""

    delivered: int = 0
    postponed: int = 0
    dead: int = 0
    repeats: int = 0
    errors: list[str] = field(default_factory=list)


def notify(
    outbox: Outbox,
    channels: Mapping[str, Channel],
    clock: Callable[[], datetime],
    chart: Callable[[Mapping[str, Any]], bytes | None] | None = None,
) -> Notified:
    """Send what is due. `chart` makes the PNG of a delivery row; an alert goes out without one rather than not at all.

    A channel that fails transiently is left alone for the rest of this pass, so that it holds up none of the others.
    """
    done = Notified()
    resting: set[str] = set()
    due = sorted(outbox.pending_deliveries(clock()), key=lambda row: (row["attempts"], row["created_at"], row["delivery_id"]))
    for row in due:
        if row["channel"] in resting:
            continue
        claimed = outbox.claim_delivery(row["delivery_id"], clock())
        if claimed is None:
            continue
        done.repeats += int(claimed["repeats"] > row["repeats"])
        if not _deliver(outbox, claimed, channels, clock, chart, done):
            resting.add(row["channel"])
    return done


def pause_seconds(attempts: int) -> float:
    """The wait after the n-th failed attempt: 30 s, doubled each time, at most an hour. No chance in it."""
    return min(FIRST_PAUSE_SECONDS * 2.0 ** min(max(attempts - 1, 0), 20), LONGEST_PAUSE_SECONDS)


def _deliver(
    outbox: Outbox,
    row: Mapping[str, Any],
    channels: Mapping[str, Channel],
    clock: Callable[[], datetime],
    chart: Callable[[Mapping[str, Any]], bytes | None] | None,
    done: Notified,
) -> bool:
    """Whether the channel may be asked again in this pass."""
    identity = row["delivery_id"]
    try:
        receipt = _channel(channels, row).send(_outgoing(row, chart, done))
    except PermanentError as error:
        outbox.mark_failed(identity, str(error), None)
        done.dead += 1
        done.errors.append(str(error))
        return True
    except TransientError as error:
        wait = max(pause_seconds(row["attempts"]), getattr(error, "retry_after_seconds", 0.0))
        _postpone(outbox, row, str(error), clock() + timedelta(seconds=wait), done)
        return False
    except Exception as error:  # noqa: BLE001  # one broken plugin must not silence the others; its text may hold secrets
        text = f"channel {row['channel']!r} broke with {type(error).__name__}; run watchkeeper doctor"
        _postpone(outbox, row, text, clock() + timedelta(seconds=pause_seconds(row["attempts"])), done)
        return False
    outbox.mark_delivered(identity, clock(), receipt.note)
    done.delivered += 1
    return True


def _postpone(outbox: Outbox, row: Mapping[str, Any], error: str, until: datetime, done: Notified) -> None:
    outbox.mark_failed(row["delivery_id"], error, until)
    done.postponed += 1
    done.errors.append(error)


def _channel(channels: Mapping[str, Channel], row: Mapping[str, Any]) -> Channel:
    """A channel that is gone from the configuration may come back: its deliveries wait."""
    if row["channel"] not in channels:
        known = ", ".join(sorted(channels)) or "none"
        raise TryLater(f"channel {row['channel']!r} is not in the configuration (known: {known}); add it again", 0.0)
    return channels[row["channel"]]


def _outgoing(
    row: Mapping[str, Any], chart: Callable[[Mapping[str, Any]], bytes | None] | None, done: Notified
) -> Outgoing:
    message = _message(row)
    picture = None
    if chart is not None:
        try:
            picture = chart(row)
        except Exception as error:  # noqa: BLE001  # a picture that cannot be drawn must not hold back an alert
            done.errors.append(f"no chart for {row['delivery_id']}: {plain(error, 200)}")
    identity = row.get("message_id") or message_id(row["delivery_id"])
    return Outgoing(message, identity, thread_id(message.thread), picture)


def _message(row: Mapping[str, Any]) -> Message:
    """The stored message; one that cannot be read is still told, as it stands."""
    try:
        return from_json(row["message"])
    except ValueError:
        from flows.messages.blocks import Header, Paragraph

        title = f"watchkeeper: {row['transition']} {row['incident_id']}"
        blocks = (Header(title), Paragraph(f"watchkeeper incidents show {row['incident_id']}"))
        return Message(title, "S3", "", row["transition"], row["incident_id"], blocks)
