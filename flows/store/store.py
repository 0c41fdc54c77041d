"""The store as the stages see it. Each method is one short transaction; nothing stays open between two calls."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from flows.errors import BadConfig, LeaseTaken
from flows.records import Attempt, Description, Event, Expected, Operation, Role
from flows.store import (
    compaction,
    judgements,
    leases,
    operations,
    outbox,
    published,
    retention,
    runs,
    samples,
    size,
    tails,
    waiting,
)
from flows.store.confined import Confined
from flows.store.connection import Database
from flows.store.frames import Moment, execute, select, timestamp
from flows.store.frames import rows as found_rows
from flows.store.published import Facts
from flows.store.retention import Part, Rule
from flows.store.samples import Appended, Unjudged
from flows.store.sandbox import Answer, Limits, answer
from flows.store.schema import bring_up_to_date
from flows.store.size import Size
from flows.store.waiting import Waiting

Clock = Callable[[], Moment]
Row = Mapping[str, Any]


@dataclass
class Lease:
    """A run that is ours until `expires_at` (naive UTC)."""

    run: str
    owner: str
    expires_at: datetime
    _renew: Callable[[], datetime]

    def renew(self) -> None:
        """Prolong it by its full time; raises LeaseTaken if another pass has taken over meanwhile."""
        self.expires_at = self._renew()


class Store:
    """All that watchkeeper remembers; made by open_store.

    Times go in as unix seconds or datetimes, and come out as naive UTC.
    """

    def __init__(self, database: Database, clock: Clock, backup: Path | None = None) -> None:
        self._database = database
        self._clock = clock
        self._confined = None if database.path is None else Confined(database.path)
        self.path = database.path
        self.backup = backup  # where an older store was kept when this one was migrated on opening

    def _now(self) -> datetime:
        return timestamp(self._clock())

    # pull

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

    # judge

    def unjudged(self, run: str, limit: int) -> Unjudged:
        """What was appended after the judging watermark, in whole batches of about `limit` rows together."""
        with self._database.reading() as connection:
            return samples.unjudged(connection, runs.id_of(connection, run), limit)

    def again(self, run: str, limit: int, after: int) -> Unjudged:
        """What was appended after batch `after` (0: all), judged or not, as the judge saw it."""
        with self._database.reading() as connection:
            return samples.unjudged(connection, runs.id_of(connection, run), limit, after)

    def waiting(self, run: str, limit: int) -> Waiting:
        """The unjudged rows with everything that judging them needs."""
        with self._database.reading() as connection:
            return waiting.waiting(connection, run, limit)

    def judge_states(self, run: str, names: Sequence[str] | None = None) -> dict[tuple[str, int], bytes]:
        """The judge's bytes by metric and attempt."""
        with self._database.reading() as connection:
            return judgements.states(connection, runs.id_of(connection, run), names)

    def run_state(self, run: str) -> str | None:
        """The judge's state of the whole run; None before the first judgement."""
        with self._database.reading() as connection:
            return waiting.run_state(connection, runs.id_of(connection, run))

    def lineage_tail(self, run: str, name: str, attempt: int, n: int) -> pl.DataFrame:
        """step, seconds, value: the last `n` samples of one metric that stood before `attempt` began."""
        return self.lineage_tails(run, attempt, n, [name]).drop("name")

    def lineage_tails(self, run: str, attempt: int, n: int, names: Sequence[str] | None = None) -> pl.DataFrame:
        """name, step, seconds, value: the same for many metrics in one query."""
        with self._database.reading() as connection:
            run_id = runs.id_of(connection, run)
            line = runs.attempts(connection, run)
            return tails.lineage_tails(connection, run_id, attempts=line, attempt=attempt, n=n, names=names)

    def save_judgement(
        self,
        run: str,
        *,
        upto_batch: int,
        run_state: str,
        states: Mapping[tuple[str, int], bytes],
        findings: Iterable[Row] = (),
        incidents: Iterable[Row] = (),
        deliveries: Iterable[Row] = (),
        coverage: Iterable[Row] = (),
        log: Iterable[Operation] = (),
    ) -> None:
        """Findings, incidents, their log, messages to send and the judging watermark in one transaction.

        Rows are dicts by the tables' column names. A finding_id or delivery_id that is stored already stays as it is;
        an incident_id takes the new row; coverage replaces what was said of the same check and metric.
        """
        with self._database.writing() as connection:
            run_id, now = runs.id_of(connection, run), self._now()
            judgements.save(
                connection,
                run,
                now,
                findings=findings,
                incidents=incidents,
                deliveries=deliveries,
                coverage=coverage,
            )
            operations.add(connection, log)
            judgements.save_states(connection, run_id, run_state, states)
            execute(
                connection,
                "UPDATE runs SET judged_batch = greatest(judged_batch, ?), judged_at = ? WHERE run_id = ?",
                [upto_batch, now, run_id],
            )

    # people

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

    # notify

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

    def _moment(self, now: Moment | None) -> datetime:
        return self._now() if now is None else timestamp(now)

    # read

    def runs(self) -> pl.DataFrame:
        """Every run with its source and how far it was pulled and judged."""
        with self._database.reading() as connection:
            return select(connection, "SELECT * FROM runs ORDER BY run")

    def attempts(self, run: str) -> list[Attempt]:
        """The attempts of a run in their order."""
        with self._database.reading() as connection:
            return runs.attempts(connection, run)

    def metrics(self, run: str) -> pl.DataFrame:
        """name, role, unit, healthy, group_name, samples, first_step, last_step, last_value; by name."""
        with self._database.reading() as connection:
            return waiting.metrics(connection, run)

    def history(self, run: str, name: str) -> pl.DataFrame:
        """attempt, step, logged_at, value of one metric as the run stands, by step."""
        with self._database.reading() as connection:
            return select(
                connection,
                "SELECT attempt, step, logged_at, value FROM history WHERE run = ? AND name = ? ORDER BY step",
                [run, name],
            )

    def samples(self, run: str, names: Sequence[str], first: float, last: float) -> pl.DataFrame:
        """name, attempt, step, value of every attempt between two steps (inclusive), by attempt and step."""
        with self._database.reading() as connection:
            return select(
                connection,
                "SELECT name, attempt, step, value FROM samples WHERE run = ? AND list_contains(?, name)"
                " AND step BETWEEN ? AND ? ORDER BY name, attempt, step",
                [run, list(names), first, last],
            )

    def stands(self, run: str, names: Sequence[str], first: float, last: float) -> pl.DataFrame:
        """name, step, value of the run as it stands between two steps (inclusive), by name and step."""
        with self._database.reading() as connection:
            return select(
                connection,
                "SELECT name, step, value FROM history WHERE run = ? AND list_contains(?, name)"
                " AND step BETWEEN ? AND ? ORDER BY name, step",
                [run, list(names), first, last],
            )

    def events(self, run: str) -> list[Event]:
        """The events of a run by step."""
        with self._database.reading() as connection:
            return runs.events(connection, run)

    def incidents(self, run: str | None = None) -> list[dict[str, Any]]:
        """Incidents of one run, or of all, oldest onset first."""
        with self._database.reading() as connection:
            return judgements.incidents(connection, run)

    def open_incidents(self, run: str | None = None) -> list[dict[str, Any]]:
        """Those that are open."""
        with self._database.reading() as connection:
            return judgements.incidents(connection, run, "open")

    def findings(self, run: str, incident_id: str | None = None) -> list[dict[str, Any]]:
        """Findings of a run, or of one incident, in canonical order."""
        with self._database.reading() as connection:
            return judgements.findings(connection, run, incident_id)

    def coverage(self, run: str) -> pl.DataFrame:
        """check_name, metric, reason, count, updated_at: what was and was not checked."""
        with self._database.reading() as connection:
            return select(
                connection,
                "SELECT check_name, metric, reason, count, updated_at FROM coverage WHERE run = ? ORDER BY ALL",
                [run],
            )

    def facts(self, run: str) -> Facts:
        """How far each attempt came, how fresh the run is, what was expected of it."""
        with self._database.reading() as connection:
            return published.facts(connection, run)

    def as_logged(self, run: str) -> pl.DataFrame:
        """step, logged_at, name, value of every attempt, in the order in which the run wrote them, as the judge saw them."""
        with self._database.reading() as connection:
            return published.as_logged(connection, run)

    def query(self, sql: str, *, limits: Limits | None = None) -> Answer:
        """One SELECT or EXPLAIN of a user, in the sandbox. Raises BadQuery."""
        if self._confined is None:
            return answer(self._database, sql, limits or Limits())
        return self._confined.answer(sql, limits or Limits())

    # upkeep

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

    # passes

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

        held = Lease(run, owner, take(renewing=False), lambda: take(renewing=True))
        try:
            yield held
        finally:
            with self._database.writing() as connection:
                leases.give_back(connection, run, token)


def open_store(url: str | Path, *, clock: Clock, must_exist: bool = False) -> Store:
    """The store at `url`: the path of a DuckDB file, made or migrated if need be, or ":memory:".

    Raises StoreTooNew, StoreBusy, StoreFull; BadConfig for a URL that is no path, or if it `must_exist` and does not.
    """
    path = path_of(url)
    if must_exist and path is not None and not path.exists():
        raise BadConfig(
            f"store {path}: there is none yet. Run `watchkeeper watch --once`, or give another path as store.url."
        )
    database = Database(path)
    return Store(database, clock, bring_up_to_date(database, timestamp(clock())))


def path_of(url: str | Path) -> Path | None:
    """The file behind a store URL; None for ":memory:". Raises BadConfig for another scheme."""
    text = str(url)
    if text == ":memory:":
        return None
    if ":" in text.partition("/")[0]:
        raise BadConfig(f"store.url {text!r}: only the path of a DuckDB file or ':memory:' can be a store so far.")
    return Path(text).expanduser().resolve()
