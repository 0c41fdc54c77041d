"""What is read of the store by those who only look. Each method is one short transaction."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from flows.records import Attempt, Event
from flows.store import judgements, published, runs, waiting
from flows.store.frames import select
from flows.store.opened import Opened
from flows.store.published import Facts
from flows.store.sandbox import Answer, Limits, answer


class Reading(Opened):
    """What is read of the store by those who only look."""

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

    def first_since(self, run: str, batch: int) -> float | None:
        """The lowest step of a run that was stored after an append; None where nothing was."""
        with self._database.reading() as connection:
            return published.first_since(connection, run, batch)

    def as_logged(self, run: str) -> pl.DataFrame:
        """step, logged_at, name, value of every attempt, in the order in which the run wrote them, as the judge saw them."""
        with self._database.reading() as connection:
            return published.as_logged(connection, run)

    def query(self, sql: str, *, limits: Limits | None = None) -> Answer:
        """One SELECT or EXPLAIN of a user, in the sandbox. Raises BadQuery."""
        if self._confined is None:
            return answer(self._database, sql, limits or Limits())
        return self._confined.answer(sql, limits or Limits())
