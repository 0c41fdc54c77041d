"""A run that is written in several files, one after the other or at once: one stream of rows in the order of their time.

A restart begins a new file, a validation writes one of its own: row by row by the clock, a rewind goes back for all
metrics at one place, and what was logged together stands together. Within a file the order is the file's own, whatever its
clock says. Only files whose times overlap are open at once, a block of each in memory.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from flows.records import SAMPLE_SCHEMA, Batch
from flows.sources.cursor import decode
from flows.sources.rows import FLUSH_ROWS, Rows
from flows.sources.streams import open_file

MARK_BYTES = 256
_ALWAYS = -(1 << 63)


@dataclass(frozen=True)
class Piece:
    """Neighbouring rows of a file (SAMPLE_SCHEMA) and the state, JSON values, that stands behind them."""

    rows: pl.DataFrame
    state: dict[str, Any]
    notes: Mapping[str, int]


class Strand(Protocol):
    """One of the files. `began`: microseconds since 1970, not after its first row. `read` gathers in `rows`."""

    @property
    def name(self) -> str: ...

    @property
    def began(self) -> int: ...

    def goes_on(self, state: Mapping[str, Any]) -> bool: ...

    def read(self, state: Mapping[str, Any], rows: Rows) -> Iterator[Piece]: ...


@dataclass
class _Open:
    """A strand that is being read: the rows of its piece that are not given yet, and how many of it were."""

    pieces: Iterator[Piece]
    state: dict[str, Any]  # before the piece
    skip: int
    piece: Piece | None = None
    rows: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=SAMPLE_SCHEMA))
    high: int = _ALWAYS

    def fill(self, notes: Counter[str]) -> bool:
        """Have rows to give; False at the end of the strand."""
        while not len(self.rows):
            if self.piece is not None:
                self.state, self.piece = self.piece.state, None
            found = next(self.pieces, None)
            if found is None:
                return False
            self.piece = found
            notes.update(found.notes)
            rows = found.rows[self.skip :]
            self.skip = max(0, self.skip - len(found.rows))
            when = pl.col("logged_at").to_physical().fill_null(_ALWAYS).cum_max().clip(lower_bound=self.high)
            self.rows = rows.with_columns(when=when)
        self.high = self.rows["when"][-1]
        return True

    def take(self, until: int) -> pl.DataFrame:
        count = len(self.rows) if self.high <= until else int((self.rows["when"] <= until).sum())
        taken, self.rows = self.rows[:count], self.rows[count:]
        return taken

    def place(self) -> dict[str, Any]:
        """The state behind what was given."""
        if self.piece is None:
            return {**self.state, **({"skip": self.skip} if self.skip else {})}
        if not len(self.rows):
            return {**self.piece.state, **({"skip": self.skip} if self.skip else {})}
        return {**self.state, "skip": len(self.piece.rows) - len(self.rows)}


def pull_strands(
    path: Path, strands: Sequence[Strand], cursor: str | None, format_name: str, settings: Mapping[str, Any]
) -> Iterator[Batch]:
    """Rows of the strands behind the cursor. It begins anew where a file was replaced, or the settings are others."""
    old = decode(cursor, format_name)
    states: dict[str, dict[str, Any]] = old.get("files", {})
    known = old.get("settings") == dict(settings) and all(
        strand.goes_on(states[strand.name]) for strand in strands if strand.name in states
    )
    restart = bool(cursor) and not known
    states = {strand.name: {} if restart else states.get(strand.name, {}) for strand in strands}

    def batch(rows: list[pl.DataFrame], notes: Counter[str]) -> Batch:
        text = json.dumps({"format": format_name, "settings": dict(settings), "files": states})
        whole = pl.concat(rows) if rows else pl.DataFrame(schema=SAMPLE_SCHEMA)
        return Batch(whole.select(list(SAMPLE_SCHEMA)), text, restart, dict(notes))

    before = dict(states)
    notes: Counter[str] = Counter()
    found: list[pl.DataFrame] = []
    for rows in _merged(strands, states, Rows(path), notes):
        found.append(rows)
        if sum(map(len, found)) >= FLUSH_ROWS:
            yield batch(found, notes)
            restart, before = False, dict(states)
            found = []
            notes.clear()
    if found or notes or restart or states != before:
        yield batch(found, notes)


def mark(path: Path, offset: int) -> str:
    """Digest of how the file begins and of what stands before the offset: a grown file keeps it, a replaced one does not."""
    with open_file(path) as file:
        start = file.read(min(MARK_BYTES, offset))
        file.seek(max(0, offset - MARK_BYTES))
        return hashlib.blake2b(start + file.read(min(MARK_BYTES, offset)), digest_size=12).hexdigest()


def _merged(
    strands: Sequence[Strand], states: dict[str, dict[str, Any]], rows: Rows, notes: Counter[str]
) -> Iterator[pl.DataFrame]:
    """Rows of all strands by their time; `states` say where to go on behind those that were given."""
    waiting = sorted(strands, key=lambda each: (each.began, each.name), reverse=True)
    active: dict[str, _Open] = {}
    while waiting or active:
        for name, each in list(active.items()):
            if not each.fill(notes):
                states[name] = active.pop(name).place()
        until = min((each.high for each in active.values()), default=None)
        if waiting and (until is None or waiting[-1].began <= until):
            strand = waiting.pop()
            state = {key: value for key, value in states[strand.name].items() if key != "skip"}
            pieces = strand.read(state, rows)
            active[strand.name] = _Open(pieces, state, int(states[strand.name].get("skip", 0)))
        elif until is not None:
            parts = [each.take(until) for each in active.values()]
            states.update({name: each.place() for name, each in active.items()})
            yield pl.concat(parts).sort("when", maintain_order=True) if len(parts) > 1 else parts[0]
