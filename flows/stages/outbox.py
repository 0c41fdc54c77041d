"""The outbox of one run as `notify` sees it: the pass that holds the run's lease is the only one that sends for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from flows.store import Store


@dataclass(frozen=True)
class RunOutbox:
    """Every call is one transaction of the store."""

    store: Store
    run: str

    def pending_deliveries(self, now: datetime) -> Sequence[Mapping[str, Any]]:
        """Messages of the run whose turn has come."""
        return self.store.pending_deliveries(now, self.run)

    def claim_delivery(self, delivery_id: str, now: datetime) -> Mapping[str, Any] | None:
        """Count the attempt, and a repeat where an earlier one never said how it ended."""
        before = {row["delivery_id"]: row for row in self.store.pending_deliveries(now, self.run)}.get(delivery_id)
        if before is None:
            return None
        self.store.mark_sending(delivery_id, now)
        again = int(before["sending_since"] is not None)
        return {**before, "attempts": before["attempts"] + 1, "repeats": before["repeats"] + again}

    def mark_delivered(self, delivery_id: str, now: datetime, note: str = "") -> None:  # noqa: ARG002
        """The channel has it; what it could not carry is told nowhere yet."""
        self.store.mark_delivered(delivery_id, now)

    def mark_failed(self, delivery_id: str, error: str, next_try_at: datetime | None) -> None:
        """Try again then, or never (None)."""
        self.store.mark_failed(delivery_id, error, next_try_at)


def ailing_channels(store: Store) -> dict[str, tuple[str, bool]]:
    """Channels whose newest word is a failure: name -> (error, whether it is for good)."""
    answer = store.query(
        "SELECT channel, arg_max(error, created_at) AS error, bool_or(state = 'dead') AS dead FROM deliveries d"
        " WHERE error IS NOT NULL AND state <> 'delivered' AND created_at > coalesce((SELECT max(delivered_at)"
        " FROM deliveries o WHERE o.channel = d.channel), TIMESTAMP '1970-01-01') GROUP BY channel"
    )
    return {row["channel"]: (row["error"], row["dead"]) for row in answer.rows.iter_rows(named=True)}
