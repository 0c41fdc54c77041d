"""JSON objects as samples: nested names joined by "/", texts and lists counted, booleans as 0 and 1."""

import math
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import polars as pl

from flows.sources.contract import MAX_NAME_CHARS, NO_STEP_NOTE, ROW_NUMBER
from flows.sources.plain_objects import Block, are_steps, micros_of
from flows.sources.rows import Rows
from flows.sources.timestamps import TIME_KEYS, to_micros

NONFINITE = {
    "nan": math.nan, "-nan": math.nan, "inf": math.inf, "+inf": math.inf, "-inf": -math.inf,
    "infinity": math.inf, "+infinity": math.inf, "-infinity": -math.inf,
}  # fmt: skip
NAME_KEYS = ("name", "metric", "key", "tag")
MAX_DEPTH = 20
_MAX_PLANS = 1_000
_NOT_GIVEN = object()


@dataclass(frozen=True)
class _Plan:
    """How objects with the same keys in the same order are read when all their values are plain numbers."""

    metrics: "array[int]"
    step: int | None  # position of the step, of the time; None: not in the object
    time: int | None
    drop: tuple[int, ...]  # positions that are no metrics, last first
    plain: bool


class ObjectRows:
    """Adds objects to Rows. `step_key` may be ROW_NUMBER; `last_step` and `count` go on from an earlier pull."""

    def __init__(self, rows: Rows, step_key: str, last_step: float | None = None, count: int = 0) -> None:
        self.rows = rows
        self.step_key = step_key
        self.last_step = last_step
        self.count = count
        self._plans: dict[tuple[str, ...], _Plan] = {}

    def add(
        self, item: Mapping[str, Any], step: object = _NOT_GIVEN, time: int | None = None, prefix: str = ""
    ) -> None:
        """One object is one line of the log. `step` and `time` (microseconds) overrule what it holds itself."""
        if prefix or not self._add_plain(item, step, time):
            self._add_any(item, step, time, prefix)

    def add_block(self, block: Block) -> bool:
        """The quickest way for many lines of plain numbers; False, with nothing added, where they need a closer look."""
        plan = self._plans.get(block.keys) or self._make_plan(block.keys)
        if not plan.plain or plan.step is None:
            return False
        steps = block.table[block.keys[plan.step]]
        micros = None if plan.time is None else micros_of(block.table[block.keys[plan.time]])
        if not are_steps(steps) or (plan.time is not None and micros is None):
            return False
        values = pl.DataFrame([column for at, column in enumerate(block.table.iter_columns()) if at not in plan.drop])
        self.rows.add_table(steps.to_numpy(), micros, np.array(plan.metrics, np.int64), values)
        self.last_step = float(steps[-1])
        self.count += len(steps)
        return True

    def _add_plain(self, item: Mapping[str, Any], step: object, micros: int | None) -> bool:
        """The quick way for lines of plain numbers; False, with nothing added, where the line needs a closer look."""
        keys = tuple(item)
        plan = self._plans.get(keys) or self._make_plan(keys)
        values = list(item.values())
        if plan.step is not None:
            step = values[plan.step]
        if not plan.plain or not _is_step(step):
            return False
        if plan.time is not None:
            micros = to_micros(values[plan.time])
            if micros is None:
                return False
        for position in plan.drop:
            del values[position]
        try:
            self.rows.add(float(step), micros, plan.metrics, values)
        except (TypeError, OverflowError):
            return False
        self.last_step = float(step)
        self.count += 1
        return True

    def _make_plan(self, keys: tuple[str, ...]) -> _Plan:
        step = keys.index(self.step_key) if self.step_key in keys else None
        time = next((keys.index(key) for key in TIME_KEYS if key in keys), None)
        drop = tuple(sorted({p for p in (step, time) if p is not None}, reverse=True))
        names = [key for place, key in enumerate(keys) if place not in drop]
        plain = bool(names) and all(0 < len(name) <= MAX_NAME_CHARS for name in names) and self.step_key != ROW_NUMBER
        plain = plain and not ("value" in keys and any(key in keys for key in NAME_KEYS))
        metrics = array("q", [self.rows.id_of(name) or 0 for name in names] if plain else [])
        plan = _Plan(metrics, step, time, drop, plain)
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        self._plans[keys] = plan
        return plan

    def _add_any(self, item: Mapping[str, Any], step: object, time: int | None, prefix: str) -> None:
        pairs = dict(self._flat(item, 0, ""))
        if step is _NOT_GIVEN or (self.step_key != "step" and self.step_key in pairs):
            step = pairs.pop(self.step_key, None)
        place = self._place(step)
        if place is None:
            return
        for key in TIME_KEYS if time is None else ():
            time = to_micros(pairs.get(key))
            if time is not None:
                del pairs[key]
                break
        name = _long_name(pairs)
        if name is not None:
            pairs = {name: pairs["value"]}
        self._append(place, time, pairs, prefix)

    def _append(self, step: float, time: int | None, pairs: Mapping[str, Any], prefix: str) -> None:
        metrics, values = array("q"), []
        for name, raw in pairs.items():
            value = self._number(raw)
            number = None if value is None else self.rows.id_of(prefix + name)
            if value is not None and number is not None:
                metrics.append(number)
                values.append(value)
        if values:
            self.rows.add(step, time, metrics, values)

    def _place(self, step: object) -> float | None:
        """The step of a line: its own, the row number, or that of the line before; None if it cannot be placed."""
        if self.step_key == ROW_NUMBER:
            self.count += 1
            self.rows.notes[NO_STEP_NOTE] += 1
            return float(self.count)
        if step is None:
            self.rows.notes["line without a step" + ("" if self.last_step is None else ", taken at the last one")] += 1
            return self.last_step
        value = _step_of(step)
        if value is None:
            self.rows.notes["step that is no finite number"] += 1
            return None
        self.count += 1
        self.last_step = value
        return value

    def _flat(self, item: Mapping[str, Any], depth: int, prefix: str) -> Iterator[tuple[str, Any]]:
        for key, value in item.items():
            if not isinstance(value, dict):
                yield prefix + key, value
            elif depth >= MAX_DEPTH:
                self.rows.notes["object nested too deep"] += 1
            else:
                yield from self._flat(value, depth + 1, f"{prefix}{key}/")

    def _number(self, value: object) -> float | None:
        """A sample's value, or None with a note of what it was instead; null says nothing was logged."""
        if value is None:
            return None
        if isinstance(value, int | float):
            try:
                return float(value)
            except OverflowError:
                return math.inf if value > 0 else -math.inf
        if isinstance(value, str):
            special = NONFINITE.get(value.strip().lower())
            if special is None:
                self.rows.notes["text value"] += 1
            return special
        self.rows.notes["list value"] += 1
        return None


def _is_step(step: object) -> TypeGuard[int | float]:
    return (type(step) is int and abs(step) < 1 << 62) or (type(step) is float and math.isfinite(step))


def _step_of(step: object) -> float | None:
    if isinstance(step, bool) or not isinstance(step, int | float | str):
        return None
    try:
        value = float(step)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def _long_name(pairs: Mapping[str, Any]) -> str | None:
    """The metric of an object that holds one sample as name and value, beside nothing else that is a number."""
    key = next((key for key in NAME_KEYS if isinstance(pairs.get(key), str)), None)
    if key is None or "value" not in pairs:
        return None
    others = [k for k, v in pairs.items() if k not in {key, "value", "epoch"} and isinstance(v, int | float)]
    name = pairs[key]
    return name if not others and isinstance(name, str) else None
