"""Curves that the rungs of a ladder share, with a trend in the size: drops, entropies, norms, evaluations. No verdicts.

y(u, N) = f(u) + g(u) (log N - mean): f a broken line of ten pieces, g one of three, both by least squares that outliers
count little in. A rung that ended early gives what it has: behind its end the others tell the shape.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from detectors.ladder_rungs import CENTRES, START, Binned
from detectors.series import Array

KNOTS: Array = START + (1 - START) * np.linspace(0, 1, 11) ** 1.5  # denser where curves bend
TRENDS: Array = np.array([START, 0.35, 1.0])
ROUNDS, HUBER = 8, 1.5


@dataclass(frozen=True)
class Curve:
    """Heights of f at KNOTS and of g at TRENDS, and the size in the middle."""

    shared: Array
    by_size: Array
    middle: float

    def at(self, size: float) -> Array:
        """At the centres of the bins."""
        return _hats(KNOTS) @ self.shared + (size - self.middle) * (_hats(TRENDS) @ self.by_size)


def fit(sizes: Sequence[float], lines: Sequence[Binned]) -> Curve:
    """Of at least one rung; with one size only there is no trend."""
    middle = float(np.mean(sizes))
    trends = _hats(TRENDS) if float(np.ptp(sizes)) > 0.01 else np.zeros((len(CENTRES), len(TRENDS)))
    rows = [np.hstack([_hats(KNOTS), (size - middle) * trends]) for size in sizes]
    seen = np.concatenate([np.isfinite(line.mean) for line in lines])
    design = np.vstack(rows)[seen]
    target = np.concatenate([line.mean for line in lines])[seen]
    base = np.concatenate([line.weight for line in lines])[seen]
    base = base / max(float(np.median(base)), 1e-12)
    # a little stiffness, so that a piece nobody has seen goes on as its neighbours do
    stiff = np.vstack([_stiffness(len(KNOTS), 0, len(TRENDS)), _stiffness(len(TRENDS), len(KNOTS), 0)])
    weight = np.ones(len(target))
    found = np.zeros(design.shape[1])
    for _ in range(ROUNDS):
        w = base * np.sqrt(weight)
        found = np.linalg.lstsq(
            np.vstack([design * w[:, None], stiff]), np.concatenate([target * w, np.zeros(len(stiff))])
        )[0]
        miss = np.abs(target - design @ found) * base
        scale = 1.4826 * float(np.median(miss)) or 1.0
        weight = np.minimum(1, HUBER * scale / np.maximum(miss, 1e-12))
    return Curve(found[: len(KNOTS)], found[len(KNOTS) :], middle)


def _hats(knots: Array) -> Array:
    """(bins, knots): how much each knot counts at each centre."""
    return np.stack([np.interp(CENTRES, knots, row) for row in np.eye(len(knots))], axis=1)


def _stiffness(count: int, before: int, behind: int) -> Array:
    second = np.diff(np.eye(count), n=2, axis=0) * 0.05
    return np.hstack([np.zeros((len(second), before)), second, np.zeros((len(second), behind))])
