"""Rows of a W&B history as batches: what a cursor must remember of them, whichever way they came."""

import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any

from flows.records import Batch
from flows.sources.clockgaps import ClockGaps
from flows.sources.cursor import decode
from flows.sources.objects import MAX_DEPTH, NONFINITE, ObjectRows
from flows.sources.rows import BATCH_SECONDS, FLUSH_ROWS, Rows

FORMAT = "wandb"
STEP = "_step"
ALIVE = frozenset({"running", "pending", "preempting"})  # states in which the last row may not be whole
_TIME = "_timestamp"
OURS = frozenset({"_wandb", "_runtime"})  # W&B's own columns are no metrics
_PICTURE = "histogram or media instead of a number"
_CHANGED = "a row that was read already has other values now; the last one wins"


class History:
    """Takes rows in the order of their steps from `last_step` on, and gives batches.

    The last row of an earlier pull is to be asked for again: the same one is passed over, another one is noted and
    kept, and if it is gone the history was replaced (`begin_anew`).
    """

    def __init__(self, place: str, cursor: str | None, wanted: str | None, created: str) -> None:
        state = decode(cursor, FORMAT)
        known = state.get("step_key") == (wanted or STEP) and state.get("created") == created
        self._place, self._key, self._created = place, wanted or STEP, created
        self._passed = OURS - {self._key}
        self.restart = bool(cursor) and not known
        self._load(state if known else {})

    def _load(self, state: Mapping[str, Any]) -> None:
        self.last_step: int | None = state.get("last")
        self.rows_taken = int(state.get("rows", 0))
        self._mark: str = state.get("mark", "")
        self._last_row: Mapping[str, Any] | None = None
        self._objects = ObjectRows(Rows(self._place), self._key, state.get("last_value"), state.get("count", 0))
        self._gaps = ClockGaps(state.get("time"), state.get("usual"))
        self._said_short = int(state.get("short", 0))
        self._fresh = False
        self._until = time.monotonic() + BATCH_SECONDS

    def begin_anew(self) -> None:
        """Forget the cursor: what was read is no longer there."""
        self.restart = True
        self._load({})

    @property
    def full(self) -> bool:
        """Whether it is time for a batch: what is stored need not be asked for again after an interruption."""
        return len(self._objects.rows) >= FLUSH_ROWS or time.monotonic() > self._until

    def add(self, row: Mapping[str, Any]) -> None:
        """One row, with `_step`; dicts with a `_type` (histograms, media) are counted, not kept."""
        step = row.get(STEP)
        if isinstance(step, bool) or not isinstance(step, int | float):
            self._objects.rows.notes["row without a _step"] += 1
            return
        if self.last_step is not None and step <= self.last_step:
            if step < self.last_step or _digest(row) == self._last_mark():
                return
            self._objects.rows.notes[_CHANGED] += 1
            self.rows_taken -= 1
        kept = {name: value for name, value in row.items() if name not in self._passed}
        if any(type(value) is dict for value in kept.values()):
            nested, kept = kept, {}
            if pictures := _flatten(nested, "", kept, 0):
                self._objects.rows.notes[_PICTURE] += pictures
        seconds = row.get(_TIME)
        if isinstance(seconds, int | float):
            self._gaps.add(float(seconds), float(step))
        if self._key != STEP:
            del kept[STEP]
        self._objects.add(kept)
        self.last_step, self._last_row, self._fresh = int(step), row, True
        self.rows_taken += 1

    def missing(self, promised: int) -> None:
        """Note rows that the server counts but did not give; called when the run is over and all was read."""
        short = max(0, promised - self.rows_taken)
        if short != self._said_short:
            reason = "rows that W&B counts but did not give"
            self._objects.rows.notes[reason] += short - self._said_short
            self._said_short, self._fresh = short, True

    def _last_mark(self) -> str:
        """That of the newest row, which is there to be told from another one of its step."""
        if self._last_row is not None:
            self._mark, self._last_row = _digest(self._last_row), None
        return self._mark

    def take(self) -> Batch | None:
        """What was added since the last batch; None for nothing new."""
        if not (self._fresh or self.restart):
            return None
        self._objects.rows.notes.update(self._gaps.seen)
        self._gaps.seen.clear()
        rows, notes = self._objects.rows.take()
        state = {
            "format": FORMAT, "created": self._created, "step_key": self._key, "last": self.last_step,
            "rows": self.rows_taken, "mark": self._last_mark(), "last_value": self._objects.last_step,
            "count": self._objects.count, "time": self._gaps.last, "usual": self._gaps.usual, "short": self._said_short,
        }  # fmt: skip
        restart, self.restart, self._fresh = self.restart, False, False
        self._until = time.monotonic() + BATCH_SECONDS
        return Batch(rows, json.dumps(state), restart, notes)


def _flatten(row: Mapping[str, Any], prefix: str, kept: dict[str, Any], depth: int) -> int:
    """Put the values into `kept`, nested names joined by dots as W&B shows them; how many were media."""
    pictures = 0
    for name, value in row.items():
        if not isinstance(value, dict):
            kept[prefix + name] = value
        elif "_type" in value:
            pictures += 1
        elif depth < MAX_DEPTH:
            pictures += _flatten(value, f"{prefix}{name}.", kept, depth + 1)
    return pictures


def _may_be_number(value: object) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and value.lower() in NONFINITE)


def _digest(row: Mapping[str, Any]) -> str:
    """The same for the same numbers, in whatever order and beside whatever else the server gives them."""
    numbers = {name: value for name, value in row.items() if not name.startswith("_") and _may_be_number(value)}
    text = json.dumps(numbers, sort_keys=True)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
