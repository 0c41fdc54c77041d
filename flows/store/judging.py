"""What the judge stage asks of the store. Each method is one short transaction."""

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from flows.records import Operation
from flows.store import judgements, operations, runs, samples, tails, waiting
from flows.store.frames import execute
from flows.store.opened import Opened, Row
from flows.store.samples import Unjudged
from flows.store.waiting import Waiting


class Judging(Opened):
    """What the judge stage asks of the store."""

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
