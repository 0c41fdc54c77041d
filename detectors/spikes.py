"""Excursions of single samples above the trend: loss, gradient norm, update norm.

Sees: a log residual above 6 robust scales of its baseline, and above half as much again as the third largest
excursion of the last 2,048 samples (so a heavy-tailed metric raises its own bar). One sample of a loss is S1, of a
norm S0: a healthy gradient norm has hundreds (302 beyond 6 sigma per 100,000 samples in an open GPT-2 log); ten times what
it was is S1, since corrupted arithmetic looks so (P36). Two of
three samples by at least 1 %, the second no mere tail of the first, are S2 in a loss, S1 in a norm. A loss that has
not come back 150 samples later settled worse: by 0.3 % it is told, by 1 % it is S3 (patterns P01, P02; marin#1390).
Silent: before 20 blocks of five autocorrelation times (112 samples of a white metric).
Fooled by: a step change (the shift detector says that one better), sampled history that hides short spikes.
False alarms: see docs/detectors.md. Units: log ratio to the baseline.
"""

import math
from typing import Any

import numpy as np

from detectors.noise import BLOCK, CHUNK, NEEDED, NORMAL_MAD, log_step, row_median
from detectors.series import Array
from detectors.window import Chunk, Said, State

DETECTOR = ("spikes", 5)
K = 6.0
ABOVE_KNOWN = 1.5
MEMORY = 2048  # samples for which an excursion raises the bar
HIGHEST = 12.0  # the bar of a loss never rises above this many scales
EFFECT = math.log(1.01)
DECADE = math.log(10.0)  # a lone norm that is worth a note
TAIL = 0.5  # a second sample below this share of the peak is the tail of one bad sample
NEAR = 32  # samples
YOUNG = 768  # samples until which the near past is judged too
CALM = 3  # samples under half the bar that end a lone spike
WINDOW, APART, LATE = 25, 50, 150  # samples
WORSE, MUCH_WORSE = 0.003, 0.01  # log; marin#1390 settled 0.8 % higher


