"""The spread of the loss: noise that widens or narrows while the mean goes on as before.

Sees: the mean absolute deviation of the logarithm from its own block medians (16 samples). A two-sided CUSUM (k = 0.5,
h = 8.5) of the log deviation of each block around a line (log spread on log step) through the 10 to 64 units of 64
samples before it, in scatters of a block; the blocks since it began must be 20 % wider: S2. A bad shuffle moves the
spread by 1.3 to 1.7 and nothing else (pattern P35). The line is needed: the relative noise of a young run grows as its
loss falls. Narrower ones are annotated (S0): a larger batch does that.
Silent: before 10 units behind the first four; on changes under 20 %.
Fooled by: another batch size, or a logger that begins to average (declare the event).
False alarms: see docs/detectors.md. Units: log ratio of the spread.
"""

import math
from typing import Any

import numpy as np

from detectors.noise import BLOCK, block_medians, log_step
from detectors.series import Array
from detectors.window import Chunk, Said, State

DETECTOR = ("spread", 2)
UNIT = 64  # samples whose spread is a point of the line
EFFECT = math.log(1.2)
K, H, CLIP = 0.5, 8.5, 4.0  # nearly half of what 1.25 times the spread is for a block
LEAST, MOST = 10, 64  # units in a reference
GAP = 8  # units between a reference and what it judges
BEND = 4  # units at the start of a run that are all bend
FEW = 3  # blocks that must be wide: one outlier widens one
BACK = 8  # units within half the change that end it
SETTLED = 64  # units after which the new spread is the reference
CAP = 6.0  # median deviations: a spike is no spread
ERROR = math.sqrt(math.pi / 2 - 1)  # of one absolute deviation, relative, Gaussian
LOWER = ERROR**2 / 2 * (1 / BLOCK - 1 / UNIT)  # by which the mean logarithm of a block lies under that of a unit


def carry(state: State, step: float) -> State:
    """The spreads of the parent before `step`: a restart is no cold start."""
    if "known" not in state:
        return {}
    return {"known": state["known"][state["known"][:, 0] < log_step(step)]}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `variance` (S2 wider, S0 narrower) and recoveries; evaluated when a unit is complete."""
    now: dict[str, Any] = {"known": np.empty((0, 2)), "up": 0.0, "down": 0.0, "up_since": 0, "down_since": 0, **state}
    said: list[Said] = []
    for begin in range(0, len(chunk.indices) // UNIT * UNIT, UNIT):
        first = chunk.start + begin
        if first < BEND * UNIT:
            continue
        part = slice(chunk.offset + begin, chunk.offset + begin + UNIT)
        away = deviations(chunk.log[part])
        if np.isfinite(away).sum() <= UNIT // 2 or np.nanmean(away) <= 0:
            continue
        x = float(log_step(chunk.step[part.stop - 1]))
        if now.get("episode") is None:
            said += _sums(chunk, first, x, away, now)
        else:
            said += _continues(chunk, first + UNIT - 1, x, math.log(np.nanmean(away)), now)
        row = [[x, math.log(np.nanmean(away))]]
        now["known"] = np.concatenate([now["known"], row])[-MOST - GAP :]
    return said, now


def deviations(log: Array) -> Array:
    """Absolute deviations from the medians of their blocks, spikes cut off; NaN stays. Shape as `log`, whole blocks.

    The slope through the medians is taken out: in a young run it is as large as the noise of a large batch.
    """
    medians = block_medians(log)
    steps = np.diff(medians[np.isfinite(medians)])
    slope = float(np.median(steps)) / BLOCK if len(steps) else 0.0  # a step of the level is no slope
    within = np.arange(BLOCK) - (BLOCK - 1) / 2
    away: Array = np.abs(log.reshape(-1, BLOCK) - medians[:, None] - slope * within).reshape(-1)
    return np.minimum(away, CAP * np.nanmedian(away)) if np.isfinite(away).any() else away


def _sums(chunk: Chunk, first: int, x: float, away: Array, now: dict[str, Any]) -> list[Said]:
    """The sums over the blocks of one unit; looks closer when one is over the threshold."""
    if len(now["known"]) < LEAST + GAP:
        return []
    slope, intercept, scatter, error = _line(now["known"][:-GAP, 0], now["known"][:-GAP, 1], x)
    usual = slope * x + intercept
    with np.errstate(divide="ignore"):
        far = np.log(away.reshape(-1, BLOCK).mean(axis=1)) - usual + LOWER
    for k, z in enumerate(np.clip(np.nan_to_num(far / scatter, nan=0.0, neginf=-CLIP), -CLIP, CLIP)):
        index = first + (k + 1) * BLOCK - 1
        for side, sign in (("up", 1.0), ("down", -1.0)):
            if now[side] <= 0:
                now[f"{side}_since"] = index + 1 - BLOCK
            # what is not known of the line counts for the null
            now[side] = max(0.0, now[side] + sign * float(z) - K - error / scatter)
            since = now[f"{side}_since"]
            if now[side] > H and index + 1 - since >= FEW * BLOCK:
                found = _opens(chunk, index, since, usual, sign, now)
                if found:
                    now["line"] = [slope, intercept]
                    return found
    return []


def _line(x: Array, y: Array, at: float) -> tuple[float, float, float, float]:
    """Slope and intercept, the scatter of one block, and the standard error of the line at `at`."""
    dx = x - x.mean()
    power = max(float(dx @ dx), 1e-12)
    slope = float(dx @ y) / power
    rest = y - y.mean() - slope * dx
    # the scatter of few numbers is known badly: the share on top is that of Student's t, roughly
    unit = max(math.sqrt(float(rest @ rest) / (len(x) - 2)), ERROR / math.sqrt(UNIT)) * (1 + 2 / len(x))
    error = unit * math.sqrt(1 / len(x) + (at - float(x.mean())) ** 2 / power)
    return slope, float(y.mean()) - slope * float(x.mean()), unit * math.sqrt(UNIT / BLOCK), error


def _opens(chunk: Chunk, index: int, since: int, usual: float, sign: float, now: dict[str, Any]) -> list[Said]:
    span = chunk.log[max(chunk.at(since), 0) : chunk.at(index) + 1]
    far = math.log(float(np.nanmean(deviations(span)))) - usual
    if sign * far < EFFECT:
        return []
    now.update(episode=str(index), since=index, far=far, clean=0, up=0.0, down=0.0)
    return [
        chunk.finding(
            DETECTOR,
            "variance",
            max(since, chunk.first),
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


def _continues(chunk: Chunk, index: int, x: float, here: float, now: dict[str, Any]) -> list[Said]:
    """Back after eight units near the old line; after 64 units the new spread is the reference."""
    slope, intercept = now["line"]
    near = abs(here - slope * x - intercept) < abs(now["far"]) / 2
    now["clean"] = now["clean"] + 1 if near else 0
    if now["clean"] >= BACK:
        said = [chunk.recovery(DETECTOR, now["episode"], index)]
        now.update(episode=None, known=now["known"][-GAP:])
        return said
    if index - now["since"] >= SETTLED * UNIT:
        now.update(episode=None)
    return []
