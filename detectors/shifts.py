"""Level shifts that stay: loss, token drops, router entropy.

Sees: a two-sided CUSUM (k = 0.75, h = 12, residuals clipped at 4) of the residual against the log-log baseline of
detectors/noise.py, divided by the long-run standard deviation. On an alarm the baseline is frozen for 1,024 samples, else
it would swallow the new level and the incident would end by itself. Four block medians in a row that rise by 5 % in all
after the alarm are a divergence (S3).
Silent: before 20 blocks of five autocorrelation times; on changes under the effect gate of the role; on a loss that is
only falling more slowly than its trend (it must stand above where it was).
Fooled by: an announced change of data, batch or capacity (declare the event); a baseline that starts in a fast bend.
False alarms: see docs/detectors.md. Units: log ratio (logit for fractions).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from detectors.chunk import Chunk, Said, State
from detectors.noise import BLOCK, CHUNK, GAP, Expectation, block_medians, enough, expect, log_step
from detectors.series import Array

DETECTOR = ("shifts", 1)
K, H, CLIP = 0.75, 12.0, 4.0
FROZEN = 1024  # samples for which an alarm holds the baseline
APART = 64  # samples between two clean windows that end an episode
FLOOR = 1e-4  # of a fraction, so that zero has a logit


@dataclass(frozen=True)
class Gate:
    """Effect gate and severities of a role: least change in the judged scale, S of a rise, S of a fall."""

    effect: float
    up: int
    down: int
    plain: float = 0.0  # least change in plain units


GATES = {
    "loss": Gate(0.005, 2, 0),
    "token_drop": Gate(0.25, 2, 0, plain=0.01),
    "router_entropy": Gate(0.005, 0, 2),
}


def carry(state: State, step: float) -> State:
    """What is known of the long-run variance."""
    del step
    return {key: state[key] for key in ("longrun", "chunks") if key in state}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `level` (S0..S2) and `divergence` (S3), and recoveries."""
    values, base = _scaled(chunk)
    now: dict[str, Any] = {
        "up": 0.0,
        "down": 0.0,
        "up_since": chunk.start,
        "down_since": chunk.start,
        "longrun": 1.0,
        "chunks": 0,
        **state,
    }
    said: list[Said] = []
    for begin in range(0, len(chunk.indices), CHUNK):
        part = slice(begin, min(begin + CHUNK, len(chunk.indices)))
        if now.get("episode") is not None:
            for k in range(part.start, part.stop):
                said += _watches(chunk, values, k, now)
        elif chunk.start + begin >= now.get("deaf_until", 0):
            said += _sums(chunk, values, base, part, now)
        _learn_longrun(base.longrun[part], now)
    return said, now


def _learn_longrun(local: Array, now: dict[str, Any]) -> None:
    """The long-run ratio of one window is known to 60 %; the mean of the last 16 chunks is what the sums are scaled by."""
    if len(local) == CHUNK and np.isfinite(local).all():
        now["chunks"] += 1
        now["longrun"] += (float(local.mean()) - now["longrun"]) / min(now["chunks"], 16)


def _scaled(chunk: Chunk) -> tuple[Array, Expectation]:
    """The judged scale: logit of a fraction, else the logarithm."""
    if chunk.role != "token_drop":
        return chunk.log, chunk.expected
    share = np.clip(np.where(np.isfinite(chunk.value), chunk.value, np.nan), FLOOR, 1 - FLOOR)
    values: Array = np.log(share / (1 - share))
    return values, expect(values, chunk.step, chunk.offset)


def _standard(values: Array, base: Expectation, part: slice, longrun: Array) -> Array:
    """Residuals in long-run standard deviations, clipped; 0 where nothing is known."""
    with np.errstate(invalid="ignore", divide="ignore"):
        sigma = np.sqrt(base.scale[part] ** 2 * longrun + base.spread[part] ** 2)
        z = (values - base.mean[part]) / np.where(sigma > 0, sigma, np.nan)
    return np.clip(np.nan_to_num(z, nan=0.0, posinf=0.0, neginf=0.0), -CLIP, CLIP)


def _sums(chunk: Chunk, values: Array, base: Expectation, part: slice, now: dict[str, Any]) -> list[Said]:
    """CUSUM over one chunk (sums start at its beginning, so slices give the same floats); looks closer on an alarm."""
    longrun = (
        np.maximum(base.longrun[part], now["longrun"])
        if now["chunks"] < 2
        else np.full(part.stop - part.start, now["longrun"])
    )
    z = _standard(values[chunk.offset + part.start : chunk.offset + part.stop], base, part, longrun)
    z[~enough(chunk.start + np.arange(part.start, part.stop), longrun)] = 0.0
    for side, sign in (("up", 1.0), ("down", -1.0)):
        walk = np.cumsum(sign * z - K)
        lowest = np.minimum.accumulate(np.minimum(walk, 0.0))
        level = np.maximum(now[side] + walk, walk - lowest)
        since = _last_zero(now[side], walk, level, chunk.start + part.start, now[f"{side}_since"])
        for k in np.flatnonzero(level > H):
            found = _alarm(chunk, values, base, part.start + int(k), int(since[k]), sign, float(longrun[k]), now)
            if found:
                return found
        now[side] = float(level[-1]) if len(z) == CHUNK and level[-1] <= 2 * H else 0.0
        now[f"{side}_since"] = int(since[-1])
    return []


