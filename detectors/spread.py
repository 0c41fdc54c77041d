"""The spread of the loss: noise that widens or narrows while the mean goes on as before.

Sees: the mean absolute deviation of the logarithm from its own block medians (16 samples), in units of 64 samples. The
last 256 samples, wider than the line (log spread on log step) through the 10 to 64 units before them by 15 % and by
five standard errors, or the last 512 or 1,024 by four and a half, each half of them by half as much: S2. A bad
shuffle moves the spread by 1.3 to 1.7 and nothing else (pattern P35). The line is needed: the relative noise of a young
run grows as its loss falls. Narrower ones are annotated (S0): a larger batch does that.
Silent: before 10 units behind the first four; on changes under 15 %.
Fooled by: another batch size, or a logger that begins to average (declare the event).
False alarms: see docs/detectors.md. Units: log ratio of the spread.
"""

import math
from typing import Any

import numpy as np

from detectors.noise import BLOCK, CHUNK, block_medians, log_step
from detectors.series import Array
from detectors.window import Chunk, Said, State

DETECTOR = ("spread", 2)
UNIT = 64  # samples
EFFECT = math.log(1.15)
RECENT = (
    (4, 5.0),
    (8, 4.5),
    (16, 4.5),
)  # units that are held against those before them, and by how many standard errors
LEAST, MOST = 10, 64  # units in a reference
BEND = 4  # units at the start of a run that are all bend
BACK = 8  # units within half the gate that end it
SETTLED = 64  # units after which the new spread is the reference
CLIP = 6.0  # median deviations: a spike is no spread
FLOOR = math.sqrt((math.pi / 2 - 1) / UNIT)  # relative error of a unit's mean deviation, Gaussian


def carry(state: State, step: float) -> State:
    """The spreads of the parent before `step`: a restart is no cold start."""
    if "known" not in state:
        return {}
    return {"known": state["known"][state["known"][:, 0] < log_step(step)]}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `variance` (S2 wider, S0 narrower) and recoveries; evaluated when a unit is complete."""
    now: dict[str, Any] = {"known": np.empty((0, 2)), **state}
    said: list[Said] = []
    for begin in range(0, len(chunk.indices) // UNIT * UNIT, UNIT):
        if chunk.start + begin < BEND * UNIT:
            continue
        part = slice(chunk.offset + begin, chunk.offset + begin + UNIT)
        away = deviations(chunk.log[part])
        width = float(np.nanmean(away)) if np.isfinite(away).sum() > UNIT // 2 else 0.0
        if width > 0:
            row = [[float(log_step(chunk.step[part.stop - 1])), math.log(width)]]
            now["known"] = np.concatenate([now["known"], row])[-MOST - RECENT[-1][0] :]
            said += _judge(chunk, chunk.start + begin + UNIT - 1, now)
    return said, now


def deviations(log: Array) -> Array:
    """Absolute deviations from the medians of their blocks, spikes cut off; NaN stays. Shape as `log`, whole blocks."""
    away: Array = np.abs(log.reshape(-1, BLOCK) - block_medians(log)[:, None]).reshape(-1)
    return np.minimum(away, CLIP * np.nanmedian(away)) if np.isfinite(away).any() else away


def _judge(chunk: Chunk, index: int, now: dict[str, Any]) -> list[Said]:
    if now.get("episode") is not None:
        return _continues(chunk, index, now)
    for count, errors in RECENT:
        x, y = now["known"][:-count].T
        if len(x) < LEAST:
            return []
        line, scatter, error = _line(x, y, float(now["known"][-count:, 0].mean()))
        far = now["known"][-count:, 1] - np.polyval(line, now["known"][-count:, 0])
        gate = max(EFFECT, errors * math.hypot(scatter / math.sqrt(count), error))
        halves = far.reshape(2, -1).mean(axis=1)
        if abs(far.mean()) > gate and (halves * far.mean() > 0).all() and np.abs(halves).min() > gate / 2:
            return _opens(chunk, index, line, float(far.mean()), gate, now)
    return []


def _line(x: Array, y: Array, at: float) -> tuple[Array, float, float]:
    """Slope and intercept, the scatter of one unit, and the standard error of the line at `at`."""
    dx = x - x.mean()
    power = float(dx @ dx)
    slope = float(dx @ y) / power if power > 0 else 0.0
    rest = y - y.mean() - slope * dx
    # the scatter of few numbers is known badly: the share on top is that of Student's t, roughly
    scatter = max(math.sqrt(float(rest @ rest) / (len(x) - 2)), FLOOR) * (1 + 2 / len(x))
    error = scatter * math.sqrt(1 / len(x) + (at - float(x.mean())) ** 2 / power) if power > 0 else math.inf
    return np.array([slope, float(y.mean()) - slope * float(x.mean())]), scatter, error


def _opens(chunk: Chunk, index: int, line: Array, far: float, gate: float, now: dict[str, Any]) -> list[Said]:
    at = chunk.at(index) + 1
    span = chunk.log[max(at - 3 * CHUNK, 0) : at]
    onset = index + 1 - len(span) + _split(deviations(span), far > 0) * BLOCK
    usual = float(np.polyval(line, log_step(chunk.step[at - 1])))
    now.update(episode=str(index), since=index, line=line.tolist(), gate=gate, clean=0)
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


def _continues(chunk: Chunk, index: int, now: dict[str, Any]) -> list[Said]:
    """Back after eight units near the old line; after 64 units the new spread is the reference."""
    count = RECENT[0][0]
    x, y = now["known"][-count:].T
    near = abs(float((y - np.polyval(now["line"], x)).mean())) < now["gate"] / 2
    now["clean"] = now["clean"] + 1 if near else 0
    if now["clean"] >= BACK or index - now["since"] >= SETTLED * UNIT:
        said = [chunk.recovery(DETECTOR, now["episode"], index)] if near else []
        now.update(episode=None, known=now["known"][-BACK:] if near else now["known"][-SETTLED:])
        return said
    return []
