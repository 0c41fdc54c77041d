"""What the judge remembers of all metrics of an attempt that are screened together, and how it goes on.

One table for thousands of metrics: a row each, with the 16 newest samples and what the screen knows. Its size does not
depend on how long the run is. A metric that was given another role since begins anew at its new place.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from detectors.finding import Answer
from detectors.noise import BLOCK, block_medians
from detectors.screen import HISTORY, Calm, calm_of, screen, states_of
from detectors.series import Array
from detectors.suite import NEVER_NEGATIVE, carried, load
from detectors.window import Chunk, State
from flows.stages.fresh import Flat, Samples

FORMAT = "crowd 1"
TAIL = 5 * BLOCK  # samples before a fork that a new attempt is shown: more than end any episode
Roles = Mapping[str, tuple[str, str]]  # metric -> role, group
_COLUMNS = tuple(each.name for each in fields(Calm))


def _empty() -> Samples:
    return Samples(*(np.empty((0, HISTORY)) for _ in range(3)))


@dataclass
class Crowd:
    """`last` are the newest samples of each metric, shape (metrics, HISTORY), NaN in front where there are fewer.

    `open` holds the detectors' states of metrics for which the columns of `calm` do not suffice.
    """

    names: list[str] = field(default_factory=list)
    calm: Calm = field(default_factory=lambda: Calm.fresh(0))
    last: Samples = field(default_factory=_empty)
    live: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, bool))  # a value other than zero was seen
    sentinels: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    open: dict[str, Mapping[str, State]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._row = {name: k for k, name in enumerate(self.names)}

    def rows(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Their rows; those that are new get one."""
        if missing := [name for name in names if name not in self._row]:
            self._row.update({name: len(self.names) + k for k, name in enumerate(missing)})
            self.names = [*self.names, *missing]
            size, more = len(missing), Calm.fresh(len(missing))
            self.calm = Calm(*(np.concatenate([getattr(self.calm, c), getattr(more, c)]) for c in _COLUMNS))
            self.last = Samples(*(np.concatenate([part, np.full((size, HISTORY), np.nan)]) for part in self.last))
            self.live = np.concatenate([self.live, np.zeros(size, bool)])
            self.sentinels = np.concatenate([self.sentinels, np.zeros(size, np.int64)])
        return np.array([self._row[name] for name in names], dtype=np.int64)

    def has(self, name: str) -> bool:
        """Whether anything is known of it."""
        return name in self._row

    def dump(self) -> bytes:
        """A line of JSON, then one table of numbers."""
        columns = [self.live, self.sentinels, *(getattr(self.calm, name) for name in _COLUMNS)]
        table = np.column_stack([*columns, *self.last])
        head = {"format": FORMAT, "names": self.names, "open": self.open}
        return json.dumps(head).encode() + b"\n" + table.astype("<f8").tobytes()

    @staticmethod
    def load(data: bytes) -> "Crowd | None":
        """The inverse of `dump`; None where another version wrote it."""
        text, _, raw = data.partition(b"\n")
        head = json.loads(text)
        if head["format"] != FORMAT:
            return None
        table = np.frombuffer(raw, "<f8").reshape(-1, 2 + len(_COLUMNS) + 3 * HISTORY)
        live, sentinels, *columns = table[:, : 2 + len(_COLUMNS)].T
        calm = Calm.fresh(len(table))
        calm.put(slice(None), Calm(*columns))  # the numbers become what they were
        last = Samples(*(part.copy() for part in np.split(table[:, 2 + len(_COLUMNS) :], 3, axis=1)))
        return Crowd(head["names"], calm, last, live.astype(bool), sentinels.astype(np.int64), head["open"])

    def advance(self, new: Flat, roles: Roles) -> tuple[list[Answer], dict[str, Array]]:
        """Answers that the new samples make possible, and the blocks of 16 that they complete, by grouped metric."""
        new = self._measured(new, roles)
        if not new.names:
            return [], {}
        rows = self.rows(new.names)
        before = self.calm.take(rows)
        last = self.last.at(rows)
        kinds = [roles[name] for name in new.names]
        quiet, after = screen(
            before,
            [role for role, _ in kinds],
            [group for _, group in kinds],
            last.value[:, -1],
            new.samples.value,
            new.starts,
        )
        quiet &= np.array([name not in self.open for name in new.names])
        self.calm.put(rows[quiet], after.take(quiet))
        said: list[Answer] = []
        for k in np.flatnonzero(~quiet).tolist():
            role, group = kinds[k]
            said += self._listen(new, k, last, role, group, self.states(new.names[k], int(rows[k]), roles))
        done = _blocks(new, before.samples, last, roles)
        for part, mine, fresh in zip(self.last, last, new.samples, strict=True):
            part[rows] = _newest(mine, fresh, new.starts)
        self.live[rows] |= np.logical_or.reduceat(np.nan_to_num(new.samples.value) != 0, new.starts[:-1])
        return said, done

    def seed(self, parent: "Crowd", tail: Flat, roles: Roles) -> None:
        """Metrics new to an attempt: what its parent knew of them, shown the samples before the fork once more.

        What would be said about those was said when they were new.
        """
        known = [k for k, name in enumerate(tail.names) if parent.has(name)]
        names = [tail.names[k] for k in known]
        first = np.maximum(0, parent.calm.samples[parent.rows(names)] - np.diff(tail.starts)[known]) // BLOCK * BLOCK
        for name, row, old, index in zip(names, self.rows(names), parent.rows(names), first.tolist(), strict=True):
            calm = calm_of(carried(parent.states(name, old, roles), 0.0), index)
            assert calm is not None  # episodes are not carried
            self.calm.put([row], calm)
            self.live[row] = parent.live[old]
        self.advance(tail, roles)

    def states(self, name: str, row: int, roles: Roles) -> dict[str, State]:
        """Those of the detectors that look at one metric."""
        odd = self.open.get(name, {})
        return {each: odd.get(each, state) for each, state in states_of(self.calm, row, *roles[name]).items()}

    def _measured(self, new: Flat, roles: Roles) -> Flat:
        """Without the values that are no measurement."""
        counts = np.diff(new.starts)
        signed = np.repeat(np.array([roles[name][0] in NEVER_NEGATIVE for name in new.names], bool), counts)
        passed = signed & (new.samples.value < 0)
        if not passed.any():
            return new
        lost = np.add.reduceat(passed.astype(np.int64), new.starts[:-1])
        rows = self.rows(new.names)
        self.sentinels[rows] += lost
        left = counts - lost
        names = [name for name, count in zip(new.names, left.tolist(), strict=True) if count]
        return Flat(names, np.r_[0, np.cumsum(left[left > 0])], new.samples.at(~passed))

    def _listen(
        self, new: Flat, k: int, last: Samples, role: str, group: str, states: Mapping[str, State]
    ) -> list[Answer]:
        """One metric through its detectors."""
        name = new.names[k]
        row = self.rows([name])
        index = int(self.calm.samples[row[0]])
        known = int(np.isfinite(last.step[k]).sum())
        fresh = new.samples.at(slice(int(new.starts[k]), int(new.starts[k + 1])))
        step, value, seconds = (
            np.concatenate([old[k, HISTORY - known :], part]) for old, part in zip(last, fresh, strict=True)
        )
        chunk = Chunk(index - known, index, step, value, seconds, name, role, group)
        said, after = [], {}
        for each, state in states.items():
            found, after[each] = load(each).scan(chunk, state)
            said += found
        calm = calm_of(after, chunk.end)
        self.open.pop(name, None)
        if calm is None:
            self.open[name] = after
        self.calm.put(row, calm or Calm.fresh(1))
        self.calm.samples[row] = chunk.end
        return [answer for _, answer in sorted(said, key=lambda pair: pair[0])]


