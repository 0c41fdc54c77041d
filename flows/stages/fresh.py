"""The rows of one pass, sorted by attempt and metric without taking them apart."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from detectors.series import Array

Key = tuple[int, str]  # attempt, metric


class Samples(NamedTuple):
    """Of one metric and attempt, or of many one after the other; a missing value or time is NaN."""

    step: Array
    value: Array
    seconds: Array

    def at(self, where: slice | NDArray[np.bool_] | NDArray[np.int64]) -> "Samples":
        """Some of them."""
        return Samples(self.step[where], self.value[where], self.seconds[where])


@dataclass(frozen=True)
class Flat:
    """Samples of many metrics one after the other: those of names[k] lie from starts[k] to starts[k + 1]."""

    names: list[str]
    starts: NDArray[np.int64]
    samples: Samples

    def each(self) -> dict[str, Samples]:
        """By metric."""
        ends = zip(self.names, self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True)
        return {name: self.samples.at(slice(start, stop)) for name, start, stop in ends}


@dataclass(frozen=True)
class Fresh:
    """New samples by attempt: of the metrics that are judged one by one, and of those that are screened together."""

    alone: dict[Key, Samples] = field(default_factory=dict)
    together: dict[int, Flat] = field(default_factory=dict)

    @property
    def attempts(self) -> list[int]:
        """In their order."""
        return sorted({*(attempt for attempt, _ in self.alone), *self.together})


def fresh(rows: pl.DataFrame, together: Callable[[str], bool]) -> Fresh:
    """Sort out rows (attempt, name as an Enum, step, value, seconds); `together` says which metrics are screened."""
    found = Fresh()
    known = _names(rows)
    apart = np.array([0 if together(name) else len(known) for name in known], dtype=np.int64)
    attempts = rows["attempt"].unique().sort()
    for attempt in attempts:
        mine = rows if len(attempts) == 1 else rows.filter(pl.col("attempt") == attempt)
        codes = mine["name"].to_physical().to_numpy().astype(np.int64)
        codes += apart[codes]
        order, starts = _sorted(codes)
        firsts = codes[order[starts[:-1]]]
        names = [known[code % len(known)] for code in firsts.tolist()]
        many = int(np.searchsorted(firsts, len(known)))
        samples = samples_of(mine).at(order)
        if many:
            found.together[attempt] = Flat(names[:many], starts[: many + 1], samples.at(slice(0, int(starts[many]))))
        each = Flat(names[many:], starts[many:], samples).each()
        found.alone.update({(attempt, name): part for name, part in each.items()})
    return found


def flat(rows: pl.DataFrame) -> Flat:
    """Rows (name as an Enum, step, value, seconds) by metric."""
    known = _names(rows)
    order, starts = _sorted(rows["name"].to_physical().to_numpy().astype(np.int64))
    names = [known[code] for code in rows["name"].to_physical().gather(order[starts[:-1]])]
    return Flat(names, starts, samples_of(rows).at(order))


def _names(rows: pl.DataFrame) -> list[str]:
    """The categories of the column `name`: what its physical values count."""
    kind = rows.schema["name"]
    assert isinstance(kind, pl.Enum)
    return kind.categories.to_list()


def samples_of(rows: pl.DataFrame) -> Samples:
    """step, value, seconds of rows."""
    return Samples(*(rows[name].fill_null(float("nan")).to_numpy() for name in ("step", "value", "seconds")))


def _sorted(codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The order that sorts codes, and where each begins in it, with the end."""
    small = not len(codes) or int(codes.max()) < 1 << 16
    order = np.argsort(codes.astype(np.uint16) if small else codes, kind="stable")  # of 16 bits it is a radix sort
    ordered = codes[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]][: len(codes)])
    return order, np.r_[starts, len(codes)]