def _last_zero(carried: float, walk: Array, level: Array, start: int, since: int) -> Array:
    """For each sample of the chunk the index at which its sum last left zero."""
    fresh = walk - np.minimum.accumulate(np.minimum(walk, 0.0)) >= carried + walk
    restart = np.where(fresh & (level <= 0), start + np.arange(len(walk)) + 1, -1)
    left = np.maximum.accumulate(restart)
    return np.where(left >= 0, left, since if carried > 0 else start)


def _alarm(
    chunk: Chunk, values: Array, base: Expectation, k: int, onset: int, sign: float, longrun: float, now: dict[str, Any]
) -> list[Said]:
    """Applies the gates to a crossing; freezes the baseline when it holds."""
    index, at = chunk.start + k, chunk.at(chunk.start + k)
    gate = GATES[chunk.role]
    first = max(chunk.at(onset), at - 8 * BLOCK, 0)
    if first < 1 or at - first < 3:
        return []
    after, before = values[first : at + 1], values[max(first - 2 * BLOCK, 0) : first]
    shift = float(np.nanmedian(after - base.intercept[k] - base.slope[k] * log_step(chunk.step[first : at + 1])))
    moved = float(np.nanmedian(after) - np.nanmedian(before))
    plain_after = float(np.nanmedian(chunk.value[first : at + 1]))
    plain_before = float(np.nanmedian(chunk.value[max(first - 2 * BLOCK, 0) : first]))
    if sign * shift < gate.effect or sign * moved < 0.5 * sign * shift or abs(plain_after - plain_before) < gate.plain:
        return []
    severity = gate.up if sign > 0 else gate.down
    now.update(
        episode=str(index),
        onset=first + chunk.first,
        onset_step=float(chunk.step[first]),
        since=index,
        sign=sign,
        a=float(base.intercept[k]),
        b=float(base.slope[k]),
        scale=float(base.scale[k] * math.sqrt(longrun)),
        shift=shift,
        severity=severity,
        before=plain_before,
        clean=None,
        up=0.0,
        down=0.0,
    )
    return [_say(chunk, index, now, "level", shift, plain_after)]


def _say(chunk: Chunk, index: int, now: dict[str, Any], kind: str, shift: float, after: float) -> Said:
    return chunk.finding(
        DETECTOR,
        kind,
        now["onset"],
        index,
        now["severity"],
        now["episode"],
        direction="up" if now["sign"] > 0 else "down",
        magnitude=shift,
        unit="logit" if chunk.role == "token_drop" else "log",
        onset_step=now["onset_step"],
        before=now["before"],
        after=after,
        z=shift / now["scale"] if now["scale"] > 0 else math.inf,
    )


def _watches(chunk: Chunk, values: Array, k: int, now: dict[str, Any]) -> list[Said]:
    """While the baseline is frozen: block by block, is it back, is it running away, is it time to start anew?"""
    index = chunk.start + k
    if index % BLOCK != BLOCK - 1 or index <= now["since"]:
        return []
    at = chunk.at(index)
    rest = values[at - BLOCK + 1 : at + 1] - now["a"] - now["b"] * log_step(chunk.step[at - BLOCK + 1 : at + 1])
    middle = float(block_medians(rest)[0])
    if math.isfinite(middle) and now["sign"] * middle < max(GATES[chunk.role].effect, 0.3 * abs(now["shift"])):
        now["clean"] = index if now["clean"] is None else now["clean"]
        if index - now["clean"] >= APART:
            said = [chunk.recovery(DETECTOR, now["episode"], index)]
            now.update(episode=None, deaf_until=index + (GAP + 1) * BLOCK)
            return said
    else:
        now["clean"] = None
    if index - now["since"] >= FROZEN:
        now.update(episode=None)
        return []
    return _runs_away(chunk, values, index, now) if chunk.role == "loss" and now["severity"] == 2 else []


def _runs_away(chunk: Chunk, values: Array, index: int, now: dict[str, Any]) -> list[Said]:
    at = chunk.at(index)
    if index - now["since"] < 4 * BLOCK:
        return []
    four = block_medians(values[at - 4 * BLOCK + 1 : at + 1])
    if not (np.diff(four) > 0).all() or four[-1] - four[0] < max(0.05, 4 * now["scale"] / 4):
        return []
    now["severity"] = 3
    after = float(math.exp(four[-1]))
    return [_say(chunk, index, now, "divergence", float(four[-1]) - math.log(now["before"]), after)]
