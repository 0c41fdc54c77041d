"""MLPerf events as samples: their step, their name, and the averages that are stamped with the start of their block."""

import json
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from flows.sources.objects import NONFINITE
from flows.sources.origins import Origins, label_of
from flows.sources.rows import Rows
from flows.sources.timestamps import to_micros

_MARK = b":::MLLOG"
_MILLIS = (10**12, 4 * 10**12)  # 2001 to 2096
_MOST_NAMES = 10_000
_LARGE = 10**308  # an integer beyond it is no float
# names of one axis, best first: tracked_stats call the samples `step`
AXES = (("samples_count", "step"), ("step_num", "iteration", "step"), ("epoch_num", "epoch", "step"))
# what `eval_accuracy` is where it is no accuracy (training_policies: the quality metric of each benchmark)
_LOSS = ("gpt", "llama", "llm", "mixtral", "deepseek", "t5", "flux")
_ERROR = ("rnnt", "stable_diffusion")


def axis_of(seen: Iterable[str]) -> tuple[str, ...]:
    """The names of the step in metadata that holds these keys: samples before steps before epochs."""
    keys = set(seen)
    return next((axis for axis in AXES if axis[0] in keys), next(a for a in AXES if keys & set(a)))


def parse_event(line: bytes) -> tuple[dict[str, Any] | None, bytes]:
    """The event on a line and the text before it; no event where there is none."""
    before, mark, rest = line.partition(_MARK)
    if not mark:
        return None, b""
    try:
        event = json.loads(rest)
    except (ValueError, RecursionError):
        return None, before
    return (event if isinstance(event, dict) else None), before


def _parse(texts: list[bytes]) -> list[dict[str, Any] | None]:
    """The events of many lines in one go, a third quicker than one by one; None for what is no object."""
    try:
        events: list[Any] = json.loads(b"[" + b",".join(texts) + b"]")
    except (ValueError, RecursionError):
        events = []
    if len(events) == len(texts) and all(type(event) is dict for event in events):
        return events
    return [parse_event(_MARK + text)[0] for text in texts]


@lru_cache(maxsize=10_000)
def _label(before: bytes) -> str:
    text = before.decode("utf-8", "replace")
    return label_of(text, len(text))


class EventRows:
    """Adds lines to Rows. `state` is what an earlier pull left."""

    def __init__(self, rows: Rows, axis: tuple[str, ...], state: Mapping[str, Any]) -> None:
        self.rows = rows
        self._axis = axis
        self._numbers: dict[tuple[str, ...], list[int | None]] = {}
        self._newest: float | None = state.get("newest")  # of the block that is under way
        self._block: float | None = state.get("block")  # where the block that is under way began
        self._benchmark: str = state.get("benchmark", "")
        self._origins = Origins(state.get("origins"))

    def state(self) -> dict[str, Any]:
        """What the next pull needs, as JSON values."""
        return {
            "newest": self._newest,
            "block": self._block,
            "benchmark": self._benchmark,
            "origins": self._origins.state(),
        }

    def add(self, lines: Iterable[bytes]) -> None:
        """Lines of the console, of whatever kind."""
        parts = [line.partition(_MARK) for line in lines if _MARK in line]
        for (before, _, _), event in zip(parts, _parse([rest for _, _, rest in parts]), strict=True):
            if event is None:
                self.rows.notes["MLLOG line that is no JSON object"] += 1
            else:
                self._event(event, before)

    def _event(self, event: dict[str, Any], before: bytes) -> None:
        metadata, key, value = event.get("metadata"), event.get("key"), event.get("value")
        step = self._step(metadata) if type(metadata) is dict else None
        if step is None:
            if key == "submission_benchmark":
                self._benchmark = str(value).lower()
            if isinstance(value, int | float | dict) and not isinstance(value, bool):
                self.rows.notes["event without a step: configuration"] += 1
            return
        if key in ("block_start", "block_stop"):
            self._block = self._newest = step if key == "block_start" else None
        if type(value) is dict and key == "tracked_stats" and set(map(type, value.values())) == {float}:
            names, values = tuple(value), list(value.values())
        else:
            pairs = list(self._pairs(str(key), value))
            names, values = tuple(name for name, _ in pairs), [number for _, number in pairs]
        if not names:
            return
        label = _label(before)
        if not self._origins.takes(str(key), label):
            self.rows.notes[self._origins.note(str(key))] += 1
            return
        time = event.get("time_ms")
        micros = time * 1000 if type(time) is int and _MILLIS[0] <= time < _MILLIS[1] else to_micros(time)
        self._put(step, micros, names, values)

    def _put(self, step: float, micros: int | None, names: tuple[str, ...], values: list[float]) -> None:
        """An average of the block that is ending is known at its newest step, not at the one it is stamped with."""
        newest = self._newest
        if newest is not None and self._block == step < newest:
            step, names = newest, tuple(f"block/{name}" for name in names)
        elif newest is not None and step > newest:
            self._newest = step
        numbers = self._numbers.get(names)
        if numbers is None:
            numbers = self._numbers[names] = [self.rows.id_of(name) for name in names]
            if len(self._numbers) > _MOST_NAMES:
                self._numbers.clear()
        known = [number for number in numbers if number is not None]
        if len(known) < len(numbers):
            values = [value for value, number in zip(values, numbers, strict=True) if number is not None]
        if values:
            self.rows.add(step, micros, array("q", known), values)

    def _step(self, metadata: Mapping[str, Any]) -> float | None:
        for key in self._axis:
            value = metadata.get(key)
            if (type(value) is float or type(value) is int) and math.isfinite(value):
                return float(value)
        return None

    def _pairs(self, key: str, value: object) -> Iterator[tuple[str, float]]:
        if isinstance(value, dict):
            for name, part in value.items():
                yield from self._pairs(name if key == "tracked_stats" else f"{key}/{name}", part)
        elif isinstance(value, str):
            if value.strip().lower() in NONFINITE:
                yield self._name(key), NONFINITE[value.strip().lower()]
        elif isinstance(value, float):
            yield self._name(key), value
        elif isinstance(value, int) and not isinstance(value, bool):
            yield self._name(key), float(value) if abs(value) < _LARGE else math.inf * (1 if value > 0 else -1)

    def _name(self, key: str) -> str:
        """`eval_accuracy` is a loss or an error rate in some benchmarks: its name says so then."""
        if key != "eval_accuracy":
            return key
        if any(part in self._benchmark for part in _LOSS):
            return "eval_accuracy (loss)"
        return "eval_accuracy (error)" if any(part in self._benchmark for part in _ERROR) else key
