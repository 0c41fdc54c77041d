"""Lines of text cut into numbers and shapes: what is left of a line without its numbers says what the numbers are.

A trainer writes the same few shapes again and again, so the forms of grammar.py are tried once for each shape, and the
numbers of all its lines in a block are converted at once.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.sources.grammar import Form, Reading, read_line
from flows.sources.numerals import IN_POLARS, TOKEN, to_numbers
from flows.sources.origins import PREFIX_CHARS, label_of
from flows.sources.timestamps import to_micros

TIME = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?(?:Z|[+-]\d\d:?\d\d)?"
NO_TIME = -(1 << 63)
_TOKEN, _TIME = re.compile(TOKEN, re.ASCII), re.compile(TIME, re.ASCII)
_MOST_SHAPES = 20_000
_SLACK = 4  # a label has more digits in one line than in another


@dataclass(frozen=True)
class Plan:
    """What the numbers of a shape are, by their position. Without a step the line takes that of the line before.

    `label` names the writer, None where it has a number in it that may differ from line to line.
    """

    form: Form
    start: int
    label: str | None
    timed: bool
    step: int | None
    bar: tuple[int, int] | None  # epoch and steps of an epoch, where the step begins anew with each
    values: tuple[int, ...]
    metrics: tuple[int, ...]

    def meaning(self) -> tuple[object, ...]:
        """What it is, to compare."""
        return (self.form.kind, self.start, self.label, self.timed, self.step, self.bar, self.values, self.metrics)


@dataclass(frozen=True)
class Found:
    """Lines of one shape: their positions in the block (ascending), and what they say. `steps` is None without any."""

    plan: Plan
    at: NDArray[np.int64]
    labels: list[str]
    times: NDArray[np.int64]
    steps: NDArray[np.float64] | None
    values: NDArray[np.float64]  # (lines, metrics)

    def only(self, mask: NDArray[np.bool_]) -> "Found":
        """Some of the lines."""
        steps = None if self.steps is None else self.steps[mask]
        labels = [label for label, kept in zip(self.labels, mask, strict=True) if kept]
        return replace(
            self, at=self.at[mask], labels=labels, times=self.times[mask], steps=steps, values=self.values[mask]
        )

    def moved(self, at: NDArray[np.int64]) -> "Found":
        """The same lines, where position k was position at[k]."""
        return replace(self, at=at[self.at])


class Shapes:
    """The plans of the shapes seen so far. `wanted` names the number that is the step; `id_of` numbers a metric."""

    def __init__(self, forms: Sequence[Form], wanted: str | None, id_of: Callable[[str], int | None]) -> None:
        self._forms, self._wanted, self._id_of = forms, wanted, id_of
        self._plans: dict[str, Plan | None] = {}

    def read(self, lines: pl.Series) -> list[Found]:
        """What the forms find in lines, shape by shape."""
        if not len(lines):
            return []
        shapes = lines.str.replace_all(" *" + IN_POLARS, "\0")
        rows = pl.DataFrame({"shape": shapes, "at": pl.arange(len(lines), eager=True)})
        groups = rows.group_by("shape", maintain_order=True).agg("at")
        alike: dict[tuple[object, ...], tuple[Plan, list[NDArray[np.int64]]]] = {}
        for shape, at in zip(groups["shape"], groups["at"], strict=True):
            plan = self._plan_of(shape, lines[int(at[0])])
            if plan is not None:  # a name or a hash in each line makes many shapes of one plan
                known = alike.setdefault((shape.count("\0"), *plan.meaning()), (plan, []))
                known[1].append(at.to_numpy().astype(np.int64))
        ordered = ((plan, np.sort(np.concatenate(parts))) for plan, parts in alike.values())
        return [_numbers(plan, lines.gather(at), at) for plan, at in ordered]

    def _plan_of(self, shape: str, line: str) -> Plan | None:
        try:
            return self._plans[shape]
        except KeyError:
            pass
        reading = read_line(line, self._forms)
        if len(self._plans) >= _MOST_SHAPES:
            self._plans.clear()
        self._plans[shape] = None if reading is None else self._plan(reading, line)
        return self._plans[shape]

    def _plan(self, reading: Reading, line: str) -> Plan | None:
        tokens = [found.span() for found in _TOKEN.finditer(line)]
        places = {start: at for at, (start, _) in enumerate(tokens)}
        marks = {name: places.get(start) for name, start in reading.marks.items()}
        known = [(name, places[start]) for name, start, _ in reading.metrics if start in places]
        step, epoch, of = marks.get("step"), marks.get("epoch"), marks.get("of")
        bar = None if epoch is None or of is None else (epoch, of)
        if self._wanted not in (None, reading.form.step_key):
            step, bar = next((at for name, at in known if name == self._wanted), None), None
        numbered = [(number, at) for name, at in known if at != step and (number := self._id_of(name)) is not None]
        if not numbered:
            return None
        before = [line[start:end] for start, end in tokens if end <= reading.start]
        label = label_of(line, reading.start)
        return Plan(
            reading.form,
            reading.start,
            None if any(token.strip("+-") in label for token in before) and label else label,
            _TIME.search(line, 0, PREFIX_CHARS) is not None,
            step,
            bar,
            tuple(at for _, at in numbered),
            tuple(number for number, _ in numbered),
        )


def shape_of(line: str) -> str:
    """A line without its numbers."""
    return _TOKEN.sub("\0", line)


def _numbers(plan: Plan, lines: pl.Series, at: NDArray[np.int64]) -> Found:
    places = [*plan.values, *(() if plan.step is None else (plan.step,)), *(plan.bar or ())]
    texts = lines.str.extract_all(IN_POLARS)
    width = int(texts.list.len()[0])
    chosen = (np.arange(len(lines))[:, None] * width + np.array(places)).reshape(-1)
    table = to_numbers(texts.explode().gather(chosen)).reshape(len(lines), len(places))
    steps = None if plan.step is None else table[:, len(plan.values)]
    if steps is not None and plan.bar is not None:
        steps = steps + table[:, -2] * table[:, -1]
    labels = (
        [plan.label] * len(lines) if plan.label is not None else [label_of(line, plan.start + _SLACK) for line in lines]
    )
    times = times_of(lines) if plan.timed else np.full(len(lines), NO_TIME)
    return Found(plan, at, labels, times, steps, table[:, : len(plan.values)])


def times_of(lines: pl.Series) -> NDArray[np.int64]:
    """Microseconds (UTC, NO_TIME for none) of the times at the beginning of lines; without an offset they are UTC."""
    texts = lines.str.head(PREFIX_CHARS).str.extract(f"({TIME})", 1).str.replace(",", ".", literal=True)
    seconds = texts.str.head(19).str.replace("T", " ", literal=True)
    whole = seconds.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False).cast(pl.Int64)
    fraction = texts.str.slice(19).fill_null("")
    part = fraction.str.extract(r"^\.(\d{1,6})$", 1)
    micros = whole + part.str.pad_end(6, "0").cast(pl.Int64).fill_null(0)
    values = micros.fill_null(NO_TIME).to_numpy().copy()
    for row in (part.is_null() & (fraction != "")).arg_true():  # an offset from UTC
        values[row] = to_micros(texts[row]) or NO_TIME
    return values
