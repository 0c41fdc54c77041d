"""Time without steps: gaps between the log lines of a metric, and a run that has gone silent.

Sees: (1) in what was logged, two neighbouring samples further apart in time than ten times the usual time of such a
distance and 15 minutes (S2: it stood still, and nobody may have noticed); (2) live, with `silent_since`, a run whose
newest line is older than that (S4 `hang`: nobody else will tell). The end of a file is no stall, and missing data
resolves nothing.
Silent: without a clock in the source; before 10 samples; on a pause that is due (pattern P58): three or more before it came
at a regular distance in steps, within a tenth, and it is no longer than half as long again as they were.
Fooled by: the first three long evaluations or checkpoints; a tracker that delivers late (it is silent too).
False alarms: none by construction beyond those. Units: seconds.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from detectors.noise import BLOCK
from detectors.window import Chunk, Said, State

DETECTOR = ("silence", 3)
TIMES = 10.0
LEAST_SECONDS = 900.0
MIN_SAMPLES = 10
PAUSE_SECONDS = 300.0  # a pause that may be one of a kind
PAUSES, LEARNED = 3, 8  # pauses that make a cadence, and how many are remembered
REGULAR = 0.1  # of the distance
LONGER = 1.5


def carry(state: State, step: float) -> State:
    """The pauses before the attempt: the cadence of evaluations outlives a restart. Its first line see `launched`."""
    return {"pauses": [pause for pause in state.get("pauses", ()) if pause[0] < step]}


def launched(index: int, heard: float) -> State:
    """What the state of an attempt must know: the index of its first own sample, and when (unix seconds) its parent's
    newest line was logged.

    The samples before the fork were logged long before that: a run that goes back has not stood still since.
    """
    return {"launch": index, "heard": heard}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `stall` (S2) for gaps that ended; each comes with its recovery."""
    at = chunk.offset
    seconds = chunk.seconds[max(at - 1, 0) :]
    gap = np.diff(seconds, prepend=np.nan if at == 0 else seconds[:1])[0 if at == 0 else 1 :]
    if state.get("launch", -1) in chunk.indices:
        first = state["launch"] - chunk.start
        gap[first] = seconds[len(seconds) - len(gap) + first] - state["heard"]
    with np.errstate(invalid="ignore"):
        long = gap > PAUSE_SECONDS
    said: list[Said] = []
    pauses = list(state.get("pauses", ()))
    for k in np.flatnonzero(long):
        index = chunk.start + int(k)
        usual = pace(chunk.seconds[max(0, chunk.at(index) - 4 * BLOCK) : chunk.at(index)])
        if usual is None or gap[k] <= TIMES * usual:
            continue
        due = 0.0
        if index != state.get("launch"):  # what a restart took is no pause of a kind
            here = float(chunk.step[chunk.at(index) - 1])
            due = due_seconds(pauses, here)
            pauses = [*pauses, (here, float(gap[k]))][-LEARNED:]
        if gap[k] <= max(LEAST_SECONDS, due):
            continue
        said.append(
            chunk.finding(
                DETECTOR,
                "stall",
                index - 1 if chunk.at(index) else index,
                index,
                2,
                str(index),
                direction="none",
                magnitude=float(gap[k]),
                unit="seconds",
                usual_seconds=usual,
                seconds=float(gap[k]),
            )
        )
        said.append(chunk.recovery(DETECTOR, str(index), index))
    return said, {**state, "pauses": pauses}


def due_seconds(pauses: Sequence[Sequence[float]], step: float) -> float:
    """How long a pause after `step` may last because it is due by the (step, seconds) of those before; 0 where none is."""
    if len(pauses) < PAUSES:
        return 0.0
    distances = [b[0] - a[0] for a, b in pairwise(pauses)]
    usual = float(np.median(distances))
    since = (step - pauses[-1][0]) / usual if usual > 0 else math.inf
    regular = all(abs(each - usual) <= REGULAR * usual for each in distances)
    if not regular or round(since) < 1 or abs(since - round(since)) > REGULAR:
        return 0.0
    return LONGER * float(np.median([seconds for _, seconds in pauses]))


def pace(seconds: Any) -> float | None:
    """Median seconds between the last 16 samples; None before 10 of them."""
    known = seconds[np.isfinite(seconds)][-BLOCK:]
    return float(np.median(np.diff(known))) if len(known) >= MIN_SAMPLES else None


def patience(usual: float, due: float = 0.0) -> float:
    """Seconds after which a run has gone silent: ten usual distances, 15 minutes, and the pause that is due."""
    return max(TIMES * usual, LEAST_SECONDS, due)


def silent_since(newest: float, usual: float | None, now: float, due: float = 0.0) -> float | None:
    """Seconds of silence when they are more than that; else None. Times are unix seconds."""
    silence = now - newest
    return silence if usual is not None and silence > patience(usual, due) else None
