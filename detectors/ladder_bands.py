"""How far a run may lie from what a ladder predicts of it, by leaving one rung out after the other. No verdicts.

Each rung is predicted by the others. How far they missed it, beyond its noise, is set in relation to how far it lies from their
sizes (the leverage of a straight line), so that a rung in the middle and one at the end say the same of a run further
out; and it is taken from the shares of the schedule nearby, since curves are known worse where they bend. A few misses know
their own spread badly: Student's t makes up for it, with as many degrees of freedom as there are rungs, less one, times the
independent pieces of a miss. A miss that is a level all along is one piece, one that wanders from bin to bin is many.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from detectors.ladder_rungs import CENTRES, Z90, Binned
from detectors.series import Array

PIECES = 6.0  # at most: what is left of the noise wanders too
SAME = 0.01  # sum of squares of log sizes below which rungs are of one size
# how much the misses at one share (columns) say of those at another (rows): half of a doubling
NEARBY: Array = np.exp(-((np.log(CENTRES[:, None] / CENTRES) / 0.35) ** 2) / 2)


@dataclass(frozen=True)
class Spread:
    """Standard deviations of a prediction, wider than a normal one's by what few rungs take: 1.645 of them are the 90 % band.

    `total` by bin; `level` and `shape` are what of it is the same all along, and what is not. `wide` of `total` are the 99 %
    band.
    """

    total: Array
    level: float
    shape: float
    wide: float


def leverage(size: float, sizes: Sequence[float]) -> float:
    """How much less a straight line over these sizes knows at another one than at a rung: variance over that of a miss."""
    known = np.asarray(sizes)
    apart = max(float(((known - known.mean()) ** 2).sum()), SAME)
    return float(1 + 1 / len(known) + (size - known.mean()) ** 2 / apart)


def spread(misses: Sequence[Array], lines: Sequence[Binned], sizes: Sequence[float], size: float) -> Spread:
    """Of a run of another size. `misses` are those of each rung by the others, NaN in empty bins."""
    from scipy.special import stdtrit

    square, hidden, count = np.zeros((3, len(CENTRES)))
    level, shape, pieces = [], [], []
    for k, (each, line) in enumerate(zip(misses, lines, strict=True)):
        seen = np.isfinite(each)
        miss, white = each[seen], line.noise**2 / np.maximum(line.count[seen], 1)
        far = leverage(sizes[k], [*sizes[:k], *sizes[k + 1 :]])
        square += NEARBY[:, seen] @ (miss**2 - white) / far
        hidden += NEARBY[:, seen] @ white / far
        count += NEARBY[:, seen].sum(axis=1)
        level.append(float(miss.mean()) ** 2 / far)
        shape.append(max(float(miss.var() - white.mean()), 0.0) / far)
        pieces.append(_pieces(miss, float(white.mean())))
    degrees = (len(misses) - 1) * float(np.clip(np.mean(pieces), 1, PIECES))
    ninety, nearly_all = (float(stdtrit(degrees, share)) for share in (0.95, 0.995))
    widen = ninety / Z90 * leverage(size, sizes) ** 0.5
    # what the noise can hide is not known to be zero
    total = widen * np.sqrt(np.maximum(square, hidden * np.sqrt(2 / count)) / count)
    alike, rest = (widen * float(np.mean(each)) ** 0.5 for each in (level, shape))
    return Spread(total, alike, rest, nearly_all / ninety * Z90)


def _pieces(miss: Array, white: float) -> float:
    """How many independent values a miss is worth, by how much alike neighbouring bins are."""
    if len(miss) < 2:
        return 1.0
    moves = max(float((np.diff(miss) ** 2).mean()) / 2 - white, 0.0)
    alike = float(np.clip(1 - moves / max(float((miss**2).mean()) - white, 1e-12), 0, 1))
    return len(miss) * (1 - alike) / (1 + alike)
