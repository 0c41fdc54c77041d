"""Rows of text cells as samples, by a layout of the columns."""

import csv
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flows.sources.contract import NO_STEP_NOTE
from flows.sources.layout import Layout
from flows.sources.plain_cells import add_plain
from flows.sources.rows import Rows
from flows.sources.timestamps import to_micros

_FLAGS = {"true": 1.0, "false": 0.0}
_NOT_LOGGED = frozenset({"", "null", "none", "na", "n/a", "<na>", "-"})
_JOINED_LINES = 20  # a quoted cell may hold this many line breaks ...
_JOINED_CHARS = 65_536  # ... and characters, before its quote is taken for a stray one


class CellRows:
    """Adds lines of a table to Rows; what is carried from pull to pull goes through `state`."""

    def __init__(self, rows: Rows, layout: Layout, delimiter: str, width: int, state: Mapping[str, Any]) -> None:
        self.rows = rows
        self.last_step: float | None = state.get("last_step")
        self.count = int(state.get("count", 0))
        self._open: list[str] = list(state.get("open", []))  # lines of a quoted cell that has not ended
        self._layout, self._delimiter, self._width = layout, delimiter, width
        known = [(at, rows.id_of(name)) for at, name in layout.metrics if at != layout.time]
        self._columns = [at for at, number in known if number is not None]
        self._numbers = array("q", [number for _, number in known if number is not None])
        self._time_name = next((name for at, name in layout.metrics if at == layout.time), "time")

    def state(self) -> dict[str, Any]:
        return {
            "step_key": self._layout.step_key,
            "last_step": self.last_step,
            "count": self.count,
            "open": self._open,
        }

    def add_text(self, text: bytes) -> bool:
        """Whole lines with their newlines, at once; False, with nothing added, where they need a closer look."""
        if self._open:
            return False
        steps = add_plain(self.rows, text, self._layout, self._delimiter, self._width, self._columns, self._numbers)
        if steps is None:
            return False
        self.last_step = float(steps[-1])
        self.count += len(steps)
        return True

    def add(self, lines: Sequence[bytes]) -> None:
        """Whole lines, without their newlines."""
        reader = csv.reader(self._logical(lines), delimiter=self._delimiter)
        while True:
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error:
                self.rows.notes["row that is no table row"] += 1
                continue
            if cells:
                self._add_row(cells)

    def is_complete(self, line: bytes) -> bool:
        """Whether a line that has no newline yet is whole: it closes the quotes of its last cell (W&B's last line)."""
        text = line.decode("utf-8", "replace")
        if self._open or not text.rstrip("\r").endswith('"') or text.count('"') % 2:
            return False
        try:
            return len(next(csv.reader([text], delimiter=self._delimiter), [])) == self._width
        except csv.Error:
            return False

    def _logical(self, lines: Sequence[bytes]) -> Iterator[str]:
        """Lines with the continuations of quoted cells joined to them. A quote that does not end is a bad row."""
        waiting = [line.decode("utf-8", "replace").rstrip("\r") for line in reversed(lines)]
        while waiting:
            line = waiting.pop()
            if not self._open and line.count('"') % 2 == 0:
                yield line
                continue
            self._open.append(line)
            joined = "\n".join(self._open)
            if joined.count('"') % 2 == 0:
                self._open = []
                yield joined
            elif len(self._open) > _JOINED_LINES or len(joined) > _JOINED_CHARS:
                self.rows.notes["row with a quote that does not end"] += 1
                waiting.extend(reversed(self._open[1:]))
                self._open = []

    def _add_row(self, cells: list[str]) -> None:
        if len(cells) > self._width:
            if len(cells) > self._width + 1 or cells[-1].strip():
                self.rows.notes["row with too many cells"] += 1
                return
        elif len(cells) < self._width:
            if len(cells) == 1 and not cells[0].strip():
                return  # a blank line
            self.rows.notes["row with too few cells"] += 1
            cells = cells + [""] * (self._width - len(cells))
        step = self._step(cells)
        if step is None:
            return
        numbers, values = self._samples(cells)
        micros = None
        if self._layout.time is not None:
            micros = to_micros(cells[self._layout.time])
            if micros is None:
                self._put(self._time_name, cells[self._layout.time], numbers, values)
        if values:
            self.rows.add(step, micros, numbers, values)

    def _samples(self, cells: list[str]) -> tuple["array[int]", list[float]]:
        layout = self._layout
        if layout.name is not None and layout.value is not None:
            numbers: array[int] = array("q")
            values: list[float] = []
            self._put(cells[layout.name].strip(), cells[layout.value], numbers, values)
            return numbers, values
        picked = [cells[at] for at in self._columns]
        try:
            return self._numbers[:], list(map(float, picked))
        except ValueError:
            pass
        numbers, values = array("q"), []
        for number, cell in zip(self._numbers, picked, strict=True):
            if cell:
                value = self._number(cell)
                if value is not None:
                    numbers.append(number)
                    values.append(value)
        return numbers, values

    def _put(self, name: str, cell: str, numbers: "array[int]", values: list[float]) -> None:
        value = self._number(cell)
        number = None if value is None else self.rows.id_of(name)
        if value is not None and number is not None:
            numbers.append(number)
            values.append(value)

    def _number(self, cell: str) -> float | None:
        try:
            return float(cell)
        except ValueError:
            text = cell.strip().lower()
        if text in _NOT_LOGGED:
            return None
        if text not in _FLAGS:
            self.rows.notes["text cell"] += 1
        return _FLAGS.get(text)

    def _step(self, cells: list[str]) -> float | None:
        """The step of a row: its own, the row number, or that of the row before; None if it cannot be placed."""
        if self._layout.step is None:
            self.count += 1
            self.rows.notes[NO_STEP_NOTE] += 1
            return float(self.count)
        cell = cells[self._layout.step]
        try:
            step = float(cell)
        except ValueError:
            step = math.nan
        if math.isfinite(step):
            self.count += 1
            self.last_step = step
            return step
        if cell.strip():
            self.rows.notes["step that is no finite number"] += 1
            return None
        self.rows.notes["row without a step" + ("" if self.last_step is None else ", taken at the last one")] += 1
        return self.last_step
