"""Records of a `.wandb` file as samples: history rows and system metrics."""

import json
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from flows.sources.contract import SYSTEM
from flows.sources.objects import NONFINITE
from flows.sources.rows import Rows
from flows.sources.timestamps import PLAUSIBLE_SECONDS, to_micros
from flows.sources.wandb_messages import History, Items, Record, Run, Stats, flat, micros, pairs, text_of

STEP_KEY = "_step"
_TIME_KEY = "_timestamp"
_GROUP = 64  # rows that are read joined: one odd one among them sends them all the slow way
_NO_NUMBERS = (b'"', b"[", b"{", b"null")
_STEP, _TIME, _NO_METRIC = -1, -2, -3
_OWN = frozenset({STEP_KEY, _TIME_KEY, "_runtime", "_wandb"})  # W&B's own columns are no metrics
_MEDIA = "._type"  # histograms, images, tables: objects that say what they are
_BEYOND = 1e300  # no step


@dataclass
class LastStep:
    """Where a run stands, over all its files: system metrics have no step of their own and are placed there."""

    step: float | None = None


class _Columns(dict[bytes, int]):
    """Numbers of columns by name: those of metrics, _STEP, _TIME or _NO_METRIC."""

    def __init__(self, rows: Rows, step_key: str) -> None:
        super().__init__({name.encode(): _NO_METRIC for name in _OWN})
        self[_TIME_KEY.encode()], self[step_key.encode()] = _TIME, _STEP
        self._rows = rows

    def __missing__(self, name: bytes) -> int:
        known = self._rows.id_of(text_of(name))
        number = self[name] = _NO_METRIC if known is None else known
        return number


class Reader:
    """Adds the samples of records to Rows."""

    def __init__(self, rows: Rows, step_key: str, last: LastStep) -> None:
        self._rows = rows
        self._step_key = step_key
        self._last = last
        self._ids: dict[str, int | None] = {}
        self._columns = _Columns(rows, step_key)

    def add(self, payloads: Sequence[bytes]) -> None:
        waiting: list[Any] = []  # history rows
        for payload in payloads:
            try:
                record = Record.FromString(payload)
                if record.HasField("history"):
                    waiting.append(History.FromString(record.history))
                if len(waiting) == _GROUP or record.HasField("stats"):
                    self._histories(waiting)
                    waiting = []
                if record.HasField("stats"):
                    self._stats(Stats.FromString(record.stats))
                elif record.HasField("run") and self._last.step is None:
                    self._last.step = float(Run.FromString(record.run).starting_step)
            except DecodeError:
                self._rows.notes["record that is no W&B record"] += 1
        self._histories(waiting)

    def _histories(self, rows: list[Any]) -> None:
        if rows and not self._quickly(rows):
            for row in rows:
                try:
                    self._history(row)
                except DecodeError:
                    self._rows.notes["record that is no W&B record"] += 1

    def _quickly(self, rows: list[Any]) -> bool:
        """Rows of nothing but numbers, each with its step and time; False, with nothing added, for others."""
        items = [item for row in rows for item in row.item]
        try:
            joined = Items.FromString(b"".join(items))
        except DecodeError:
            return False
        text = b",".join(joined.value_json)
        if (
            joined.key
            or not len(joined.nested_key) == len(joined.value_json) == len(items)
            or any(mark in text for mark in _NO_NUMBERS)
        ):
            return False
        try:
            values = np.array(json.loads(b"[" + text + b"]"), np.float64)
        except (ValueError, OverflowError):
            return False
        columns = np.array(list(map(self._columns.__getitem__, joined.nested_key)), np.int64)
        place = np.repeat(np.arange(len(rows)), [len(row.item) for row in rows])
        step, time = np.flatnonzero(columns == _STEP), np.flatnonzero(columns == _TIME)
        if not np.array_equal(place[step], place[time]) or not np.array_equal(place[step], np.arange(len(rows))):
            return False
        steps, times = values[step], values[time]
        if len(values) != len(items) or not np.isfinite(steps).all() or not _is_clock(times).all():
            return False
        kept = columns >= 0
        micros = np.round(times * 1e6).astype(np.int64)
        self._rows.add_many(steps[place[kept]], micros[place[kept]], 1, columns[kept], values[kept])
        self._last.step = float(steps[-1])
        return True

    def _history(self, history: Any) -> None:
        row = dict(flat(pairs(history.item)))
        if history.HasField("step"):
            row.setdefault(STEP_KEY, history.step.num)
        step, time = row.get(self._step_key), to_micros(row.get(_TIME_KEY))
        for name in _OWN & row.keys():
            del row[name]
        row.pop(self._step_key, None)
        media = [name.removesuffix(_MEDIA) for name in row if name.endswith(_MEDIA)]
        if media:
            self._rows.notes["histogram, image or other object that is no number"] += len(media)
            inside = tuple(f"{name}." for name in media)
            row = {name: value for name, value in row.items() if not name.startswith(inside)}
        if step is None and self._last.step is not None:
            self._rows.notes["row without a step, taken at the last one"] += 1
        elif isinstance(step, int | float) and abs(step) < _BEYOND:
            self._last.step = float(step)
        else:
            self._rows.notes["row without a step that is a finite number"] += 1
            return
        self._put(time, row)

    def _stats(self, stats: Any) -> None:
        row = {SYSTEM + name: value for name, value in pairs(stats.item).items()}
        if self._last.step is None:
            self._last.step = 0.0
        self._put(micros(stats.timestamp), row)

    def _put(self, time: int | None, row: dict[str, Any]) -> None:
        metrics, values = array("q"), list[float]()
        for name, raw in row.items():
            value = self._number(raw)
            if value is None:
                continue
            if name not in self._ids:
                self._ids[name] = self._rows.id_of(name)
            number = self._ids[name]
            if number is not None:
                metrics.append(number)
                values.append(value)
        if values and self._last.step is not None:
            self._rows.add(self._last.step, time, metrics, values)

    def _number(self, value: object) -> float | None:
        """A sample's value, or None with a note of what it was instead; null says nothing was logged."""
        if isinstance(value, int | float):
            try:
                return float(value)
            except OverflowError:
                return math.inf if value > 0 else -math.inf
        special = NONFINITE.get(value.strip().lower()) if isinstance(value, str) else None
        if special is None and value is not None:
            self._rows.notes["text value" if isinstance(value, str) else "list value"] += 1
        return special


def _is_clock(seconds: NDArray[np.float64]) -> NDArray[np.bool_]:
    return (seconds >= PLAUSIBLE_SECONDS[0]) & (seconds < PLAUSIBLE_SECONDS[1])
