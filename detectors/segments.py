"""Offline segmentation of one series: for reports and questions after the fact, never for gating.

Sees: changes of level and of slope. Segments are levels or straight lines with autocorrelated, possibly heavy-tailed noise; the
number of changes and the noise are chosen together by description length, so that neither scale nor autocorrelation nor a
jumpy but stationary metric buys a change. Silent: below ten finite values; below `RESOLUTION` of the series' own spread.
Fooled by: a slow cycle, which it cuts at its turns; a change of variance alone, which it does not look for; more than
`MOST` changes. False changes: none in 15,400 samples each of white noise and AR(1) of 0.5, 0.8 and 0.9 (series of 200 to
5,000); 5 in 160 series of 50. Units: positions in the array. Reasons: docs/decisions/change-points.md.
Source: least-squares segmentation by dynamic programming (Auger and Lawrence 1989), description length of piecewise
autoregressions (Davis, Lee and Rodriguez-Yam 2006, doi 10.1198/016214505000000745).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from detectors.noise import NORMAL_MAD
from detectors.series import Array

MIN_SIZE = 5  # samples in a segment: a line has two parameters, and its noise needs a few more
MOST = 20  # changes: more are no summary
LONGEST = 1000  # samples that are searched one by one; a longer series is searched in blocks
RESOLUTION = 0.05  # standard deviations of the series, about 1 % of a plot: noise is never taken for smaller
CORRELATIONS = (0.0, 0.3, 0.6, 0.8, 0.9, 0.95)  # of neighbours around the lines
TAILS = (4.0, 2.0, 1.0)  # degrees of freedom of Student's t that the noise may have, beside Gauss
ROUNDS = 8  # of reweighting for the scale of each, from the scale of the one before
SHAPES = (1, 2)  # parameters of a segment: a level or a line, the same for all segments of a series
PLACE = 2.0  # parameters that a change counts for beside its level or line: log n nats (Davis, Lee and Rodriguez-Yam)
OUTLIER = 4.0  # robust scales of a sample's difference from the median of five: it is no segment
ROUNDING = 1e-12


@dataclass(frozen=True)
class Candidate:
    """A segmentation of n samples: its changes, the correlation it was fitted with and what its lines leave over."""

    changes: list[int]
    shape: int
    correlation: float
    rest: Array


def change_points(values: ArrayLike) -> list[int]:
    """First indices of new segments, increasing; NaN are passed over. One default for any scale and length."""
    series = np.asarray(values, dtype=np.float64)
    seen = np.flatnonzero(np.isfinite(series))
    if len(seen) < 2 * MIN_SIZE:
        return []
    y = without_outliers(series[seen])
    if float(np.ptp(y)) <= ROUNDING * float(np.abs(y).max()):
        return []
    y = standard(y)
    size = -(-len(y) // LONGEST)
    if size == 1:
        return [int(seen[k]) for k in shortest(candidates(y))]
    starts = np.arange(0, len(y), size)
    blocks = np.add.reduceat(y, starts) / np.diff(starts, append=len(y))
    return [int(seen[k]) for k in _refined(y, shortest(candidates(standard(blocks))), size)]


def standard(y: Array) -> Array:
    """`y` with mean 0 and variance 1."""
    return np.asarray((y - y.mean()) / y.std())


def without_outliers(y: Array) -> Array:
    """One or two samples far from the median of five give way to it: a path of least squares would fence them in."""
    scale = NORMAL_MAD * float(np.median(np.abs(np.diff(y))))
    median = np.median(np.lib.stride_tricks.sliding_window_view(np.pad(y, 2, mode="reflect"), 5), axis=1)
    return np.where((np.abs(y - median) > OUTLIER * scale) & (scale > 0), median, y)


def candidates(y: Array) -> list[Candidate]:
    """The best segmentations into 1, 2, ... lines for each correlation. `y` has unit variance, shape (n,)."""
    most = min(MOST, len(y) // MIN_SIZE - 1)
    return [
        Candidate(changes, shape, correlation, _rest(y, changes, shape, correlation))
        for correlation in CORRELATIONS
        for shape, squares in zip(SHAPES, _squares(y, correlation), strict=True)
        for changes in _best_splits(squares, most)
    ]


def shortest(found: list[Candidate]) -> list[int]:
    """The changes of the candidate that describes the series in the fewest bits."""
    return found[int(np.argmin(_lengths(found)))].changes


def _whitened(y: Array, correlation: float) -> tuple[Array, Array]:
    """Rows 1, t, y as they stand at the first sample of a segment, and less what the sample before foretells."""
    n = len(y)
    rows = np.stack([np.ones(n), np.linspace(-1, 1, n), y])
    later = rows.copy()
    later[:, 1:] -= correlation * rows[:, :-1]
    return math.sqrt(1 - correlation**2) * rows, later


def _squares(y: Array, correlation: float) -> tuple[Array, Array]:
    """Sums of squares around the best level and line of the samples [start, end), by end and start; shapes (n + 1, n)."""
    first, later = _whitened(y, correlation)

    def total(a: int, b: int) -> Array:
        running = np.concatenate([[0.0], np.cumsum(later[a] * later[b])])
        return np.asarray(running[:, None] + (first[a] * first[b] - running[1:])[None, :])

    n = len(y)
    short = np.arange(n + 1)[:, None] - np.arange(n)[None, :] < MIN_SIZE
    whole, ones, level = total(2, 2), total(0, 0), total(0, 2)
    steps, both, slope = total(1, 1), total(0, 1), total(1, 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        flat = level**2 / ones
        line = (steps * level**2 - 2 * both * level * slope + ones * slope**2) / (ones * steps - both**2)
    return np.where(short, np.inf, np.maximum(whole - flat, 0.0)), np.where(
        short, np.inf, np.maximum(whole - line, 0.0)
    )


def _best_splits(squares: Array, most: int) -> list[list[int]]:
    """For 0 .. `most` changes the ones with the least sum of squares (exact, by dynamic programming)."""
    best, back = squares[:, 0], []
    splits: list[list[int]] = [[]]
    for count in range(1, most + 1):
        reached = best[None, :-1] + squares
        back.append(np.argmin(reached, axis=1))
        best = reached[np.arange(len(best)), back[-1]]
        end, changes = len(best) - 1, []
        for k in range(count, 0, -1):
            end = int(back[k - 1][end])
            changes.append(end)
        splits.append(changes[::-1])
    return splits


def _rest(y: Array, changes: list[int], shape: int, correlation: float) -> Array:
    """What the levels or lines and the sample before leave unexplained, shape (n,)."""
    first, later = _whitened(y, correlation)
    out = np.empty(len(y))
    for start, end in zip([0, *changes], [*changes, len(y)], strict=True):
        rows = np.column_stack([first[:, start], later[:, start + 1 : end]])
        fit = np.linalg.lstsq(rows[:shape].T, rows[2], rcond=None)[0]
        out[start:end] = rows[2] - fit @ rows[:shape]
    return out


def _lengths(found: list[Candidate]) -> Array:
    """Description lengths: -2 log likelihood and log n for each parameter, more where parameters are many for n."""
    n = len(found[0].rest)
    count = np.array([len(each.changes) for each in found])
    correlation = np.array([each.correlation for each in found])
    shape = np.array([each.shape for each in found])
    parameters = (PLACE + shape) * count + shape + 1 + (correlation > 0)  # with the scale of the noise
    room = n - parameters - 2
    paid = np.where(room > 0, parameters * math.log(n) * n / np.maximum(room, 1e-9), math.inf)
    return np.asarray(
        _misfits(np.stack([each.rest for each in found])) - (count + 1) * np.log(1 - correlation**2) + paid
    )


def _misfits(rest: Array) -> Array:
    """-2 log likelihood of each row under the best of `TAILS`, with a scale of at least `RESOLUTION`."""
    square, n = rest**2, rest.shape[1]
    scale = np.maximum(square.mean(axis=1), RESOLUTION**2)
    least = n * np.log(2 * math.pi * scale) + square.sum(axis=1) / scale
    for tail in TAILS:
        for _ in range(ROUNDS):
            weight = (tail + 1) / (tail + square / scale[:, None])
            scale = np.maximum((weight * square).mean(axis=1), RESOLUTION**2)
        constant = math.lgamma((tail + 1) / 2) - math.lgamma(tail / 2) - 0.5 * math.log(tail * math.pi)
        spent = (tail + 1) * np.log1p(square / (tail * scale[:, None])).sum(axis=1)
        least = np.minimum(least, spent - 2 * n * constant + n * np.log(scale))
    return np.asarray(least)


def _refined(y: Array, blocks: list[int], size: int) -> list[int]:
    """Changes between blocks, each moved to the best split into two lines of the samples of the two blocks about it."""
    out = []
    for block in blocks:
        start = max(0, (block - MIN_SIZE) * size)
        near = y[start : (block + MIN_SIZE) * size]
        out.append(start + _best_splits(_squares(near, 0.0)[1], 1)[1][0])
    return sorted(set(out))
