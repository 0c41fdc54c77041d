"""Pull: read what is new from a source, give each row its attempt, store rows and cursor in one transaction a batch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from flows.records import SAMPLE_SCHEMA, Description, Role
from flows.sources.contract import Source
from flows.stages.attempts import assign, begin
from flows.stages.honesty import learn
from flows.stages.honesty_words import said
from flows.stages.tracker import Tracker
from flows.store import Store


@dataclass(frozen=True)
class Pulled:
    """How many rows were new, and how many are held until the next rows tell whether the run was restarted."""

    run: str
    new_rows: int
    held: int


class Progress(Protocol):
    """Told after each batch how many rows are stored."""

    def __call__(self, rows: int) -> None: ...


def pull(
    store: Store,
    source: Source,
    role_of: Callable[[str], Role],
    *,
    final: bool = False,
    epochs: bool = True,
    progress: Progress | None = None,
) -> Pulled:
    """Pull a source into its run. `final` says that nothing will follow, so that held rows are decided.

    Without `epochs` (the step was chosen by name) steps that start over are those of a run that went back.

    Raises what the source raises (BadInput, SourceUnavailable); batches stored before that stay, with their cursor.
    """
    found = source.describe()
    store.register_run(found)
    cursor, saved = store.pull_state(found.run)
    tracker = Tracker.load(saved)
    new_rows = 0
    for batch in source.pull(cursor):
        if batch.restart:
            tracker = Tracker()
        parts = [] if batch.begins is None else [begin(batch.rows, tracker, batch.begins)]
        rows = pl.concat([*parts, assign(batch.rows, tracker, epochs=epochs)])
        cursor = batch.cursor
        new_rows += _stored(store, found, rows, cursor, tracker, batch.notes, role_of)
        if progress is not None:
            progress(new_rows)
    if final and tracker.held and cursor is not None:
        rows = assign(pl.DataFrame(schema=SAMPLE_SCHEMA), tracker, final=True)
        new_rows += _stored(store, found, rows, cursor, tracker, {}, role_of)
    return Pulled(found.run, new_rows, len(tracker.held))


def _stored(
    store: Store,
    found: Description,
    rows: pl.DataFrame,
    cursor: str,
    tracker: Tracker,
    notes: Mapping[str, int],
    role_of: Callable[[str], Role],
) -> int:
    """Learn from the rows what the source does not show, and store both; how many rows were new."""
    learn(tracker.facts, rows, role_of)
    shown = said(tracker.facts, found.step_key, role_of)
    return store.append(found.run, rows, tracker.attempts, cursor, tracker.dump(), notes, role_of, facts=shown).new_rows
