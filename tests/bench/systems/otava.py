"""Apache Otava 0.8.0 (formerly Hunter), as its command line runs it: defaults, and only change points that are new.

Source: the PyPI package apache-otava; the rule is its own (otava/analysis.py, docs/MATH.md; Fleming et al. 2023, doi
10.1145/3578244.3583719): divisive change points in sliding windows of 50 points, weak ones at p < 0.01, then merged
by a t-test until all have p < 0.001 (window_len 50, max_pvalue 0.001, min_magnitude 0, direction of no account).

Its metadata pins numpy 2.2.0, scipy < 1.17 and clients of databases that the mathematics does not use, so it is
installed without its dependencies (tests/bench/otava.txt) and runs on ours.

It is offline, so it is used as people do: every 100 new points it runs again on the last 200 (from 50 on). Metrics
that are logged at the same steps are one Otava series, since it needs one value a point and metric and would fill the
others forward; values that are not finite are given to it as missing. An alarm is a metric of a change point group
that lies 50 points or more (its window) from every change of the metric told before (that is the latch). Every
watched metric (see samples.py); the window runs on over restarts. Severity 2.
"""

from bisect import insort

import numpy as np
from cases import INVESTIGATE, Alarm, Case
from otava.series import AnalysisOptions, ChangePointGroup, Metric, Series

from systems.pelt import is_new
from systems.samples import Line, alarm, in_order, lines, samples

WINDOW, EVERY, LEAST, REACH = 200, 100, 50, 50


def otava(case: Case) -> list[Alarm]:
    """Metrics of new change point groups."""
    together: dict[bytes, list[Line]] = {}
    for line in lines(samples(case)):
        if np.isfinite(line.value).any():
            together.setdefault(line.attempt.tobytes() + line.step.tobytes(), []).append(line)
    return in_order([each for group in together.values() for each in _new_changes(group)])


def groups(values: dict[str, np.ndarray]) -> list[ChangePointGroup]:
    """Otava's change point groups of metrics of one length; `index` is the first point after the change."""
    size = len(next(iter(values.values())))
    data = {name: [float(x) if np.isfinite(x) else None for x in value] for name, value in values.items()}
    series = Series("run", None, list(range(size)), {name: Metric() for name in data}, data, {})
    return series.analyze(AnalysisOptions()).change_points_by_time


def _new_changes(together: list[Line]) -> list[Alarm]:
    by_name = {line.name: line for line in together}
    told: dict[str, list[int]] = {name: [] for name in by_name}
    size = len(together[0].step)
    out: list[Alarm] = []
    for end in range(LEAST, size + 1, EVERY):
        start = max(0, end - WINDOW)
        window = {name: line.value[start:end] for name, line in by_name.items()}
        usable = {name: value for name, value in window.items() if np.isfinite(value).any()}
        for group in groups(usable) if usable else []:
            change = start + group.index
            for each in group.changes:
                line = by_name[each.metric]
                if is_new(change, told[line.name], REACH):
                    insort(told[line.name], change)
                    out.append(alarm(line, end - 1, INVESTIGATE, "level", line.step[change]))
    return out
