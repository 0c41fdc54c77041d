"""What the pull stage asks of the store, and what is expected of a run. Each method is one short transaction."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from flows.records import Attempt, Description, Event, Expected, Role
from flows.store import runs, samples
from flows.store.opened import Opened
from flows.store.samples import Appended


class Pulling(Opened):
    """What the pull stage asks of the store, and what is expected of a run."""

    def register_run(self, found: Description) -> int:
        """Add the run if it is new; returns its id."""
        with self._database.writing() as connection:
            return runs.register(connection, found, self._now())

    def pull_state(self, run: str) -> tuple[str | None, str | None]:
        """Cursor and tracker of the last append; None, None before the first."""
        with self._database.reading() as connection:
            return runs.pull_state(connection, run)

    def append(  # the pull stage's whole transaction
        self,
        run: str,
        rows: pl.DataFrame,
        attempts: Sequence[Attempt],
        cursor: str,
        tracker: str,
        notes: Mapping[str, int],
        role_of: Callable[[str], Role],
        facts: Mapping[str, int] | None = None,
    ) -> Appended:
        """Store `rows` (STORED_SCHEMA, source order), all `attempts` so far, cursor and tracker, in one transaction.

        A key (metric, attempt, step) that is stored with the same value is passed over; with another value the sample
        takes it, and the first one is remembered. `notes` are added to the coverage of the pull; `facts` are all that is
        known of the source and take the place of what was known before (None: that stays).
        """
        samples.check_schema(rows)
        with self._database.writing() as connection:
            run_id, now = runs.id_of(connection, run), self._now()
            appended, rewritten = samples.append(connection, run_id, rows, role_of, now)
            samples.count_rewritten(connection, run, rewritten, now)
            samples.add_coverage(connection, run, check_name="pull", metric="", counts=notes, now=now)
            if facts is not None:
                samples.replace_coverage(connection, run, check_name="source", reasons=facts, now=now)
            first = dict(rows.group_by("attempt").agg(pl.col("logged_at").min()).iter_rows())
            runs.save_segments(connection, run_id, attempts, first)
            runs.save_pull_state(connection, run_id, cursor, tracker, now)
        return appended

    def assign_roles(self, run: str, role_of: Callable[[str], Role]) -> int:
        """Give the metrics that are stored already the roles of today's configuration; returns how many changed."""
        with self._database.writing() as connection:
            return runs.assign_roles(connection, run, role_of)

    def add_event(self, run: str, event: Event) -> str:
        """Store an event (once, however often it is added); returns its id."""
        with self._database.writing() as connection:
            return runs.add_event(connection, run, event, self._now())

    def keep_events(self, run: str, source: str, events: Sequence[Event]) -> None:
        """Make `events` the ones of a source: new ones are added, and those that lie ahead and are no longer told are gone."""
        with self._database.writing() as connection:
            runs.keep_events(connection, run, source, events, self._now())

    def expect(self, run: str, name: str, body: Mapping[str, Any]) -> str:
        """Put an expectation on record, under the next version of its name; none is ever changed. Returns the version."""
        with self._database.writing() as connection:
            return runs.expect(connection, run, name, body, self._now())

    def expectations(self, run: str | None = None) -> list[Expected]:
        """The expectations of a run, or of all, in the order in which they were recorded."""
        with self._database.reading() as connection:
            return runs.expectations(connection, run)