def _blocks(new: Flat, before: NDArray[np.int64], last: Samples, roles: Roles) -> dict[str, Array]:
    """(k, 3) by metric: number of the block, its last step, median of its values."""
    every = np.arange(len(new.names))
    grouped = np.array([bool(roles[name][1]) for name in new.names])
    first, stop = before // BLOCK, (before + np.diff(new.starts)) // BLOCK
    owner = np.repeat(every, np.where(grouped, stop - first, 0))
    if not len(owner):
        return {}
    begin = np.searchsorted(owner, every)
    number = first[owner] + np.arange(len(owner)) - begin[owner]
    place = number[:, None] * BLOCK + np.arange(BLOCK) - before[owner][:, None]  # among the new samples of its metric
    value = _at(place, owner, last.value, new.samples.value, new.starts)
    step = _at(place[:, -1:], owner, last.step, new.samples.step, new.starts)[:, 0]
    table = np.column_stack([number, step, block_medians(value.reshape(-1))])
    return {new.names[k]: table[begin[k] : begin[k] + stop[k] - first[k]] for k in np.unique(owner).tolist()}


def _at(
    place: NDArray[np.int64], owner: NDArray[np.int64], last: Array, new: Array, starts: NDArray[np.int64]
) -> Array:
    """Samples by their place among the new ones of their metric; those before 0 lie in `last`."""
    rows = owner[:, None]
    here = new[np.clip(starts[rows] + place, 0, len(new) - 1)]
    return np.where(place >= 0, here, last[rows, np.minimum(HISTORY + place, HISTORY - 1)])


def _newest(last: Array, new: Array, starts: NDArray[np.int64]) -> Array:
    """The HISTORY newest samples of each metric."""
    place = np.diff(starts)[:, None] - HISTORY + np.arange(HISTORY)
    return _at(place, np.arange(len(last)), last, new, starts)
