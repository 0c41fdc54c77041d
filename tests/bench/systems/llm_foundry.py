"""llm-foundry's KillLossSpike: a loss at twice its running mean five times in a row, or half a window above a cap.

Source: mosaicml/llm-foundry, llmfoundry/callbacks/kill_loss_spike_callback.py (commit 56891fcb), with its defaults:

- The window holds the last 5 % of the planned steps, at least 100 losses. Nothing is said before it is full.
- An outlier is a loss of at least 2 times the mean of the window before it. `patience` 4 outliers in a row are borne;
  the fifth is a loss spike. One loss that is no outlier begins the count anew. Outliers enter the window too.
- High loss: from the batch of twice the window on, at least half of the window lies above the cap, which is the
  highest loss of the first window but at most 10.

The plan is not in a log, so the log's own number of losses is taken for it. The callback keeps no state in the
checkpoint: a new attempt begins with an empty window, and with the cap of 10, since its first batches are not the
run's. NaN is no outlier, and a window with a NaN in it has no outliers, as in the original.

Reads one loss of the whole run. Latch: one alarm for each of the two conditions until it is false. Severity 3: the
callback is made to end the run (by default it only writes it down).
"""

import numpy as np
from cases import PAGE, Alarm, Case

from systems.samples import alarm, begins, in_order, main_line, samples, trailing

LEAST_WINDOW, SHARE, FACTOR, PATIENCE, CAP = 100, 0.05, 2.0, 4, 10.0


def llm_foundry(case: Case) -> list[Alarm]:
    """Loss spikes and high losses of every attempt."""
    line = main_line(samples(case), "loss")
    if line is None:
        return []
    planned = len(np.unique(line.step))
    window = max(LEAST_WINDOW, round(SHARE * planned))
    out: list[Alarm] = []
    for attempt in np.unique(line.attempt):
        mine = np.flatnonzero(line.attempt == attempt)
        loss = line.value[mine]
        started = int((np.unique(line.step) < line.step[mine[0]]).sum())
        cap = min(float(loss[:window].max()), CAP) if started == 0 and len(loss) >= window else CAP
        spike = _runs(_outliers(loss, window)) > PATIENCE
        high = _high(loss, window, cap, started) & ~spike
        out += [alarm(line, mine[at], PAGE, "spike") for at in begins(spike)]
        out += [alarm(line, mine[at], PAGE, "level") for at in begins(high)]
    return in_order(out)


def _outliers(loss: np.ndarray, window: int) -> np.ndarray:
    mean, _ = trailing(loss, window)
    with np.errstate(invalid="ignore"):
        return loss >= FACTOR * mean


def _runs(hot: np.ndarray) -> np.ndarray:
    """How many times in a row the condition has been true up to each sample."""
    index = np.arange(1, len(hot) + 1)
    return index - np.maximum.accumulate(np.where(hot, 0, index))


def _high(loss: np.ndarray, window: int, cap: float, started: int) -> np.ndarray:
    """Is at least half of the window before each loss above the cap, two windows into the run?"""
    above = np.concatenate([[0], np.cumsum(loss > cap)])
    count = np.zeros(len(loss))
    count[window:] = above[window : len(loss)] - above[: max(len(loss) - window, 0)]
    batch = started + np.arange(1, len(loss) + 1)
    return (count >= window / 2) & (batch >= 2 * window) & (np.arange(len(loss)) >= window)
