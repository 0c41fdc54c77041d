"""Arithmetic of slow change on block medians: tests and slopes that autocorrelation does not fool. No verdicts.

Block Mann-Kendall holds its level up to AR(1) 0.95, unlike raw or pre-whitened variants, if blocks are at least five
autocorrelation times long; `white` tells whether they are.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from detectors.noise import BLOCK, block_medians
from detectors.series import Array

KEPT = 800  # blocks of 16 samples, and of 256, that are remembered: a hundred of the longest made of them
LEAST, MOST = 20, 100  # blocks in a test
FACTORS = (1, 2, 4, 8)  # how many blocks may be taken as one
ENDS = 5  # blocks at each end whose mean stands for it
CLEAR = 10.0  # changes of so many residual scales are no memory
NORMAL_95 = 1.959964
LAG = 1.5  # of the cube root of n: lags of Newey-West errors


@dataclass(frozen=True)
class Trend:
    """A window of blocks with its Mann-Kendall p-value and Theil-Sen slope; `size` is the samples in a block."""

    step: Array
    value: Array
    size: int
    p: float
    slope: float

    @property
    def change(self) -> float:
        """What the slope amounts to over the window."""
        return self.slope * float(self.step[-1] - self.step[0])

    @property
    def early(self) -> float:
        """The step behind its first quarter."""
        return float(self.step[len(self.step) // 4])


def trends(levels: Sequence[tuple[Array, int]], seen: int, least: float = 0.0) -> Iterator[Trend]:
    """The newest 20 to 100 blocks of each length that is at least five autocorrelation times, short ones first.

    `levels` gives rows (n, 2) of step and value with the samples in each; `seen` is the number of samples so far, whose
    first tenth is left out. Windows whose last third is within `least` of the first are passed over: most are flat.
    """
    for rows, unit in levels:
        known = rows[np.isfinite(rows[:, 1])]
        for factor in FACTORS:
            count = min(len(known) // factor, int(seen * 0.9 / (unit * factor)), MOST)
            if count < LEAST:
                break
            step, value = grouped(known[len(known) - count * factor :], factor)
            third = count // 3
            if abs(value[-third:].mean() - value[:third].mean()) >= least and white(value):
                yield Trend(step, value, unit * factor, mann_kendall(value), theil_sen(step, value))


def grouped(rows: Array, factor: int) -> tuple[Array, Array]:
    """Steps and medians of rows (n, 2) taken `factor` (1 or even) at a time."""
    step, value = rows[factor - 1 :: factor, 0], rows[:, 1].reshape(-1, factor)
    if factor == 1:
        return step, value[:, 0]
    ordered = np.sort(value, axis=1)  # np.median costs more than all the rest of a window
    return step, (ordered[:, factor // 2 - 1] + ordered[:, factor // 2]) / 2


@lru_cache(maxsize=MOST)
def _bend(count: int) -> Array:
    """Projection (count, count) that removes a parabola."""
    x = np.vander(np.linspace(-1, 1, count), 3)
    kept: Array = np.eye(count) - x @ np.linalg.pinv(x)
    return kept


def white(value: Array) -> bool:
    """Whether blocks are long enough: what is left after a parabola has no memory from one block to the next.

    Or is so small beside the change from end to end that no memory could feign it: a norm without noise is never white.
    """
    rest = _bend(len(value)) @ value
    power = float(rest @ rest)
    if power * CLEAR**2 <= len(value) * float(value[-ENDS:].mean() - value[:ENDS].mean()) ** 2:
        return True
    return float(rest[1:] @ rest[:-1]) / power < 2 / math.sqrt(len(value))


def longer(rows: Mapping[str, Array], step: Array, value: Array) -> dict[str, Array]:
    """Rows `fine` (16 samples) and `coarse` (256 samples) of step and median, with one chunk of samples more."""
    fine = block_medians(value)
    finite = fine[np.isfinite(fine)]
    whole = np.array([[step[-1], np.median(finite) if len(finite) else np.nan]])
    new = {"fine": np.column_stack([step[BLOCK - 1 :: BLOCK], fine]), "coarse": whole}
    return {name: np.concatenate([rows.get(name, np.empty((0, 2))), part])[-KEPT:] for name, part in new.items()}


def mann_kendall(value: Array) -> float:
    """Two-sided p-value of the Mann-Kendall test (normal approximation, continuity corrected); value (n,), n >= 8."""
    n = len(value)
    signs = np.sign(value[None, :] - value[:, None])
    s = float(np.triu(signs, 1).sum())
    z = (abs(s) - 1) / math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    return math.erfc(max(z, 0.0) / math.sqrt(2))


def theil_sen(step: Array, value: Array) -> float:
    """Median of the slopes between all pairs of points."""
    low, high = np.triu_indices(len(step), 1)
    return float(np.median((value[high] - value[low]) / (step[high] - step[low])))


def lags(count: int) -> int:
    """Lags of Newey-West errors for so many points: 1.5 n^(1/3)."""
    return int(LAG * count ** (1 / 3))


def least_squares(x: Array, y: Array) -> tuple[Array, Array]:
    """Coefficients (k,) of y (n,) on x (n, k), and their covariance with Newey-West errors, by statsmodels.

    Only of what is told: its import takes longer than judging 300,000 samples.
    """
    from statsmodels.regression.linear_model import OLS

    fit = OLS(y, x).fit(cov_type="HAC", cov_kwds={"maxlags": lags(len(y))})
    return np.asarray(fit.params), np.asarray(fit.cov_params())


def newey_west(step: Array, value: Array) -> tuple[float, float]:
    """95 % interval of the slope of value on step by OLS with Newey-West errors."""
    span = float(step[-1] - step[0])
    beta, covariance = least_squares(np.column_stack([np.ones(len(step)), (step - step[0]) / span]), value)
    half = NORMAL_95 * math.sqrt(covariance[1, 1])
    return float(beta[1] - half) / span, float(beta[1] + half) / span
