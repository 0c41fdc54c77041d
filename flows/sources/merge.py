"""Metrics that are kept one by one, put back into the order in which the run wrote them: by time, then step."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.records import SAMPLE_SCHEMA
from flows.sources.rows import BATCH_SECONDS, FLUSH_ROWS
from flows.sources.timestamps import PLAUSIBLE_SECONDS

Times = NDArray[np.int64]
Floats = NDArray[np.float64]
Place = dict[str, Any]


@dataclass(frozen=True)
class Piece:
    """Neighbouring rows of one metric: times in milliseconds since 1970. `place(n)` is the cursor behind n of them."""

    times: Times
    steps: Floats
    values: Floats
    place: Callable[[int], Place]


class _Head:
    """What is left of a metric's piece. Rows of a metric never change places: an earlier time counts as the last."""

    def __init__(self, piece: Piece, floor: int) -> None:
        self.piece = piece
        self.order = np.maximum.accumulate(np.maximum(piece.times, floor))
        self.ties = _ties(self.order, piece.steps)
        self.taken = 0


def _ties(order: Times, steps: Floats) -> Floats:
    """What decides between metrics at equal times: the step, or a higher one that the metric had at this time before."""
    if not ((np.diff(order) == 0) & (np.diff(steps) < 0)).any():
        return steps
    out = steps.copy()
    for at in range(1, len(out)):
        if order[at] == order[at - 1]:
            out[at] = max(out[at], out[at - 1])
    return out


def merged(pieces: Mapping[str, Iterator[Piece]]) -> Iterator[tuple[pl.DataFrame, dict[str, Place]]]:
    """SAMPLE_SCHEMA frames of about FLUSH_ROWS, or of BATCH_SECONDS, each with the places behind it of the metrics that moved.

    Holds one piece a metric. Every metric is read up to the time which all have reached, then the next pieces are read.
    """
    names, waiting = list(pieces), dict(pieces)
    heads: dict[str, _Head] = {}
    floors: dict[str, int] = {}
    parts: list[pl.DataFrame] = []
    places: dict[str, Place] = {}
    size, until = 0, time.monotonic() + BATCH_SECONDS
    while True:
        for name in [name for name in waiting if name not in heads]:
            piece = next((each for each in waiting[name] if len(each.times)), None)
            if piece is None:
                del waiting[name]
            else:
                heads[name] = _Head(piece, floors.get(name, 0))
        if not heads:
            break
        frontier = min(int(head.order[-1]) for head in heads.values())
        part = _upto(frontier, heads, names, floors, places)
        parts.append(part)
        size += len(part)
        if size >= FLUSH_ROWS or time.monotonic() > until:
            yield pl.concat(parts), dict(places)
            until = time.monotonic() + BATCH_SECONDS
            parts, size = [], 0
            places.clear()
    if parts:
        yield pl.concat(parts), dict(places)


def _micros(millis: Times) -> Times:
    """Microseconds; NaT for what is no time of a clock."""
    low, high = (1000 * seconds for seconds in PLAUSIBLE_SECONDS)
    fine = (millis >= low) & (millis < high)
    return np.where(fine, np.where(fine, millis, 0) * 1000, np.iinfo(np.int64).min)


def _upto(
    frontier: int, heads: dict[str, _Head], names: list[str], floors: dict[str, int], places: dict[str, Place]
) -> pl.DataFrame:
    """The rows up to a time, in order; what is read is gone from `heads`."""
    cuts: list[tuple[str, _Head, int, int]] = []
    for name, head in heads.items():
        end = int(np.searchsorted(head.order, frontier, side="right"))
        if end > head.taken:
            cuts.append((name, head, head.taken, end))
    order = np.concatenate([head.order[low:high] for _, head, low, high in cuts])
    steps = np.concatenate([head.piece.steps[low:high] for _, head, low, high in cuts])
    number = {name: at for at, name in enumerate(names)}
    which = np.repeat([number[name] for name, *_ in cuts], [high - low for *_, low, high in cuts])
    ties = np.concatenate([head.ties[low:high] for _, head, low, high in cuts])
    # stable: equal times and steps of one metric stay as they were written
    chosen = np.lexsort((which, ties, order))
    times = np.concatenate([head.piece.times[low:high] for _, head, low, high in cuts])[chosen]
    values = np.concatenate([head.piece.values[low:high] for _, head, low, high in cuts])[chosen]
    for name, head, _, high in cuts:
        head.taken = high
        places[name] = head.piece.place(high)
        floors[name] = int(head.order[high - 1])
        if high == len(head.order):
            del heads[name]
    return pl.DataFrame(
        {
            "step": steps[chosen],
            "logged_at": pl.Series(_micros(times).view("datetime64[us]"), dtype=pl.Datetime("us")),
            "name": pl.Series(names, dtype=pl.String).gather(which[chosen]),
            "value": values,
        },
        schema=SAMPLE_SCHEMA,
    )
