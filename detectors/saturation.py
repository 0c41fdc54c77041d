"""Gradient clipping that has become the rule: what is clipped every step no longer says how large the gradient is.

Sees: the share of clipped steps (a flag or a fraction) above one half in two whole chunks of 256 samples, after a chunk below
a quarter: S2. So from the start and for 2,048 samples: S1, since a tight clip may be meant (pattern P10).
Silent: before 512 samples; on values above 1.
Fooled by: a clip that was tightened on purpose (declare the event).
False alarms: none on flags below a quarter. Units: fraction of the steps.
"""

from typing import Any

import numpy as np

from detectors.noise import CHUNK
from detectors.window import Chunk, Said, State

DETECTOR = ("saturation", 1)
HIGH, LOW = 0.5, 0.25
TWICE = 2
ALWAYS = 8  # chunks


def carry(state: State, step: float) -> State:
    """Whether clipping ever was rare."""
    del step
    return {key: state[key] for key in ("was_low",) if key in state}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `level` (S1, S2) and recoveries, when a chunk is complete."""
    now: dict[str, Any] = {"was_low": False, "high": 0, "episode": None, **state}
    said: list[Said] = []
    for at, index in chunk.wholes():
        values = chunk.value[at]
        values = values[np.isfinite(values)]
        if len(values) <= CHUNK // 2 or values.max() > 1 or values.min() < 0:
            continue
        said += _judge(chunk, index, float(values.mean()), now)
    return said, now


def _judge(chunk: Chunk, index: int, share: float, now: dict[str, Any]) -> list[Said]:
    now["high"] = now["high"] + 1 if share > HIGH else 0
    if share < LOW:
        now.update(was_low=True, usual=share)
        if now["episode"] is not None:
            episode, now["episode"] = now["episode"], None
            return [chunk.recovery(DETECTOR, episode, index)]
        return []
    if now["episode"] is not None or now["high"] < (TWICE if now["was_low"] else ALWAYS):
        return []
    episode = now["episode"] = str(index)
    usual = {"before": now["usual"]} if "usual" in now else {}
    return [
        chunk.finding(
            DETECTOR,
            "level",
            index + 1 - TWICE * CHUNK,
            index,
            2 if now["was_low"] else 1,
            episode,
            direction="up",
            magnitude=share - now.get("usual", 0.0),
            unit="fraction",
            after=share,
            **usual,
        )
    ]
