"""A logical run of several source runs: its segments are read one after the other, each goes on where one before stopped.

A segment is read until the next one has rows; from then on nothing more is taken from it. What it wrote behind its last
valid step is kept as an abandoned tail. Rows before a segment's first valid step, and behind the last one of the newest
segment, are passed over.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from flows.records import Batch, Begin, Description
from flows.sources.contract import Source
from flows.sources.cursor import decode


@dataclass(frozen=True)
class Segment:
    """A source and the steps of it that are valid (inclusive; None: all); whose steps it continues, and why it began."""

    name: str  # what `parent` of a later one calls it
    source: Source
    first: float | None = None
    last: float | None = None
    parent: str = ""
    reason: str = "segment"


@dataclass(frozen=True)
class Chain:
    """The segments of a run in their order, at least one."""

    run: str
    segments: Sequence[Segment]

    def describe(self) -> Description:
        """Step key and formats are those of the segments, where they differ joined with a comma."""
        seen = [segment.source.describe() for segment in self.segments]
        formats, keys = (dict.fromkeys(part) for part in ([d.format for d in seen], [d.step_key for d in seen]))
        return Description(self.run, " + ".join(d.source for d in seen), ", ".join(formats), ", ".join(keys))

    def pull(self, cursor: str | None) -> Iterator[Batch]:
        """Batches of the newest segment that has begun, then of those behind it."""
        state = decode(cursor, "chain")
        names = [segment.name for segment in self.segments]
        at = int(state.get("at", 0))
        if not state or state.get("names") != names[: at + 1]:
            yield from self._from(0, None, restart=cursor is not None)
            return
        yield from self._from(at, state["cursor"], restart=False, begun=state["begun"])

    def _from(self, at: int, cursor: str | None, *, restart: bool, begun: bool = False) -> Iterator[Batch]:
        for k in range(at, len(self.segments)):
            for batch in self.segments[k].source.pull(cursor):
                if batch.restart and begun:
                    yield from self._from(0, None, restart=True)
                    return
                rows = self._valid(k, batch.rows)
                begins = self._begin(k) if len(rows) and not begun else None
                begun = begun or len(rows) > 0
                yield self._own(k, batch, rows, restart=restart, begins=begins, begun=begun)
                restart = False
            if k + 1 < len(self.segments):
                cursor, begun = None, False

    def _own(
        self, k: int, batch: Batch, rows: pl.DataFrame, *, restart: bool, begins: Begin | None, begun: bool
    ) -> Batch:
        """A batch of segment `k` with the cursor of the chain."""
        names = [segment.name for segment in self.segments[: k + 1]]
        state = {"format": "chain", "at": k, "names": names, "cursor": batch.cursor, "begun": begun}
        notes = dict(batch.notes)
        if passed := len(batch.rows) - len(rows):
            notes["row outside of the steps of its segment"] = passed
        return Batch(rows, json.dumps(state), restart, notes, begins)

    def _valid(self, k: int, rows: pl.DataFrame) -> pl.DataFrame:
        segment = self.segments[k]
        if segment.first is not None:
            rows = rows.filter(pl.col("step") >= segment.first)
        if segment.last is not None and k + 1 == len(self.segments):
            rows = rows.filter(pl.col("step") <= segment.last)
        return rows

    def _begin(self, k: int) -> Begin:
        segment = self.segments[k]
        parents = {each.name: each for each in self.segments[:k]}
        parent = parents.get(segment.parent) or (self.segments[k - 1] if k else None)
        return Begin(
            segment.name, "" if parent is None else parent.name, None if parent is None else parent.last, segment.reason
        )
