"""A newest complete checkpoint that grows older than it should.

Sees: the age of the newest checkpoint (the step less the metric, or the metric itself where its name says `age`) above twice the
oldest that the three intervals before became: S3, since what a failure costs grows with every step (pattern P76; BLOOM
lost 7.3 hours two iterations before a save).
Silent: until three advances were seen, and where the metric is logged only when a checkpoint is saved.
Fooled by: a longer interval that was set on purpose: two late checkpoints in a row are the new interval.
False alarms: none by construction. Units: steps, or those of the age.
"""

import math
import re
from typing import Any

from detectors.window import Chunk, Said, State

DETECTOR = ("checkpoints", 1)
LEARN = 3  # intervals
TIMES = 2.0
IS_AGE = re.compile(r"(^|[^a-z])age([^a-z]|$)")


def carry(state: State, step: float) -> State:
    """The intervals of the parent."""
    del step
    return {key: state[key] for key in ("intervals",) if key in state}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `stall` (S3) and recoveries."""
    now: dict[str, Any] = {"last": None, "intervals": [], "late": False, "episode": None, **state}
    is_age = IS_AGE.search(chunk.name.lower()) is not None
    said: list[Said] = []
    for index, step, value in zip(
        chunk.indices, chunk.step[chunk.offset :].tolist(), chunk.value[chunk.offset :].tolist(), strict=True
    ):
        if not math.isfinite(value):
            continue
        last, now["last"] = now["last"], value
        if last is None:
            continue
        if value < last if is_age else value > last:
            said += _advances(chunk, index, last if is_age else step - last, now)
        age = value if is_age else step - value
        usual = max(now["intervals"], default=0.0)
        if now["episode"] is None and len(now["intervals"]) == LEARN and age > TIMES * usual > 0:
            episode = now["episode"] = str(index)
            said.append(
                chunk.finding(
                    DETECTOR,
                    "stall",
                    index,
                    index,
                    3,
                    episode,
                    direction="up",
                    magnitude=age,
                    unit="steps" if not is_age else "",
                    onset_step=step - age + usual if not is_age else step,
                    before=usual,
                    peak=age,
                )
            )
    return said, now


def _advances(chunk: Chunk, index: int, interval: float, now: dict[str, Any]) -> list[Said]:
    """A new checkpoint, `interval` after the one before. A late one teaches only when it is the second in a row."""
    late = now["episode"] is not None
    if interval > 0 and (not late or now["late"]):
        now["intervals"] = [*now["intervals"], interval][-LEARN:]
    now["late"] = late
    said = [chunk.recovery(DETECTOR, now["episode"], index)] if late else []
    now["episode"] = None
    return said
