"""A learning rate of zero, one that jumps, and one that is another after a restart.

Sees: (1) three samples of exactly zero at the beginning (nothing is learned; a first zero or two belong to a
warm-up), and a rate that drops to zero from more than 2 % of its peak. S2 at the third sample. A schedule that decays
smoothly to zero has ended as planned, and is silent. (2) after a restart, against the attempt before it at three
equal steps: another rate is S2, more than twice the rate S4: a schedule that was reset or re-anchored (16 times the
rate gave NaN in 2 to 5 steps; pattern P67). (3) a rate that moved by less than 5 % a sample for 16 samples, and is
then another by 30 % for two: S2 upwards, S1 downwards (a step of a staircase).
Silent: on rates that are small but not zero; on their plan (that needs a plan); on steps of the last printed digit.
Fooled by: loggers that round a small rate to 0.0.
False alarms: none on the recorded runs. Units: the rate.
"""

import math
from typing import Any

import numpy as np

from detectors.finding import Answer, Finding
from detectors.printed import last_digit
from detectors.series import Array
from detectors.window import Chunk, Said, State

DETECTOR = ("schedule", 3)
ZEROS = 3
ABRUPT = 0.02
COMMON = 3  # steps that both attempts logged
SAME = 0.01
SMOOTH, SMOOTH_FOR = 0.05, 16  # log change a sample of a schedule, and for how many samples
JUMP = math.log(1.3)
PRINTED, UNITS = 64, 2.5  # samples that tell how a rate is printed; units of its last digit that are a change


def carry(state: State, step: float) -> State:
    """The peak of the schedule."""
    del step
    return {key: state[key] for key in ("peak", "last") if key in state}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `plateau` (the rate is zero, S2), and recoveries."""
    new = chunk.value[chunk.offset :]
    jumps = _jumps(chunk)
    now: dict[str, Any] = {"zeros": 0, "peak": 0.0, "last": None, **state}
    if not (new == 0).any() and now.get("episode") is None:
        finite = new[np.isfinite(new)]
        if len(finite):
            now.update(zeros=0, peak=max(now["peak"], float(finite.max())), last=float(finite[-1]))
        return jumps, now
    said = jumps
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


def _jumps(chunk: Chunk) -> list[Said]:
    """Findings `schedule` where a rate that had moved by less than 5 % a sample is suddenly another, and stays so."""
    moves = np.diff(chunk.log, prepend=np.nan)
    padded = np.concatenate([np.full(SMOOTH_FOR + 1, np.nan), np.abs(moves)])
    before = np.lib.stride_tricks.sliding_window_view(padded, SMOOTH_FOR)[: len(moves)]  # ends two samples before
    with np.errstate(invalid="ignore"):
        smooth = (before < SMOOTH).all(axis=1)
        first = np.concatenate([[np.nan], moves[:-1]])
        stays = (np.abs(first) > JUMP) & (np.abs(first + moves) > JUMP)
    said: list[Said] = []
    for at in np.flatnonzero(smooth & stays):
        printed = last_digit(chunk.value[max(0, at - PRINTED) : at + 1], float(chunk.value[at - 2]))
        if at < chunk.offset or abs(float(chunk.value[at] - chunk.value[at - 2])) < UNITS * printed:
            continue
        index, ratio = chunk.first + int(at), math.exp(float(first[at]))
        said.append(
            chunk.finding(
                DETECTOR,
                "schedule",
                index - 1,
                index,
                2 if ratio > 1 else 1,
                f"jump:{index}",
                direction="up" if ratio > 1 else "down",
                magnitude=math.log(ratio),
                unit="log",
                before=float(chunk.value[at - 2]),
                after=float(chunk.value[at]),
                ratio=ratio,
            )
        )
    return said


def restarted(old_step: Array, old: Array, step: Array, value: Array, metric: str) -> list[Answer]:
    """A finding `schedule` when the rate differs by more than 1 % at the first three steps that both attempts logged."""
    _, mine, theirs = np.intersect1d(step, old_step, return_indices=True)
    mine, theirs = mine[:COMMON], theirs[:COMMON]
    if len(mine) < COMMON or not (old[theirs] > 0).all() or not (value[mine] > 0).all():
        return []
    ratio = float(np.median(value[mine] / old[theirs]))
    printed = last_digit(np.concatenate([old[-PRINTED:], value[:COMMON]]), float(old[theirs[-1]]))
    if abs(ratio - 1) <= SAME or float(np.median(np.abs(value[mine] - old[theirs]))) < UNITS * printed:
        return []
    last = int(mine[-1])
    return [
        Finding(
            *DETECTOR,
            "schedule",
            metric,
            "learning_rate",
            "up" if ratio > 1 else "down",
            float(step[mine[0]]),
            float(step[last]),
            math.log(ratio),
            "log",
            4 if ratio > 2 else 2,
            f"restart:{step[mine[0]]:.15g}",
            {
                "before": float(old[theirs[-1]]),
                "after": float(value[last]),
                "ratio": ratio,
                "samples": last + 1,
                "cadence": float(np.median(np.diff(step[mine]))),
            },
        )
    ]
