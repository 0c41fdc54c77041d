"""The spread of the loss: noise that widens or narrows while the mean goes on as before.

Sees: the mean absolute deviation of the logarithm from its own block medians (16 samples), in whole chunks of 256. Two
chunks in a row that are together wider than the median of the 4 to 16 before them by 15 %, and by three and a half of
the scatters that those have among themselves: S2. A bad shuffle moves the spread by 1.3 to 1.7 and nothing else
(pattern P35). Narrower ones are annotated (S0): a larger batch does that.
Silent: before four chunks behind the first one; on changes under 15 %.
Fooled by: another batch size, or a logger that begins to average (declare the event).
False alarms: see docs/detectors.md. Units: log ratio of the spread.
"""

import math
from typing import Any

import numpy as np

from detectors.noise import BLOCK, CHUNK, block_medians
from detectors.series import Array
from detectors.window import Chunk, Said, State

DETECTOR = ("spread", 1)
EFFECT = math.log(1.15)
SCATTERS = 3.5
LEAST, MOST = 4, 16  # chunks in a reference
BACK = 2
CLIP = 6.0  # median deviations: a spike is no spread
FLOOR = math.sqrt((math.pi / 2 - 1) / CHUNK)  # relative error of a chunk's mean deviation, Gaussian


def carry(state: State, step: float) -> State:
    """The spreads of the parent: a restart is no cold start."""
    del step
    return {key: state[key] for key in ("known",) if key in state}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `variance` (S2 wider, S0 narrower) and recoveries; evaluated when a chunk is complete."""
    now: dict[str, Any] = {"known": [], "last": None, **state}
    said: list[Said] = []
    for begin in range(0, len(chunk.indices) // CHUNK * CHUNK, CHUNK):
        first = chunk.offset + begin
        if chunk.start + begin:  # the first chunk of a run is all bend
            said += _judge(chunk, chunk.start + begin + CHUNK - 1, deviations(chunk.log[first : first + CHUNK]), now)
    return said, now


def deviations(log: Array) -> Array:
    """Absolute deviations from the medians of their blocks, spikes cut off; NaN stays. Shape as `log`, whole blocks."""
    away: Array = np.abs(log.reshape(-1, BLOCK) - block_medians(log)[:, None]).reshape(-1)
    return np.minimum(away, CLIP * np.nanmedian(away)) if np.isfinite(away).any() else away


def _judge(chunk: Chunk, index: int, away: Array, now: dict[str, Any]) -> list[Said]:
    width = float(np.nanmean(away)) if np.isfinite(away).sum() > CHUNK // 2 else 0.0
    if width <= 0:
        return []
    here = math.log(width)
    if now.get("episode") is not None:
        return _continues(chunk, index, here, now)
    previous, now["last"] = now["last"], here
    if previous is None:
        return []
    pair, known = np.array([previous, here]), np.array(now["known"])
    if len(known) >= LEAST:
        usual = float(np.median(known))
        # The spread of few numbers is known badly: the share on top is that of Student's t, roughly.
        scatter = max(float(np.std(known)), FLOOR) * (1 + 2 / len(known))
        gate = max(EFFECT, SCATTERS * scatter * math.sqrt(1 / len(pair) + 1 / len(known)))
        far = pair - usual
        if abs(far.mean()) > gate and (far * far.mean() > 0).all() and np.abs(far).min() > gate / 2:
            return _opens(chunk, index, usual, float(far.mean()), gate, now)
    now["known"] = [*now["known"], previous][-MOST:]
    return []


def _opens(chunk: Chunk, index: int, usual: float, far: float, gate: float, now: dict[str, Any]) -> list[Said]:
    at = chunk.at(index) + 1
    span = chunk.log[max(at - 3 * CHUNK, 0) : at]
    onset = index + 1 - len(span) + _split(deviations(span), far > 0) * BLOCK
    now.update(episode=str(index), since=index, usual=usual, gate=gate, clean=0, fresh=[])
    return [
        chunk.finding(
            DETECTOR,
            "variance",
            onset,
            index,
            2 if far > 0 else 0,
            now["episode"],
            direction="up" if far > 0 else "down",
            magnitude=far,
            unit="log",
            before=math.exp(usual),
            after=math.exp(usual + far),
            ratio=math.exp(far),
        )
    ]


def _split(away: Array, up: bool) -> int:
    """The block at which the mean deviation changes: the best single split by least squares, in the direction found."""
    blocks = np.nanmean(away.reshape(-1, BLOCK), axis=1)
    best, at = 0.0, len(blocks) // 3
    for k in range(2, len(blocks) - 2):
        jump = float(blocks[k:].mean() - blocks[:k].mean())
        gain = jump * jump * k * (len(blocks) - k)
        if (jump > 0) == up and gain > best:
            best, at = gain, k
    return at


def _continues(chunk: Chunk, index: int, here: float, now: dict[str, Any]) -> list[Said]:
    """Back after two chunks within half the gate; after 16 chunks the new spread is the reference."""
    now["fresh"] = [*now["fresh"], here]
    now["clean"] = now["clean"] + 1 if abs(here - now["usual"]) < now["gate"] / 2 else 0
    if now["clean"] >= BACK:
        said = [chunk.recovery(DETECTOR, now["episode"], index)]
        now.update(episode=None, last=None)
        return said
    if len(now["fresh"]) >= MOST:
        now.update(episode=None, last=None, known=now["fresh"])
    return []
