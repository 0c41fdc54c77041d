"""The spread of the loss: noise that widens or narrows while the mean goes on as before.

Sees: the mean absolute deviation of the logarithm from its own block medians (16 samples). A two-sided CUSUM (k = 0.5,
h = 8.5) of the log deviation of each block around a line (log spread on log step) through the 10 to 64 units of 64
samples before it, in scatters of a block; the blocks since it began must be 20 % wider: S2. Beside it a sum over single
samples, tuned to twice the spread, for what is plain at once. A bad shuffle moves the spread by 1.3 to 1.7 and
nothing else (pattern P35). The line is needed: the relative noise of a young run grows as its
loss falls. Narrower ones are annotated (S0): a larger batch does that.
Silent: before 10 units behind the first four; on changes under 20 %.
Fooled by: another batch size, or a logger that begins to average (declare the event).
False alarms: see docs/detectors.md. Units: log ratio of the spread.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from detectors.noise import BLOCK, block_medians, log_step, row_median, windows
from detectors.series import Array
from detectors.window import Chunk, Said, State

DETECTOR = ("spread", 3)
UNIT = 64  # samples whose spread is a point of the line
EFFECT = math.log(1.2)
K, H, CLIP = 0.5, 8.5, 4.0  # nearly half of what 1.25 times the spread is for a block
MUCH = math.log(1.4)
PLAIN, PLAIN_H = 2.0, 5.3  # ratio that the sum over samples is tuned to; its threshold
LEAST, MOST = 10, 64  # units in a reference
GAP = 8  # units between a reference and what it judges
BEND = 4  # units at the start of a run that are all bend
FEW = 3  # blocks that must be wide: one outlier widens one
BACK = 8  # units within half the change that end it
SETTLED = 64  # units after which the new spread is the reference
CAP = 6.0  # median deviations: a spike is no spread
ERROR = math.sqrt(math.pi / 2 - 1)  # of one absolute deviation, relative, Gaussian
LOWER = ERROR**2 / 2 * (1 / BLOCK - 1 / UNIT)  # by which the mean logarithm of a block lies under that of a unit


@dataclass(frozen=True)
class Line:
    """Log spread on log step: slope, intercept, the scatter of one block around it, and its own standard error.

    `excess` is that scatter over the one of independent samples (at least 1).
    """

    slope: float
    intercept: float
    scatter: float
    error: float
    excess: float


def carry(state: State, step: float) -> State:
    """The spreads of the parent before `step`: a restart is no cold start."""
    if "known" not in state:
        return {}
    return {"known": state["known"][state["known"][:, 0] < log_step(step)]}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `variance` (S2 wider, S0 narrower) and recoveries; evaluated when a block is complete."""
    now: dict[str, Any] = {"known": np.empty((0, 2)), **_nothing(0), **state}
    away = distances(chunk.log)
    wide = _means(away)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(wide)
    line: Line | None = None
    said: list[Said] = []
    for block in range(chunk.offset // BLOCK, len(wide)):
        index = chunk.first + (block + 1) * BLOCK - 1
        if index < BEND * UNIT:
            continue
        if now.get("episode") is None and np.isfinite(logs[block]):
            if line is None or (index + 1) % UNIT == BLOCK:  # once a unit
                line = _line(now["known"][:-GAP], float(log_step(chunk.step[chunk.at(index)])))
            said += _sums(chunk, index, wide, away, line, now) if line is not None else []
        if (index + 1) % UNIT:
            continue
        unit = float(wide[block + 1 - UNIT // BLOCK : block + 1].mean())
        if math.isfinite(unit) and unit > 0:
            x = float(log_step(chunk.step[chunk.at(index)]))
            if now.get("episode") is not None:
                said += _continues(chunk, index, x, math.log(unit), now)
            now["known"] = np.concatenate([now["known"], [[x, math.log(unit)]]])[-MOST - GAP :]
    return said, now


def _nothing(index: int) -> dict[str, Any]:
    """Sums that begin at a sample index."""
    return {side: value for name in ("up", "down", "plain") for side, value in ((name, 0.0), (f"{name}_since", index))}


def distances(log: Array) -> Array:
    """Absolute deviation of each sample from the median of its block, spikes cut off; (n // 16, 16), NaN stays.

    The usual slope of the last four blocks is taken out: in a young run it is as large as the noise of a large batch.
    """
    medians = block_medians(log)
    if not len(medians):
        return np.empty((0, BLOCK))
    slope = row_median(windows(np.diff(medians, prepend=np.nan), 0, len(medians), 4, -1)) / BLOCK
    within = np.arange(BLOCK) - (BLOCK - 1) / 2
    rows = log[: len(medians) * BLOCK].reshape(-1, BLOCK)
    away = np.abs(rows - medians[:, None] - np.nan_to_num(slope)[:, None] * within)
    usual = row_median(windows(block_medians(away.reshape(-1)), 0, len(medians), 4, -1))
    return np.minimum(away, CAP * usual[:, None])


def _means(away: Array) -> Array:
    """Mean of each block; NaN where fewer than half are known."""
    known = np.isfinite(away)
    count = known.sum(axis=1)
    return np.where(count >= BLOCK // 2, np.where(known, away, 0).sum(axis=1) / np.maximum(count, 1), np.nan)


def _sums(chunk: Chunk, index: int, wide: Array, away: Array, line: Line, now: dict[str, Any]) -> list[Said]:
    """The sums with one block more; looks closer when one is over its threshold."""
    block = (index + 1 - chunk.first) // BLOCK
    usual = line.slope * float(log_step(chunk.step[chunk.at(index)])) + line.intercept
    far = math.log(wide[block - 1]) - usual + LOWER if wide[block - 1] > 0 else -math.inf
    z = min(max(far / line.scatter, -CLIP), CLIP)
    for side, sign in (("up", 1.0), ("down", -1.0)):
        if now[side] <= 0:
            now[f"{side}_since"] = index + 1 - BLOCK
        # what is not known of the line counts for the null
        now[side] = max(0.0, now[side] + sign * z - K - line.error / line.scatter)
    now["plain"], since, highest = _plainly(away[block - 1], usual + line.error, line, now["plain"])
    if since is not None:
        now["plain_since"] = index + 1 - BLOCK + since // BLOCK * BLOCK
    for side, sign, over in (
        ("plain", 1.0, highest > PLAIN_H),
        ("up", 1.0, now["up"] > H),
        ("down", -1.0, now["down"] > H),
    ):
        begun = max(now[f"{side}_since"], chunk.first)
        if not over or index + 1 - begun < FEW * BLOCK:
            continue
        first = (begun - chunk.first) // BLOCK
        change = math.log(np.nanmean(wide[first:block])) - usual
        if sign * change >= (MUCH if side == "plain" else EFFECT):
            now.update(line=[line.slope, line.intercept], far=change)
            return [_opens(chunk, index, begun + BLOCK * _onset(wide[first:block], usual, change), usual, now)]
    return []


def _onset(wide: Array, usual: float, change: float) -> int:
    """The block from which on `change` fits best: a sum may have left zero by chance long before."""
    with np.errstate(divide="ignore"):
        gain = math.copysign(1.0, change) * (np.nan_to_num(np.log(wide), nan=usual) - usual - change / 2)
    return int(np.argmax(np.cumsum(gain[::-1])[::-1]))


def _plainly(away: Array, usual: float, line: Line, level: float) -> tuple[float, int | None, float]:
    """The sum over a block's samples: where it stands, behind which it last was zero (None: not here), its highest.

    The log-likelihood ratio of two exponential laws, as a mean absolute deviation knows no other. Widths that scatter more
    than those of independent samples count for less: by the square, a memory of 0.9 raised five times the false alarms.
    """
    gain = np.nan_to_num(away, nan=0.0) / math.exp(usual) * (1 - 1 / PLAIN) - math.log(PLAIN)
    gain = np.where(np.isfinite(away), gain, 0.0) / line.excess**3
    walk = level + np.cumsum(gain)
    lowest = np.minimum.accumulate(np.minimum(walk, 0.0))
    levels = walk - lowest
    zero = np.flatnonzero(levels <= 0)
    return float(levels[-1]), int(zero[-1]) + 1 if len(zero) else None, float(levels.max())


def _line(known: Array, at: float) -> Line | None:
    """Through the units of a reference, with the error at log step `at`; None when there are too few."""
    if len(known) < LEAST:
        return None
    x, y = known[:, 0], known[:, 1]
    dx = x - x.mean()
    power = max(float(dx @ dx), 1e-12)
    slope = float(dx @ y) / power
    rest = y - y.mean() - slope * dx
    excess = max(math.sqrt(float(rest @ rest) / (len(x) - 2)) / (ERROR / math.sqrt(UNIT)), 1.0)
    # the scatter of few numbers is known badly: the share on top is that of Student's t, roughly
    scatter = excess * ERROR * (1 + 2 / len(x))
    error = scatter / math.sqrt(UNIT) * math.sqrt(1 / len(x) + (at - float(x.mean())) ** 2 / power)
    return Line(slope, float(y.mean()) - slope * float(x.mean()), scatter / math.sqrt(BLOCK), error, excess)


def _opens(chunk: Chunk, index: int, since: int, usual: float, now: dict[str, Any]) -> Said:
    far = now["far"]
    now.update(episode=str(index), since=index, clean=0, **_nothing(index))
    return chunk.finding(
        DETECTOR,
        "variance",
        since,
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
