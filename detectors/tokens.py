"""Tokens seen so far: they only grow, and by the same amount a step.

Sees: (1) a count that grew for 20 samples and then falls within an attempt: S3, to where it began S2 (a count by epoch does
that once an epoch, and is then known); the loader's position or the counter was lost (patterns P70, P72). (2) tokens a
step that were constant to 1e-6 for 20 samples and are not for three in a row: S0, another batch or context length.
Silent: on counts that go up and down in their first 20 samples (tokens of a batch), on the first sample after a restart.
Fooled by: values kept as 32-bit floats: the tolerance then grows with their rounding.
False alarms: none by construction. Units: fraction.
"""

import math
from typing import Any

import numpy as np

from detectors.window import Chunk, Said, State

DETECTOR = ("tokens", 1)
SEEN = 20  # samples
SAME = 1e-6
ROW = 3  # samples
ROUNDING = 2.0**-22  # of a difference of two 32-bit floats, in units of the value


def carry(state: State, step: float) -> State:
    """The rate of the parent; where the count stands it is told anew."""
    del step
    return {key: state[key] for key in ("grown", "rate", "held", "first", "by_epoch") if key in state}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `invariant` (S0, S2, S3) and recoveries. `launch` in the state is the index of a restart's first sample."""
    now: dict[str, Any] = {"last": None, "grown": 0, "rate": math.nan, "held": 0, "off": 0, "episode": None, **state}
    said: list[Said] = []
    for index, step, value in zip(
        chunk.indices, chunk.step[chunk.offset :].tolist(), chunk.value[chunk.offset :].tolist(), strict=True
    ):
        if not math.isfinite(value):
            continue
        last, now["last"] = now["last"], (step, value)
        now.setdefault("first", value)
        if last is None or index == now.get("launch"):
            continue
        now["grown"] += now["grown"] < SEEN and value >= last[1]
        if value < last[1]:
            said += _falls(chunk, index, last[1], value, now)
        elif now["grown"] >= SEEN:
            said += _rate(chunk, index, (value - last[1]) / (step - last[0]), (step - last[0], value), now)
    return said, now


def _falls(chunk: Chunk, index: int, before: float, value: float, now: dict[str, Any]) -> list[Said]:
    if now["grown"] < SEEN:
        now["grown"] = -math.inf  # no count of all tokens
        return []
    began_anew = value <= now["first"]
    known, now["by_epoch"] = now.get("by_epoch", False), began_anew
    if known and began_anew:
        return []
    found = chunk.finding(
        DETECTOR,
        "invariant",
        index,
        index,
        2 if began_anew else 3,
        f"falls:{index}",
        direction="down",
        magnitude=value / before - 1,
        unit="fraction",
        before=before,
        after=value,
        invariant="tokens only grow",
    )
    return [found, chunk.recovery(DETECTOR, f"falls:{index}", index)]


def _rate(chunk: Chunk, index: int, rate: float, scale: tuple[float, float], now: dict[str, Any]) -> list[Said]:
    """`scale` is the distance in steps and the value, which tell how exact the rate can be."""
    steps, value = scale
    usual = now["rate"]
    rounding = ROUNDING * value / steps if float(np.float32(value)) == value else 0.0
    if abs(rate - usual) <= SAME * usual + rounding:
        now.update(held=now["held"] + 1, off=0)
        return []
    now["off"] += 1
    if now["held"] >= SEEN and now["off"] < ROW:
        return []
    told = now["held"] >= SEEN
    now.update(rate=rate, held=0, off=0)
    if not told or not usual > 0:
        return []
    found = chunk.finding(
        DETECTOR,
        "invariant",
        max(index - ROW + 1, chunk.first),
        index,
        0,
        f"rate:{index}",
        direction="up" if rate > usual else "down",
        magnitude=rate / usual - 1,
        unit="fraction",
        before=usual,
        after=rate,
        invariant="tokens a step",
    )
    return [found, chunk.recovery(DETECTOR, f"rate:{index}", index)]
