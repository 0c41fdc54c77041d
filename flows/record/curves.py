"""Samples as they are drawn: thinned without losing a spike, with what a healthy stretch looked like before."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flows.incidents.course import expected
from flows.messages.document import IncidentDoc
from flows.records import Attempt

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Predicted:
    """What smaller runs predict of a metric: nine of ten points lie between `low` and `high`, at each of `step`.

    From step `known_until` on a rung is missing that ended early: it is extrapolated, and wider. `blocks` is how many
    samples a point is the mean of.
    """

    step: Floats
    low: Floats
    centre: Floats
    high: Floats
    known_until: float = math.inf
    blocks: int = 1


@dataclass(frozen=True)
class Curve:
    """All samples of one metric, every attempt; `step`, `value`, `attempt` are equally long, in source order.

    `ladder` is what was expected of it, a part for each version on record.
    """

    name: str
    step: Floats
    value: Floats
    attempt: Ints
    unit: str = ""
    ladder: tuple[Predicted, ...] = ()


@dataclass(frozen=True)
class Band:
    """Corners of a band: `low` and `high` at each of `step`."""

    step: Floats
    low: Floats
    high: Floats
    samples: int


def within(parts: Sequence[Predicted], span: tuple[float, float]) -> list[Predicted]:
    """What of each lies between two steps, cut at them."""
    out = []
    for part in parts:
        first, last = max(span[0], float(part.step[0])), min(span[1], float(part.step[-1]))
        if first < last:
            at = np.unique([first, *part.step[(part.step > first) & (part.step < last)], last])
            low, centre, high = (np.interp(at, part.step, each) for each in (part.low, part.centre, part.high))
            out.append(replace(part, step=at, low=low, centre=centre, high=high))
    return out


def known_until(curves: Sequence[Curve]) -> float:
    """The step behind which a rung of a ladder is missing; infinite where none is."""
    return min((part.known_until for curve in curves for part in curve.ladder), default=math.inf)


def standing(curve: Curve, attempts: Sequence[Attempt]) -> NDArray[np.bool_]:
    """Which samples are part of the run as it stands: before the first step of any later attempt."""
    until: Mapping[int, float] = {a.attempt: math.inf if a.valid_until is None else a.valid_until for a in attempts}
    ends = np.array([until.get(int(number), math.inf) for number in curve.attempt], dtype=np.float64)
    kept: NDArray[np.bool_] = curve.step < ends
    return kept


def window(incident: IncidentDoc, curve: Curve, last_step: float | None = None) -> tuple[float, float]:
    """First and last step to show: enough before the onset to see what is normal, and all of the trouble.

    At least 120 samples before the onset where there are as many; the trouble takes at most two thirds of the width.
    """
    onset, detected = incident["onset_step"], incident["detected_step"]
    newest = float(np.max(curve.step)) if len(curve.step) else detected
    newest = newest if last_step is None else max(newest, last_step)
    resolved = incident.get("resolved_step")
    steps = np.unique(curve.step)
    before, after = steps[steps < onset], steps[steps > (detected if resolved is None else resolved)]
    end = detected if resolved is None else max(resolved, detected)
    trouble = max(end - onset, 0.0)
    cadence = float(np.median(np.diff(steps))) if len(steps) > 1 else 1.0
    room = max(120 * cadence, trouble / 2)
    # an open incident is shown up to now, but not so far that its start becomes a line's width
    after_end = max(2 * room, 6 * trouble, 400 * cadence) if resolved is None else room / 2
    last = min(newest, end + after_end)
    first = onset - max(room, (last - onset) / 2)
    first = max(first, float(before[0])) if len(before) else min(onset, first if len(steps) == 0 else float(steps[0]))
    if not len(after) and last <= first:
        last = first + cadence
    return first, max(last, first + cadence)


def onset_of(incident: IncidentDoc, name: str) -> float:
    """Where this metric began to move; the incident's own onset where no finding is about it."""
    found = [f["onset_step"] for f in incident.get("findings", []) if f["metric"] == name]
    return min(found, default=incident["onset_step"])


def thin(step: Floats, value: Floats, first: float, last: float, buckets: int) -> Ints:
    """Indices of the samples to draw: of each of `buckets` equal parts of the axis the first, lowest, highest and last.

    Only finite values; indices come in order of step. With fewer samples than 4 * buckets nothing is left out.
    """
    inside = np.flatnonzero(np.isfinite(value) & (step >= first) & (step <= last))
    if len(inside) <= 4 * buckets:
        return inside.astype(np.int64)
    place = np.minimum(((step[inside] - first) / max(last - first, 1e-300) * buckets).astype(np.int64), buckets - 1)
    kept: list[Ints] = []
    for keys in ((inside, place), (value[inside], place), (-value[inside], place), (-inside, place)):
        order = np.lexsort(keys)  # by bucket, then by the key: the first of each bucket is the wanted one
        starts = np.flatnonzero(np.diff(place[order], prepend=-1))
        kept.append(inside[order[starts]])
    return np.unique(np.concatenate(kept)).astype(np.int64)


def band_before(step: Floats, value: Floats, onset: float, last: float) -> Band | None:
    """The range that was expected of a metric before `onset` (see flows/incidents/course.py), held flat after it.

    None where too little is known to say what was normal.
    """
    usual = expected(step, value, onset)
    if usual is None:
        return None
    corners = np.array([usual.first, onset, max(last, onset)])
    centre = usual.line(np.minimum(corners, onset))
    return Band(corners, centre + usual.low, centre + usual.high, usual.samples)
