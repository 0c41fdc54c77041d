"""Plain PELT: least squares, penalty 3 log n on standardised values, exact.

Source: Killick, Fearnhead and Eckley 2012 (doi 10.1080/01621459.2012.737745) as ruptures has it.
`KernelCPD(kernel="linear")` with a penalty has the same cost as `Pelt(model="l2", jump=1)` and the same optimum, in
C; a test holds them equal. Segments have at least 2 samples; values are standardised by mean and sigma of the window,
and n is its length.

It is offline, so it is used as people do: every 25 new samples of a metric it runs again on the last 500 (from 50
on). An alarm is a change point that lies 25 samples or more from every one told before (that is the latch); its onset
is the change point, its step the sample at which it was found. Values that are not finite are left out before the
window is taken. Every watched metric (see samples.py); the window runs on over restarts. Severity 2.
"""

from bisect import bisect_left, insort

import numpy as np
import ruptures
from cases import INVESTIGATE, Alarm, Case

from systems.samples import Line, alarm, in_order, lines, samples

WINDOW, EVERY, LEAST = 500, 25, 50
MIN_SIZE, PENALTY = 2, 3.0


def pelt(case: Case) -> list[Alarm]:
    """New change points of every watched metric."""
    return in_order([each for line in lines(samples(case)) for each in _new_changes(line)])


def change_points(value: np.ndarray) -> list[int]:
    """The first index of every segment but the first. `value` is finite."""
    sigma = value.std()
    if sigma == 0 or len(value) < 2 * MIN_SIZE:
        return []
    scaled = ((value - value.mean()) / sigma).reshape(-1, 1)
    search = ruptures.KernelCPD(kernel="linear", min_size=MIN_SIZE, jump=1).fit(scaled)
    return [int(each) for each in search.predict(pen=PENALTY * np.log(len(value)))[:-1]]


def _new_changes(line: Line) -> list[Alarm]:
    finite = np.flatnonzero(np.isfinite(line.value))
    value = line.value[finite]
    told: list[int] = []
    out: list[Alarm] = []
    for end in range(LEAST, len(value) + 1, EVERY):
        start = max(0, end - WINDOW)
        with np.errstate(over="ignore"):
            found = change_points(value[start:end])
        for change in (start + each for each in found):
            if is_new(change, told, EVERY):
                insort(told, change)
                out.append(alarm(line, finite[end - 1], INVESTIGATE, "level", line.step[finite[change]]))
    return out


def is_new(change: int, told: list[int], reach: int) -> bool:
    """Is every change point told before (sorted) at least `reach` samples away?"""
    place = bisect_left(told, change)
    return all(abs(change - near) >= reach for near in told[max(0, place - 1) : place + 1])
