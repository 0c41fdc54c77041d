"""What people did, and what is owed to them. Each method is one short transaction."""

from collections.abc import Iterable, Sequence
from typing import Any

from flows.records import Operation
from flows.store import judgements, operations, outbox
from flows.store.frames import Moment, timestamp
from flows.store.opened import Opened, Row


class Telling(Opened):
    """What people did, and what is owed to them."""

    def operate(self, done: Operation) -> None:
        """Put on record what a person did; an incident resolved by hand is closed at once. Knows no lease: it is short."""
        with self._database.writing() as connection:
            operations.add(connection, [done])
            if done.kind == "resolve":
                operations.close(connection, done, self._now())

    def log(self, run: str | None = None) -> list[Operation]:
        """What was done to the incidents of a run (or of all) and said of them, with every mute, oldest first."""
        with self._database.reading() as connection:
            return operations.of_run(connection, run)

    def save_told(
        self, run: str, deliveries: Iterable[Row], incidents: Iterable[Row], log: Iterable[Operation]
    ) -> None:
        """Messages to send, their incidents, and that these were told, in one transaction."""
        with self._database.writing() as connection:
            judgements.save(
                connection, run, self._now(), findings=(), incidents=incidents, deliveries=deliveries, coverage=()
            )
            operations.add(connection, log)

    def pending_deliveries(self, now: Moment | None = None, run: str | None = None) -> list[dict[str, Any]]:
        """Messages whose turn has come, oldest first; call it under the lease of `run`."""
        with self._database.reading() as connection:
            return outbox.pending(connection, self._moment(now), run)

    def mark_sending(self, delivery_id: str, now: Moment | None = None) -> None:
        """Say that a message is about to leave; found so after a kill, its next sending is counted as a repeat."""
        with self._database.writing() as connection:
            outbox.mark_sending(connection, delivery_id, self._moment(now))

    def mark_delivered(self, delivery_id: str, now: Moment | None = None, receipt: str = "") -> None:
        """The channel gave its receipt: what the service calls the message, if anything."""
        with self._database.writing() as connection:
            outbox.mark_delivered(connection, delivery_id, self._moment(now), receipt)

    def told(self, run: str, channel: str, incidents: Sequence[str]) -> list[dict[str, Any]]:
        """message, receipt, delivered_at of what a channel has taken of any of these incidents, oldest first."""
        with self._database.reading() as connection:
            return outbox.told(connection, run, channel, incidents)

    def mark_failed(self, delivery_id: str, error: str, next_try_at: Moment | None) -> None:
        """The channel did not take it; None means never again (the delivery is dead)."""
        with self._database.writing() as connection:
            at = None if next_try_at is None else timestamp(next_try_at)
            outbox.mark_failed(connection, delivery_id, error, at)

    def known_deliveries(self, delivery_ids: Sequence[str]) -> set[str]:
        """Which of these are in the outbox, whatever became of them."""
        with self._database.reading() as connection:
            return outbox.known(connection, delivery_ids)

    def hold(self, delivery_id: str, why: str, now: Moment | None = None) -> None:
        """A message waits at the door; the reason is kept with the moment of the first one."""
        with self._database.writing() as connection:
            outbox.hold(connection, delivery_id, why, self._moment(now))

    def withdraw(self, delivery_id: str, why: str) -> None:
        """A message that nobody needs any more."""
        with self._database.writing() as connection:
            outbox.withdraw(connection, delivery_id, why)

    def outbox(self, run: str, states: Sequence[str]) -> list[dict[str, Any]]:
        """The deliveries of a run in some states, oldest first."""
        with self._database.reading() as connection:
            return outbox.of_run(connection, run, states)

    def sent_since(self, channel: str, since: Moment) -> int:
        """How many messages a channel has taken after a moment, of all runs."""
        with self._database.reading() as connection:
            return outbox.sent_since(connection, channel, timestamp(since))

    def undelivered(self) -> list[dict[str, Any]]:
        """channel, dead, failed, held, error, held_by of channels with messages that are not where they belong."""
        with self._database.reading() as connection:
            return outbox.undelivered(connection)

    def failing_channels(self) -> list[dict[str, Any]]:
        """channel, error, dead, count: channels to which nothing has got through since these messages failed."""
        with self._database.reading() as connection:
            return outbox.failing(connection)
