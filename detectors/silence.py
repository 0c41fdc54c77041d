"""Time without steps: gaps between the log lines of a metric, and a run that has gone silent.

Sees: (1) in what was logged, two neighbouring samples further apart in time than ten times the usual time of such a
distance and 15 minutes (S2: it stood still, and nobody may have noticed); (2) live, with `silent_since`, a run whose
newest line is older than that (S4 `hang`: nobody else will tell). The end of a file is no stall, and missing data
resolves nothing.
Silent: without a clock in the source; before 10 samples.
Fooled by: evaluations and checkpoints longer than 15 minutes; a tracker that delivers late (it is silent too).
False alarms: none by construction beyond those. Units: seconds.
"""

from typing import Any

import numpy as np

from detectors.noise import BLOCK
from detectors.window import Chunk, Said, State

DETECTOR = ("silence", 2)
TIMES = 10.0
LEAST_SECONDS = 900.0
MIN_SAMPLES = 10


def carry(state: State, step: float) -> State:
    """Nothing to keep: the first line of a launch is held against the last one of its parent, see `launched`."""
    del state, step
    return {}


def launched(index: int, heard: float) -> State:
    """The state of an attempt whose first own sample has this index; its parent's newest line was at `heard` (unix seconds).

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
        long = gap > LEAST_SECONDS
    said: list[Said] = []
    for k in np.flatnonzero(long):
        index = chunk.start + int(k)
        usual = pace(chunk.seconds[max(0, chunk.at(index) - 4 * BLOCK) : chunk.at(index)])
        if usual is None or gap[k] <= TIMES * usual:
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
    return said, state


def pace(seconds: Any) -> float | None:
    """Median seconds between the last 16 samples; None before 10 of them."""
    known = seconds[np.isfinite(seconds)][-BLOCK:]
    return float(np.median(np.diff(known))) if len(known) >= MIN_SAMPLES else None


def silent_since(newest: float, usual: float | None, now: float) -> float | None:
    """Seconds of silence when it is longer than ten usual distances and 15 minutes; else None. Times are unix seconds."""
    silence = now - newest
    return silence if usual is not None and silence > max(TIMES * usual, LEAST_SECONDS) else None
