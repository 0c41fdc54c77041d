"""Arithmetic of noise: block medians, trend fits on them, robust scale, long-run variance. No verdicts.

The baseline of a sample is a straight line of log value on log step through the 32 block medians that end one gap of
two blocks before its own block (statistics.md D2 of the project's notes uses the same 512-sample window; longer ones
are worse because a power law bends). Medians of 16 make the fit deaf to spikes; the gap keeps the change out of its
own baseline.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detectors.series import Array

BLOCK = 16  # samples in a block
CHUNK = 256  # samples in a chunk; evaluation points are multiples of it in the metric's own index
WINDOW = 32  # blocks in a baseline
GAP = 2  # blocks between a baseline and the sample it judges
MIN_BLOCKS = 6  # with fewer, no baseline
MIN_GROUPS = 4  # of 64 samples; with fewer, no long-run variance
NEEDED = 112  # samples: 20 blocks of five autocorrelation times of white noise, in whole blocks
MEDIAN_EFFICIENCY = 1.5708  # variance of a median over that of a mean, Gaussian
SAME_BLOCK = 1.05  # a block's own median pulls its absolute deviations down by this much
NORMAL_MAD = 1.4826
MEAN_DEVIATION = 1.2533


@dataclass(frozen=True)
class Expectation:
    """For each sample of a chunk, NaN where not enough is known.

    `mean` is the expected value, `spread` the uncertainty of the baseline, `scale` the white noise of one sample, `wander`
    that of one sample around the baseline with its slow part, `longrun` the ratio of long-run to white variance.
    """

    mean: Array
    spread: Array
    scale: Array
    wander: Array
    longrun: Array
    intercept: Array
    slope: Array


def block_medians(values: Array) -> Array:
    """Medians of the complete blocks of 16; NaN where fewer than half of a block is finite. Shape (n // 16,)."""
    rows = values[: len(values) // BLOCK * BLOCK].reshape(-1, BLOCK)
    finite = np.isfinite(rows)
    ordered = np.sort(np.where(finite, rows, np.inf), axis=1)
    count = finite.sum(axis=1)
    pick = np.arange(len(rows))
    low, high = ordered[pick, np.maximum(count - 1, 0) // 2], ordered[pick, np.minimum(count // 2, BLOCK - 1)]
    with np.errstate(invalid="ignore"):
        middle = (low + high) / 2
    return np.where(count >= BLOCK // 2, middle, np.nan)


def windows(blocks: Array, first: int, count: int, width: int = WINDOW, gap: int = GAP) -> Array:
    """For blocks first .. first + count - 1 the `width` values that end `gap` blocks before each. Shape (count, width)."""
    padded = np.concatenate([np.full(width + gap, np.nan), blocks])
    return np.lib.stride_tricks.sliding_window_view(padded, width)[first : first + count]


def _line(x: Array, y: Array, weight: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Weighted least squares of each row; returns intercept, slope, mean x, sum of squares of x, number of points."""
    n = weight.sum(axis=1)
    safe = np.maximum(n, 1)
    mx, my = (weight * x).sum(axis=1) / safe, (weight * y).sum(axis=1) / safe
    dx = (x - mx[:, None]) * weight
    sxx = (dx * dx).sum(axis=1)
    slope = np.where(sxx > 0, (dx * y).sum(axis=1) / np.where(sxx > 0, sxx, 1), 0.0)
    return my - slope * mx, slope, mx, sxx, n


def fit_lines(x: Array, y: Array) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Trimmed straight lines, one a row (NaN = missing): intercept, slope, mean x, sxx, points, residual scale."""
    seen = np.isfinite(y) & np.isfinite(x)
    x0, y0 = np.where(seen, x, 0.0), np.where(seen, y, 0.0)
    weight = seen.astype(np.float64)
    a, b, mx, sxx, n = _line(x0, y0, weight)
    with np.errstate(invalid="ignore"):
        miss = np.where(seen, np.abs(y0 - a[:, None] - b[:, None] * x0), np.nan)
        cut = 3 * NORMAL_MAD * row_median(miss)
        weight = (seen & (np.nan_to_num(miss, nan=np.inf) <= np.maximum(cut, 1e-12)[:, None])).astype(np.float64)
    a, b, mx, sxx, n = _line(x0, y0, weight)
    rest = (y0 - a[:, None] - b[:, None] * x0) * weight
    scale = np.sqrt((rest * rest).sum(axis=1) / np.maximum(n - 2, 1))
    return a, b, mx, sxx, n, scale


def row_median(rows: Array) -> Array:
    """Median of each row without NaN; NaN for a row that has none."""
    count = np.isfinite(rows).sum(axis=1)
    ordered = np.sort(rows, axis=1)  # NaN go last
    pick = np.arange(len(rows))
    low, high = ordered[pick, np.maximum(count - 1, 0) // 2], ordered[pick, np.minimum(count // 2, rows.shape[1] - 1)]
    return np.where(count > 0, (low + high) / 2, np.nan)


def _row_mean(rows: Array) -> Array:
    """Mean of each row without NaN; NaN for a row that has none."""
    seen = np.isfinite(rows)
    count = seen.sum(axis=1)
    return np.where(count > 0, np.where(seen, rows, 0.0).sum(axis=1) / np.maximum(count, 1), np.nan)


def log_step(step: Array | float) -> Array:
    """The axis of baselines: log of the step, counted from one below the smallest if steps are not positive."""
    return np.asarray(np.log(np.maximum(step, 0.0) + 1.0))


def expect(values: Array, step: Array, offset: int, *, zeros: bool = False) -> Expectation:
    """Baseline and noise for the samples from `offset` on. `values` and `step` start at a multiple of BLOCK.

    Every number for a sample is computed from blocks that lie GAP blocks before its own, so a partial chunk gives the
    same numbers as a whole one.
    """
    size = len(values) - offset
    first, rows = offset // BLOCK, -(-size // BLOCK)
    x = log_step(step)
    medians = block_medians(values)
    deviation = np.abs(values[: len(medians) * BLOCK].reshape(-1, BLOCK) - medians[:, None])
    centres = x[BLOCK // 2 :: BLOCK][: len(medians)]
    inner = (
        MEAN_DEVIATION * deviation.mean(axis=1)
        if zeros
        else NORMAL_MAD * SAME_BLOCK * block_medians(deviation.reshape(-1))
    )
    bx, by, bs = (windows(part, first, rows) for part in (centres, medians, inner))
    a, b, mx, sxx, n, rest = fit_lines(bx, by)
    scale = _row_mean(bs) if zeros else row_median(bs)
    longrun = _longrun(bx, by, a, b, scale)
    enough = n >= MIN_BLOCKS
    each = np.repeat(np.arange(rows), BLOCK)[:size]
    a, b = np.where(enough, a, np.nan)[each], b[each]
    here = x[offset:]
    fit = rest[each] * np.sqrt(
        1 / np.maximum(n, 1)[each] + (here - mx[each]) ** 2 / np.where(sxx > 0, sxx, np.inf)[each]
    )
    slow = np.maximum(rest**2 - MEDIAN_EFFICIENCY * scale**2 / BLOCK, 0)[each]
    wander = np.sqrt(scale[each] ** 2 + slow + fit**2)
    return Expectation(a + b * here, fit, scale[each], wander, longrun[each], a, b)


def _longrun(x: Array, y: Array, a: Array, b: Array, scale: Array) -> Array:
    """Long-run over white variance from means of four block medians (64 samples) around each fitted line.

    One window knows it to 60 %, so it may come out below 1: average before it is bounded.
    """
    rest = y - a[:, None] - b[:, None] * x
    groups = rest.reshape(len(rest), -1, 4)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = groups.mean(axis=2)
        count = np.isfinite(means).sum(axis=1)
        power = np.nansum(means * means, axis=1) / np.maximum(count - 2, 1)
        ratio = 4 * BLOCK * power / (MEDIAN_EFFICIENCY * scale * scale)
    return np.where(count >= MIN_GROUPS, np.minimum(np.nan_to_num(ratio, nan=1.0, posinf=CHUNK), CHUNK), np.nan)


def enough(index: NDArray[np.int64], longrun: Array) -> NDArray[np.bool_]:
    """Whether 20 blocks of five autocorrelation times lie behind each sample index (long-run ratio ~ autocorrelation time).

    From 1,024 samples on it is always so: a ratio that asks for more comes from a bend or a collapse.
    """
    return np.asarray((index >= NEEDED) & (index >= np.minimum(20 * 5 * longrun, 4 * CHUNK)))
