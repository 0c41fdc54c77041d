"""Arithmetic of a kink: a continuous line of two pieces, and the HAC F statistic of the change of its slope. No verdicts.

Critical values come from tests/bench/sup_f.py. Andrews' table (1993, 2003: 12.2 at 1 % for one parameter and 15 %
trimming) is for breaks of a level; a kink in a line has its own law, and so few blocks have heavier tails.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from detectors.series import Array
from detectors.trends import NORMAL_95, lags, least_squares

TRIM = 0.15
CLEAR = 10.0  # a kink of so many residual scales is no memory


@dataclass(frozen=True)
class Kink:
    """A continuous line of two pieces: `at` is a step, slopes are per step, `f` the HAC F statistic of their difference."""

    at: float
    before: float
    after: float
    f: float
    span: float  # steps behind the kink
    better: bool  # than a parabola
    white: bool  # what is left has no memory, or is tiny beside what the kink amounts to

    @property
    def change(self) -> float:
        return self.after - self.before


def best_kink(step: Array, value: Array, at: Array) -> Kink:
    """Of the kinks at the steps `at` the one with the largest F; step and value (n,)."""
    n, span = len(step), float(step[-1] - step[0])
    t = (step - step[0]) / span
    solve, off, hinge, free = _design(t.tobytes(), ((at - step[0]) / span).tobytes())
    rest = off @ value
    power = (free * free).sum(axis=1)
    size = free @ rest / power
    left = rest - size[:, None] * free
    score, width = free * left, lags(n)
    variance = (score * score).sum(axis=1)
    for lag in range(1, width + 1):
        variance += 2 * (1 - lag / (width + 1)) * (score[:, lag:] * score[:, :-lag]).sum(axis=1)
    squares = (left * left).sum(axis=1)
    # HAC errors of so few points are often too small by chance: never less than those of white noise
    f = (size * power) ** 2 / np.maximum(np.maximum(variance, squares / n * power) * n / (n - 3), 1e-300)
    k = int(np.argmax(f))
    bend = off @ (t * t)
    parabola = float(rest @ rest) - float(bend @ rest) ** 2 / float(bend @ bend)
    memory = float(left[k, 1:] @ left[k, :-1])
    clear = squares[k] * CLEAR**2 <= n * float(size[k] * (step[-1] - at[k]) / span) ** 2
    before = float(solve[1] @ (value - size[k] * hinge[k])) / span
    return Kink(
        at=float(at[k]),
        before=before,
        after=before + float(size[k]) / span,
        f=float(f[k]),
        span=float(step[-1] - at[k]),
        better=bool(squares[k] < parabola),
        white=bool(clear or memory < 2 / math.sqrt(n) * squares[k]),
    )


@lru_cache(maxsize=8)
def _design(t: bytes, at: bytes) -> tuple[Array, Array, Array, Array]:
    """Of a straight line over points t (n,): its solver, what it leaves; of hinges at points (k,): they, and what is left."""
    points = np.frombuffer(t)
    line = np.column_stack([np.ones(len(points)), points])
    solve = np.linalg.pinv(line)
    off = np.eye(len(points)) - line @ solve
    hinge = np.maximum(points - np.frombuffer(at)[:, None], 0.0)
    return solve, off, hinge, hinge @ off


def middle(step: Array) -> Array:
    """The steps at which a free kink is looked for."""
    cut = int(TRIM * len(step))
    return step[cut:-cut]


def onset(step: Array, value: Array, slope: float) -> float:
    """Where a trend begins: its best kink, if the piece before is flat or goes the other way; else the first step."""
    kink = best_kink(step, value, step[3:-3])
    return kink.at if abs(kink.before) < abs(slope) / 2 or kink.before * slope < 0 else float(step[0])


def intervals(step: Array, value: Array, at: float) -> tuple[list[float], list[float]]:
    """95 % intervals of both slopes of the line with its kink at a step, by OLS with Newey-West errors."""
    span = float(step[-1] - step[0])
    x = np.column_stack([np.ones(len(step)), step - step[0], np.maximum(step - at, 0.0)]) / [1.0, span, span]
    beta, covariance = least_squares(x, value)
    out = []
    for weight in (np.array([0.0, 1.0, 0.0]), np.array([0.0, 1.0, 1.0])):
        centre, half = float(weight @ beta), NORMAL_95 * math.sqrt(weight @ covariance @ weight)
        out.append([(centre - half) / span, (centre + half) / span])
    return out[0], out[1]
