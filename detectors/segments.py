"""Offline segmentation of one series: for reports and questions after the fact, never for gating.

Sees: changes of level, by ruptures' exact search (KernelCPD, linear kernel) with a penalty of 3 log n times the long-run
variance, so that neither scale nor autocorrelation buys a change. Silent: below eight finite values.
Fooled by: a trend, which it cuts into steps. Units: positions in the array.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from detectors.noise import NORMAL_MAD

LEAST = 8  # finite values
MIN_SIZE = 5
PENALTY = 3.0
SHARE = 0.3  # of the whole variance that a change must be worth: a smooth series has tiny differences


def change_points(values: ArrayLike) -> list[int]:
    """First indices of new segments, increasing; NaN are passed over. One default for any scale and length."""
    import ruptures

    series = np.asarray(values, dtype=np.float64)
    seen = np.flatnonzero(np.isfinite(series))
    if len(seen) < LEAST:
        return []
    y = series[seen]
    steps = np.abs(np.diff(y))
    scale = NORMAL_MAD * float(np.median(steps)) / math.sqrt(2) or float(steps.mean())
    if scale == 0:
        return []
    z = (y - np.median(y)) / scale
    # neighbours that move together: the ratio of long-run to white variance of AR(1) from the differences' own correlation
    inner = np.diff(z)
    phi = float(np.clip(1 + 2 * (inner[1:] @ inner[:-1]) / max(float(inner @ inner), 1e-12), 0.0, 0.9))
    variance = max((1 + phi) / (1 - phi), SHARE * float(z.var()))
    penalty = PENALTY * math.log(len(z)) * variance
    found = ruptures.KernelCPD(kernel="linear", min_size=MIN_SIZE).fit(z.reshape(-1, 1)).predict(pen=penalty)
    return [int(seen[k]) for k in found[:-1]]
