"""What the lines of a console log say, put in their order: one writer of several, a step for each line, repetitions left out."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.sources.contract import NO_STEP_NOTE
from flows.sources.grammar import MAX_LINE_CHARS, Form, Reading, read_line
from flows.sources.numerals import value_of
from flows.sources.origins import Origins, label_of
from flows.sources.rows import Rows
from flows.sources.shapes import NO_TIME, Found, Plan, Shapes, times_of
from flows.sources.timestamps import to_micros


class TextRows:
    """Adds lines to Rows. `wanted` names the number that is the step; `state` is what an earlier pull left."""

    def __init__(self, rows: Rows, forms: Sequence[Form], wanted: str | None, state: dict[str, Any]) -> None:
        self.rows = rows
        self._last_step = float(state.get("last_step", 0.0))
        self._count = int(state.get("count", 0))
        self._origins = Origins(state.get("origins"))
        self._drawn: dict[str, str] = dict(state.get("drawn", {}))
        self._wanted = wanted
        self._users = [form for form in forms if form.users]
        self._shapes = Shapes([form for form in forms if not form.users], wanted, rows.id_of)

    def state(self) -> dict[str, Any]:
        """What the next pull needs, as JSON values."""
        origins = self._origins.state()
        return {"last_step": self._last_step, "count": self._count, "origins": origins, "drawn": self._drawn}

    def add(self, texts: list[str]) -> None:
        """Lines without colours and without their ends."""
        lines = pl.Series(texts, dtype=pl.String)
        at = np.arange(len(lines))
        long = (lines.str.len_bytes() > MAX_LINE_CHARS).to_numpy()
        if long.any():
            self.rows.notes["line too long for one of a log"] += int(long.sum())
            lines, at = lines.filter(pl.Series(~long)), at[~long]
        users = self._read_users(lines) if self._users else []
        if users:
            free = np.setdiff1d(np.arange(len(lines)), np.concatenate([each.at for each in users]))
            rest = [each.moved(free) for each in self._shapes.read(lines.gather(free))]
        else:
            rest = self._shapes.read(lines)
        found = [taken for each in self._one_writer([*users, *rest]) if len((taken := each.moved(at)).at)]
        if found:
            self._put(found)

    def _read_users(self, lines: pl.Series) -> list[Found]:
        """What the user's patterns find, line by line, gathered by what it is."""
        same: dict[tuple[str, tuple[int, ...], bool], list[tuple[int, str, float | None, list[float], int | None]]]
        same, forms = defaultdict(list), {form.kind: form for form in self._users}
        times: NDArray[np.int64] | None = None
        for at, line in enumerate(lines):
            reading = read_line(line, self._users)
            if reading is None:
                continue
            values = self._values(reading, line)
            step = reading.step(line)
            if self._wanted not in (None, reading.form.step_key):
                step = values.pop(self._wanted, None)
            numbered = [(n, value) for name, value in values.items() if (n := self.rows.id_of(name)) is not None]
            if reading.time is None:
                times = times_of(lines) if times is None else times
                time: int | None = int(times[at])
            else:
                time = to_micros(reading.time.replace(",", "."))
            key = (reading.form.kind, tuple(number for number, _ in numbered), step is not None)
            same[key].append((at, label_of(line, reading.start), step, [value for _, value in numbered], time))
        found = []
        for (kind, metrics, stepped), told in same.items():
            places, labels, steps, rows, moments = zip(*told, strict=True)
            found.append(
                Found(
                    Plan(forms[kind], 0, None, False, None, None, (), metrics),
                    np.array(places),
                    list(labels),
                    np.array([NO_TIME if time is None else time for time in moments]),
                    np.array(steps, dtype=np.float64) if stepped else None,
                    np.array(rows, dtype=np.float64).reshape(len(told), len(metrics)),
                )
            )
        return found

    def _values(self, reading: Reading, line: str) -> dict[str, float]:
        values = {}
        for name, start, end in reading.metrics:
            value = value_of(line[start:end])
            if value is None:
                self.rows.notes["text value"] += 1
            else:
                values[name] = value * reading.form.scale.get(name, 1.0)
        return values

    def _one_writer(self, found: list[Found]) -> list[Found]:
        """Only the lines of the writer that is listened to, kind by kind."""
        kinds: dict[str, list[Found]] = defaultdict(list)
        for each in found:
            kinds[each.plan.form.kind].append(each)
        taken = []
        for kind, same in kinds.items():
            labels = {label for each in same for label in each.labels}
            if len(labels) == 1 and self._origins.is_of(kind, next(iter(labels))):
                taken += same
                continue
            lines = sorted((int(at), n, k) for n, each in enumerate(same) for k, at in enumerate(each.at))
            keep = [np.zeros(len(each.at), dtype=bool) for each in same]
            for _, n, k in lines:
                keep[n][k] = self._origins.takes(kind, same[n].labels[k])
                if not keep[n][k]:
                    self.rows.notes[self._origins.note(kind)] += 1
            taken += [each.only(mask) for each, mask in zip(same, keep, strict=True)]
        return taken

    def _put(self, found: list[Found]) -> None:
        sizes = [len(each.at) for each in found]
        order = np.argsort(np.concatenate([each.at for each in found]), kind="stable")
        owner, row = (
            np.repeat(np.arange(len(found)), sizes)[order],
            np.concatenate([np.arange(n) for n in sizes])[order],
        )
        raw = [np.full(len(each.at), np.nan) if each.steps is None else each.steps for each in found]
        given = np.repeat([each.steps is not None for each in found], sizes)[order]
        steps = self._steps(np.concatenate(raw)[order], given, self._counted(found)[owner])
        keep = np.isfinite(steps)
        if not keep.all():
            self.rows.notes["step that is no finite number"] += int((~keep).sum())
        if any(each.plan.form.redrawn for each in found):
            self._leave_out_redrawn(found, owner, row, steps, keep)
        widths = np.array([each.values.shape[1] for each in found])[owner] * keep
        ends = np.cumsum(widths)
        values, metrics = np.empty(ends[-1]), np.empty(ends[-1], dtype=np.int64)
        for n, each in enumerate(found):
            mine = (owner == n) & keep
            places = (ends - widths)[mine][:, None] + np.arange(each.values.shape[1])
            values[places] = each.values[row[mine]]
            metrics[places] = np.array(each.plan.metrics)
        times = np.concatenate([each.times for each in found])[order]
        self.rows.add_many(steps[keep], times[keep], widths[keep], metrics, values)

    def _counted(self, found: list[Found]) -> NDArray[np.bool_]:
        """Which of them are counted for want of a step."""
        forms = [each.plan.form for each in found]
        return np.array([form.counts and self._wanted in (None, form.step_key) for form in forms])

    def _steps(
        self, raw: NDArray[np.float64], given: NDArray[np.bool_], counted: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """A step for every line: its own, the number of lines of its kind so far, or that of the line before it."""
        counted = counted & ~given
        if counted.any():
            raw[counted] = self._count + 1 + np.arange(counted.sum())
            self._count += int(counted.sum())
            self.rows.notes[NO_STEP_NOTE] += int(counted.sum())
        own = (given | counted) & np.isfinite(raw)
        carried = ~(given | counted)
        if carried.any():
            self.rows.notes["line without a step, taken at the last one"] += int(carried.sum())
            last = np.maximum.accumulate(np.where(own, np.arange(len(raw)), -1))
            raw = np.where(carried, np.where(last < 0, self._last_step, raw[last]), raw)
        if own.any():
            self._last_step = float(raw[np.flatnonzero(own)[-1]])
        return raw

    def _leave_out_redrawn(
        self,
        found: list[Found],
        owner: NDArray[np.int64],
        row: NDArray[np.int64],
        steps: NDArray[np.float64],
        keep: NDArray[np.bool_],
    ) -> None:
        for k in np.flatnonzero(keep):
            each = found[owner[k]]
            if each.plan.form.redrawn:
                drawn = repr((float(steps[k]), each.plan.metrics, each.values[row[k]].tolist()))
                keep[k] = self._drawn.get(each.plan.form.kind) != drawn
                self._drawn[each.plan.form.kind] = drawn
