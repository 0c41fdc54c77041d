"""What became of a metric after something: recovered, coming back, plateaued or diverging. Arithmetic on samples.

Expected is what the metric did before it moved: the 5-95 % range of its last samples around their robust line, held flat
from the onset on. How far the metric is out is measured on medians of up to 25 samples, as one sample of a loss says
little. A sample that is no number is as far out as can be. Nothing later than the samples given is known.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RECOVERED, COMING_BACK, PLATEAUED, DIVERGING = "recovered", "coming back", "plateaued", "diverging"
LEAST = 20  # samples before the onset without which nothing can be expected
PAST = 200  # of them at the most
WINDOW = 25  # samples of a median
CALMER = 0.25  # of the range of all: what has come to rest
NEARER, FARTHER = 0.5, 1.25  # of the distance at first: what is on its way back, and what moves further away


@dataclass(frozen=True)
class Expected:
    """The line of a metric before `onset` and the range around it; the value at `onset` is held from there on."""

    slope: float
    at: float
    centre: float  # at step `at`
    low: float  # offsets from the line
    high: float
    first: float  # the step of the first sample that it rests on, and how many there are
    samples: int

    def line(self, step: Floats | float) -> Floats:
        """Its centre at steps; callers pass none behind the onset but the onset itself."""
        return np.asarray(self.centre + self.slope * (np.asarray(step, float) - self.at), float)


@dataclass(frozen=True)
class Course:
    """How a metric stands `samples` after something: `now` is a median, `low` and `high` what was expected of it.

    `back_step` is the step from which on its medians have stayed within that; None while they have not.
    """

    state: str
    now: float
    low: float
    high: float
    samples: int
    step: float
    back_step: float | None = None


def expected(step: Floats, value: Floats, onset: float, samples: int = PAST) -> Expected | None:
    """What the last finite samples before `onset` lead one to expect; None with fewer than LEAST of them.

    Of samples that have come to rest (from the steep start of a run) only the newer half counts.
    """
    known = np.flatnonzero(np.isfinite(value) & (step < onset))[-samples:]
    if len(known) < LEAST:
        return None
    newer = known[len(known) // 2 :]
    if len(newer) >= LEAST and _range(value[newer]) < CALMER * _range(value[known]):
        return expected(step, value, onset, len(newer))
    at, seen = step[known], value[known]
    third = len(known) // 3
    left = float(np.median(at[:third])), float(np.median(seen[:third]))
    right = float(np.median(at[-third:])), float(np.median(seen[-third:]))
    slope = (right[1] - left[1]) / (right[0] - left[0]) if right[0] > left[0] else 0.0
    rest = seen - (right[1] + slope * (at - right[0]))
    if abs(right[1] - left[1]) < float(np.percentile(rest, 95) - np.percentile(rest, 5)) / 2:
        slope, rest = 0.0, seen - float(np.median(seen))
        right = right[0], float(np.median(seen))
    low, high = (float(edge) for edge in np.percentile(rest, [5, 95]))
    return Expected(slope, right[0], right[1], low, high, float(at[0]), len(known))


def _range(seen: Floats) -> float:
    low, high = np.percentile(seen, [5, 95])
    return float(high - low)


def course(before: tuple[Floats, Floats], onset: float, struck: Floats, after: tuple[Floats, Floats]) -> Course | None:
    """How a metric stands at the last of the samples `after` (step, value), which are not empty.

    `before` (step, value) is the metric up to the onset and `struck` its values while it was out, from which the distance
    at first is taken. None where too little is known of what it was before.
    """
    usual = expected(*before, onset)
    if usual is None or not len(after[1]) or not len(struck):
        return None
    centre = float(usual.line(onset))
    low, high = centre + usual.low, centre + usual.high
    medians = np.array([_median(after[1][max(0, k - WINDOW + 1) : k + 1]) for k in range(len(after[1]))])
    first, now = _outside(_median(struck[-WINDOW:]), low, high), _outside(float(medians[-1]), low, high)
    inside = np.array([_outside(float(m), low, high) == 0 for m in medians])
    away = np.flatnonzero(~inside)
    begins = int(away[-1]) + 1 if len(away) else 0
    back = float(after[0][begins]) if begins < len(inside) else None
    state = RECOVERED if back is not None else _state(first, now)
    return Course(state, float(medians[-1]), low, high, len(after[1]), float(after[0][-1]), back)


def _state(first: float, now: float) -> str:
    if not math.isfinite(now) or now > FARTHER * first:
        return DIVERGING
    return COMING_BACK if now < NEARER * first else PLATEAUED


def _median(values: Floats) -> float:
    """The median; infinite when half of the values are no numbers."""
    return float(np.median(np.where(np.isfinite(values), values, np.inf)))


def _outside(value: float, low: float, high: float) -> float:
    return max(low - value, value - high, 0.0)