def carry(state: State, step: float) -> State:
    """Nothing: the tail of the parent that is shown first raises the bar anew."""
    del state, step
    return {}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `spike` (S0..S2), `level` (S3: settled worse) or `divergence` (S3: still rising), and recoveries."""
    base = chunk.expected
    with np.errstate(invalid="ignore", divide="ignore"):
        z = (chunk.log[chunk.offset :] - base.mean) / np.where(base.wander > 0, base.wander, np.nan)
    mean, slope, scale = base.intercept, base.slope, base.wander
    if chunk.start < YOUNG:
        z, mean, slope, scale = _nearer(chunk, z)
    z[: max(0, NEEDED - chunk.start)] = np.nan
    now: dict[str, Any] = {"big": [], **state}
    said: list[Said] = []
    candidates = z >= K / 2
    for begin in range(0, len(z), CHUNK):
        if now.get("episode") is None and not candidates[begin : begin + CHUNK].any():
            continue
        for k in range(begin, min(begin + CHUNK, len(z))):
            if now.get("episode") is not None:
                said += _continues(chunk, k, z, now)
            elif candidates[k]:
                said += _opens(chunk, k, float(z[k]), (float(mean[k]), float(slope[k]), float(scale[k])), now)
    return said, now


def _nearer(chunk: Chunk, z: Array) -> tuple[Array, Array, Array, Array]:
    """Score, intercept, slope and scale, from the 32 samples before where those show more than the baseline does.

    A young run's baseline still holds its first bend, or the tail of an earlier excursion.
    """
    base = chunk.expected
    padded = np.concatenate([np.full(NEAR, np.nan), chunk.log])
    near = np.lib.stride_tricks.sliding_window_view(padded, NEAR)[chunk.offset : chunk.offset + len(z)]
    middle = row_median(near)
    scale = NORMAL_MAD * row_median(np.abs(near - middle[:, None]))
    with np.errstate(invalid="ignore", divide="ignore"):
        local = (chunk.log[chunk.offset :] - middle) / np.where(scale > 0, scale, np.nan)
    better = ((local > z) | np.isnan(z)) & (chunk.start + np.arange(len(z)) < YOUNG)
    return (
        np.where(better, local, z),
        np.where(better, middle, base.intercept),
        np.where(better, 0.0, base.slope),
        np.where(better, scale, base.wander),
    )


def _opens(chunk: Chunk, k: int, z: float, line: tuple[float, float, float], now: dict[str, Any]) -> list[Said]:
    index = chunk.start + k
    big = [(i, size) for i, size in now["big"] if i > index - MEMORY]
    ranked = sorted((size for _, size in big), reverse=True)
    bar = max(K, ABOVE_KNOWN * ranked[2]) if len(ranked) > 2 else K
    if chunk.role == "loss":
        bar = min(bar, HIGHEST)
    now["big"] = [*big, (index, z)][-64:] if z >= 4 else big
    if z < bar:
        return []
    at = chunk.at(index)
    a, b, scale = line
    mean = a + b * float(log_step(chunk.step[at]))
    # what the baseline expects is another number in a young run, and may lie below all that was logged
    before, value = float(np.nanmedian(chunk.value[max(at - 2 * BLOCK, 0) : at])), float(chunk.value[at])
    now.update(
        episode=str(index),
        onset=index,
        onset_step=float(chunk.step[at]),
        a=a,
        b=b,
        scale=scale,
        before=before,
        peak=value,
        calm=0,
        rest=[float(chunk.log[at]) - mean],
        severity=int(chunk.role == "loss" or value >= before * math.exp(DECADE)),
        lone=True,
        clean=None,
    )
    return [_say(chunk, index, now, value, "spike", z=z)]


def _say(chunk: Chunk, index: int, now: dict[str, Any], value: float, kind: str, **evidence: Any) -> Said:
    return chunk.finding(
        DETECTOR,
        kind,
        now["onset"],
        index,
        now["severity"],
        now["episode"],
        direction="up",
        magnitude=math.log(value / now["before"]),
        unit="log",
        onset_step=now["onset_step"],
        before=now["before"],
        after=value,
        peak=now["peak"],
        **evidence,
    )


def _continues(chunk: Chunk, k: int, z: Any, now: dict[str, Any]) -> list[Said]:
    """An open excursion, measured from the baseline as it stood at its first sample."""
    index = chunk.start + k
    at = chunk.at(index)
    value = chunk.log[at]
    age = index - now["onset"]
    rest = float(value - now["a"] - now["b"] * log_step(chunk.step[at])) if np.isfinite(value) else math.inf
    now["peak"] = max(now["peak"], float(chunk.value[at])) if np.isfinite(value) else now["peak"]
    now["rest"] = [*now["rest"], rest][-LATE:]
    out = rest > K * now["scale"] and not chunk.value[at] <= 0  # what has no logarithm is not above anything
    now["calm"] = 0 if rest > K / 2 * now["scale"] else now["calm"] + 1
    lone = now["lone"]
    if lone and out and age <= 2 and rest >= max(EFFECT, TAIL * max(now["rest"])):
        now.update(lone=False, severity=2 if chunk.role == "loss" else 1)
        return [_say(chunk, index, now, float(chunk.value[at]), "spike", z=rest / now["scale"], samples_out=age + 1)]
    if lone and now["calm"] >= CALM:
        return _close(chunk, index, now)
    if lone and age <= LATE:
        return []
    return _judge_return(chunk, index, age, now)


def _judge_return(chunk: Chunk, index: int, age: int, now: dict[str, Any]) -> list[Said]:
    """Two clean windows of 25 samples, 50 apart, end it; at 150 samples a loss that is still above settled worse."""
    rest = now["rest"]
    if age % WINDOW == 0 and len(rest) >= WINDOW:
        middle = float(np.median(rest[-WINDOW:]))
        if middle < max(2 * now["scale"] / math.sqrt(WINDOW) * 2, 0.003):
            now["clean"] = now["clean"] if now["clean"] is not None else index
            if index - now["clean"] >= APART:
                return _close(chunk, index, now)
        else:
            now["clean"] = None
    if age < LATE:
        return []
    # what still falls has not settled
    worse = min(float(np.median(rest[WINDOW * 2 :])), float(np.median(rest[-WINDOW:])))
    level = float(np.median(chunk.value[chunk.at(index) - WINDOW + 1 : chunk.at(index) + 1]))
    if (
        chunk.role == "loss"
        and now["severity"] >= 2
        and worse > max(WORSE, 3 * now["scale"] / math.sqrt(100))
        and level > now["before"]
    ):
        now["severity"] = 3 if worse > MUCH_WORSE else now["severity"]
        climbs = float(np.median(rest[-WINDOW:]) - np.median(rest[WINDOW * 2 : WINDOW * 3])) > max(0.02, worse / 4)
        kind, words = ("divergence", "rising_above") if climbs else ("level", "settled_above")
        said = [_say(chunk, index, now, level, kind, **{words: worse, "overshoot": max(rest) / worse})]
        now["episode"] = None
        return said
    return _close(chunk, index, now)


def _close(chunk: Chunk, index: int, now: dict[str, Any]) -> list[Said]:
    said = [chunk.recovery(DETECTOR, now["episode"], index)]
    now["episode"] = None
    return said
