"""W&B's run metric automation "z-score threshold met", with its defaults: window 30, threshold 3, either direction.

Sources: wandb.automations.MetricZScoreFilter (docs.wandb.ai, models/ref/python/automations/metriczscorefilter: window
30, threshold 3.0, change_dir ANY) and docs.wandb.ai/models/automations/automation-events: the window of logged values
gives mean and standard deviation; each run has its own window (the page also speaks once of a window of runs; that
reading would need other runs); an automation fires at most once per run in 24 hours. Not published, and chosen here:
the newest value is compared with the 30 values before it (population sigma), fires above 3 (not at it), and needs a
full window; a spread of zero fires nothing.

One automation for each watched metric (see samples.py). The window runs on over restarts: W&B knows one run. The 24
hours are those of the case's clock; they are the latch. Severity 2. A z-score of a metric with a trend fires; that is
what it does.
"""

import numpy as np
from cases import INVESTIGATE, Alarm, Case

from systems.samples import alarm, in_order, lines, samples, trailing

WINDOW, THRESHOLD, AGAIN = 30, 3.0, 86_400.0


def wandb_zscore(case: Case) -> list[Alarm]:
    """Values more than three sigmas from their 30 predecessors, once a day and metric."""
    out: list[Alarm] = []
    for line in lines(samples(case)):
        mean, sigma = trailing(line.value, WINDOW)
        with np.errstate(invalid="ignore"):
            hot = np.flatnonzero((sigma > 0) & (np.abs(line.value - mean) > THRESHOLD * sigma))
        quiet_until = -np.inf
        for at in hot:
            if line.seconds[at] >= quiet_until:
                out.append(alarm(line, at, INVESTIGATE, "spike"))
                quiet_until = line.seconds[at] + AGAIN
    return in_order(out)
