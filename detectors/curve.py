"""A learning rate that leaves its own curve: jumps too small for `schedule`, and where one phase ends and another begins.

Sees: schedules are smooth to their last digit, so one bend or step stands out against the 16 samples before, whatever
the family (warm-up, constant, linear, cosine, inverse root): the straight line from the last two samples misses by eight
times what it missed there. Two lines that do not meet, three samples in a row, by 1 % to 30 %, 2.5 units of the last
printed digit, and more than the rate moves in four samples: a jump. S2 upwards once the rate has decayed by 2 %, else
S1; further ones the same way are a staircase, S0. Two lines that meet: another phase, S0; S1 when a decayed rate
rises again.
Silent: on jumps beyond 30 % (`schedule` tells them); on a start of decay that is too soft to bend within a sample.
Fooled by: a rate that is set by hand; two schedules logged under one name.
False alarms: none by construction on a schedule that is a formula. Units: log ratio.
"""

import math
from typing import Any

import numpy as np

from detectors.printed import last_digit
from detectors.series import Array
from detectors.window import Chunk, Said, State

DETECTOR = ("curve", 1)
BEFORE = 16  # samples
SLOPE = 8  # samples before that give the slope
STAYS = 2  # samples behind the first odd one
TIMES = 8.0  # of the largest miss before
EXACT = 5e-6  # of the rate, what is no rounding of a 32-bit float
LEAST, MOST = 0.01, math.log(1.3)  # of the rate; log ratio
MOVES = 4.0  # of the rate's own moves a sample
PRINTED, UNITS = 64, 2.5  # samples that tell how a rate is printed; units of its last digit
DECAYED = 0.98  # of the peak


def carry(state: State, step: float) -> State:
    """The peak, and whether the schedule is a staircase."""
    del step
    return {key: state[key] for key in ("peak", "up", "down") if key in state}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `schedule` (S0, S1, S2) and `trend` (S0) with recoveries at once: what is another phase never comes back."""
    now: dict[str, Any] = {"peak": 0.0, "up": 0, "down": 0, **state}
    said: list[Said] = []
    done = max(0, chunk.offset - STAYS)  # the peak of a state lags as far as what is said does
    odd = _odd(chunk.step, chunk.value)
    for at in odd[odd + STAYS >= chunk.offset].tolist():
        now["peak"] = max(now["peak"], _top(chunk.value[done:at]))
        done = at
        said += _look(chunk, at, now)
    now["peak"] = max(now["peak"], _top(chunk.value[done : max(done, len(chunk.value) - STAYS)]))
    return said, now


def _top(value: Array) -> float:
    known = value[np.isfinite(value)]
    return float(known.max()) if len(known) else 0.0


def _odd(step: Array, value: Array) -> Any:
    """Places that miss the line of the two before, with BEFORE such lines and STAYS samples at hand."""
    size = len(value)
    if size < BEFORE + 2 + STAYS + 1:
        return np.empty(0, dtype=np.int64)
    miss = np.full(size, np.nan)
    with np.errstate(invalid="ignore"):
        pace = np.diff(value) / np.diff(step)
        miss[2:] = np.abs(pace[1:] - pace[:-1]) * np.diff(step)[1:]
    windows = np.lib.stride_tricks.sliding_window_view(miss, BEFORE)
    worst = np.full(size, np.nan)
    worst[BEFORE:] = windows[:-1].max(axis=1)
    with np.errstate(invalid="ignore"):
        odd = (miss > EXACT * np.abs(value)) & (miss > TIMES * worst) & (value > 0)
    odd[-STAYS:] = False
    return np.flatnonzero(odd)


def _look(chunk: Chunk, at: int, now: dict[str, Any]) -> list[Said]:
    step, value = (
        chunk.step[at - SLOPE - 1 : at + STAYS + 1] - chunk.step[at - 1],
        chunk.value[at - SLOPE - 1 : at + STAYS + 1],
    )
    if not (np.isfinite(value).all() and (value > 0).all()):
        return []
    last, here, then = SLOPE, slice(SLOPE + 1, None), SLOPE + 1
    slope = (value[last] - value[0]) / (step[last] - step[0])
    after = (value[-1] - value[then]) / (step[-1] - step[then])
    rests = value[here] - value[last] - slope * step[here]
    before, beyond = rests[0], value[then] - value[last] - after * step[then]
    jump = min(abs(before), abs(beyond)) if before * beyond > 0 else 0.0
    stays = (rests * np.sign(before) >= 0.5 * abs(before)).all()
    ratio = float(value[then] / value[last])
    own = MOVES * max(abs(slope), abs(after)) * step[then]
    unit = UNITS * last_digit(chunk.value[max(0, at - PRINTED) : at + STAYS + 1], float(value[last]))
    if jump < max(LEAST * value[last], own, unit):
        return _phase(chunk, at, float(slope), float(after), unit, now)
    if not stays or abs(math.log(ratio)) > MOST:
        return []
    way = "up" if before > 0 else "down"
    now[way] += 1
    decayed = value[last] < DECAYED * now["peak"]
    severity = 0 if now[way] > 1 else 2 if way == "up" and decayed else 1
    return _said(chunk, at, "schedule", severity, way, f"jump:{chunk.first + at}", ratio=ratio)


def _phase(chunk: Chunk, at: int, slope: float, after: float, unit: float, now: dict[str, Any]) -> list[Said]:
    """A bend that amounts to 1 % of the rate within 16 samples, and to more than rounding makes of it."""
    value = float(chunk.value[at])
    pace = chunk.cadence(chunk.first + at)
    bend = abs(after - slope) * pace
    if bend * BEFORE < LEAST * value or bend * STAYS < unit:
        return []
    again = slope <= 0 < after and value < DECAYED * now["peak"]
    per_10k = {"slope_before_per_10k": slope / value * 1e4, "slope_per_10k": after / value * 1e4}
    way, episode = "up" if after > slope else "down", f"phase:{chunk.first + at}"
    return _said(chunk, at, "schedule" if again else "trend", int(again), way, episode, **per_10k)


def _said(chunk: Chunk, at: int, kind: str, severity: int, way: str, episode: str, **evidence: float) -> list[Said]:
    index = chunk.first + at
    before, value = float(chunk.value[at - 1]), float(chunk.value[at])
    found = chunk.finding(
        DETECTOR,
        kind,
        index,
        index + STAYS,
        severity,
        episode,
        direction=way,
        magnitude=math.log(value / before),
        unit="log",
        before=before,
        after=value,
        **evidence,
    )
    return [found, chunk.recovery(DETECTOR, episode, index + STAYS)]
