"""A learning rate of zero.

Sees: three samples of exactly zero at the beginning (nothing is learned; a first zero or two belong to a warm-up), and a
rate that drops to zero from more than 2 % of its peak. S2 at the third sample. A schedule that decays smoothly to zero has
ended as planned, and is silent.
Silent: on rates that are small but not zero; on their plan (that needs a plan).
Fooled by: loggers that round a small rate to 0.0.
False alarms: none on the recorded runs. Units: the rate.
"""

from typing import Any

import numpy as np

from detectors.chunk import Chunk, Said, State

DETECTOR = ("schedule", 1)
ZEROS = 3
ABRUPT = 0.02


def carry(state: State, step: float) -> State:
    """The peak of the schedule."""
    del step
    return {key: state[key] for key in ("peak", "last") if key in state}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `plateau` (the rate is zero, S2), and recoveries."""
    new = chunk.value[chunk.offset :]
    now: dict[str, Any] = {"zeros": 0, "peak": 0.0, "last": None, **state}
    if not (new == 0).any() and now.get("episode") is None:
        finite = new[np.isfinite(new)]
        if len(finite):
            now.update(zeros=0, peak=max(now["peak"], float(finite.max())), last=float(finite[-1]))
        return [], now
    said: list[Said] = []
    for index, value in zip(chunk.indices, new, strict=True):
        if not np.isfinite(value):
            continue
        if value != 0:
            now.update(zeros=0, peak=max(now["peak"], float(value)), last=float(value))
            if now.get("episode") is not None:
                said.append(chunk.recovery(DETECTOR, now["episode"], index))
                now["episode"] = None
            continue
        now["zeros"] += 1
        ended = now["last"] is not None and now["last"] <= ABRUPT * now["peak"]
        if now["zeros"] == ZEROS and not ended and now.get("episode") is None:
            now["episode"] = str(index)
            said.append(
                chunk.finding(
                    DETECTOR,
                    "plateau",
                    index - ZEROS + 1,
                    index,
                    2,
                    str(index),
                    direction="none",
                    magnitude=0.0,
                    unit="rate",
                    before=now["last"] if now["last"] is not None else 0.0,
                    after=0.0,
                    from_start=now["last"] is None,
                )
            )
    return said, now
