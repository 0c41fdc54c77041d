"""The textbook's control chart: mean plus or minus three standard deviations of the last 100 samples.

Source: the Shewhart chart's three-sigma limits (NIST/SEMATECH e-Handbook of Statistical Methods, 6.3), here with
limits from the metric's own trailing window, as dashboards offer it: 100 samples before the one judged, sample sigma
(n - 1). Nothing is said before 100 samples are there, while a value that is not finite is among them, or when they do
not vary.

Every watched metric (see samples.py); the window runs on over restarts. Latch: one alarm while consecutive samples
are out. Severity 2.
"""

import numpy as np
from cases import INVESTIGATE, Alarm, Case

from systems.samples import alarm, begins, in_order, lines, samples, trailing

WINDOW, SIGMAS = 100, 3.0


def three_sigma(case: Case) -> list[Alarm]:
    """Samples outside the limits, on every watched metric."""
    out: list[Alarm] = []
    for line in lines(samples(case)):
        mean, sigma = trailing(line.value, WINDOW, ddof=1)
        with np.errstate(invalid="ignore"):
            hot = (sigma > 0) & (np.abs(line.value - mean) > SIGMAS * sigma)
        out += [alarm(line, at, INVESTIGATE, "spike") for at in begins(hot)]
    return in_order(out)
