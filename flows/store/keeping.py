"""The store's own life: size, thinning, compaction, and one pass at a time for a run. Each method is one short transaction."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from flows.errors import LeaseTaken
from flows.store import compaction, leases, retention, size
from flows.store.frames import rows as found_rows
from flows.store.opened import Opened
from flows.store.retention import Part, Rule
from flows.store.size import Size


@dataclass
class Lease:
    """A run that is ours until `expires_at` (naive UTC)."""

    run: str
    owner: str
    expires_at: datetime
    _renew: Callable[[], datetime]

    def renew(self) -> None:
        """Prolong it by its full time once half of it is over; raises LeaseTaken if another pass has taken over by then."""
        self.expires_at = self._renew()


class Keeping(Opened):
    """The store's own life: size, thinning, compaction, and one pass at a time for a run."""

    def size(self) -> Size:
        """How many samples, how fast they come, since when, and how much of the file is free."""
        with self._database.reading() as connection:
            return size.size(connection, self._now())

    def thinnable(self, run: str, rule: Rule) -> list[Part]:
        """The ranges that the rule would thin now."""
        with self._database.reading() as connection:
            return retention.parts(connection, run, rule)

    def thin(self, run: str, part: Part, rule: Rule) -> int:
        """Thin one range; returns how many samples were left out. Call it under the lease of `run`."""
        with self._database.writing() as connection:
            return retention.thin(connection, run, part, rule, self._now())

    def compact(self) -> tuple[int, int]:
        """Write the file anew without its holes; bytes before and after."""
        return compaction.compact(self._database)

    def leases(self) -> list[dict[str, Any]]:
        """run, owner, host, pid, expires_at of the passes that are at work, or died at it."""
        with self._database.reading() as connection:
            return found_rows(connection, "SELECT run, owner, host, pid, expires_at FROM leases ORDER BY run")

    @contextmanager
    def lease(self, run: str, owner: str, ttl: float) -> Iterator[Lease]:
        """Keep every other pass of `run` away for `ttl` seconds or until the block ends; raises LeaseTaken."""
        token, me = uuid.uuid4().hex, leases.this_process()

        def take(renewing: bool) -> datetime:
            with self._database.writing() as connection:
                if renewing and not leases.still_mine(connection, run, token):
                    raise LeaseTaken(
                        f"run {run!r}: the lease of {owner} ran out and another pass took over; this one must stop."
                    )
                return leases.take(connection, run, owner, token, ttl_seconds=ttl, now=self._now(), me=me)

        def prolonged() -> datetime:
            # each prolonging is a transaction of its own, and readers and writers wait for it
            far = held.expires_at - self._now() > timedelta(seconds=ttl / 2)
            return held.expires_at if far else take(renewing=True)

        held = Lease(run, owner, take(renewing=False), prolonged)
        try:
            yield held
        finally:
            with self._database.writing() as connection:
                leases.give_back(connection, run, token)
