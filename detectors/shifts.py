"""Level shifts that stay: loss, token drops, router entropy.

Sees: a two-sided CUSUM (k = 0.75, h = 11, residuals clipped at 4) of the residual against the log-log baseline of
detectors/noise.py, divided by the long-run standard deviation. On an alarm the baseline is frozen for 1,024 samples,
else it would swallow the new level and the incident would end by itself. Four block medians in a row that rise by 5 %
in all after the alarm are a divergence (S3), and so is one that stands 40 % above the baseline. It is over when for 64 samples
less than three tenths of what was told first is left, or less than a fifth of the highest block and no more than stood
before: the frozen line may fall faster than any run does. An entropy that falls a tenth is a collapse (S3; pattern P45).
Silent: before 20 blocks of five autocorrelation times; on changes under the effect gate of the role; on a loss that
is only falling more slowly than its trend (it must stand above where it was). For 1,024 samples after a declared change
of batch, length or data the noise counts as no less than it was before: what slow part the new one has is not known yet.
Fooled by: an announced change of data, batch or capacity (declare the event); a baseline that starts in a fast bend.
False alarms: see docs/detectors.md. Units: log ratio (arcsine root for fractions).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detectors.noise import BLOCK, CHUNK, GAP, WINDOW, Expectation, block_medians, enough, expect, log_step
from detectors.onset import change_point
from detectors.series import Array
from detectors.window import Chunk, Said, State

DETECTOR = ("shifts", 3)
K, H, CLIP = 0.75, 11.0, 4.0
FROZEN = 1024  # samples for which an alarm holds the baseline
CONFIRM = 8  # samples beyond the onset; fewer are an excursion
LOOK = 128  # samples in which the onset is sought
LEARN = 16  # chunks
MOST = 30.0  # of the long-run ratio (AR(1) 0.94): a bend or a collapse gives any value, and would deafen the sums
LASTS = 64  # samples after which a small shift, or a dip of the routing, is no passing one
APART = 64  # samples between two clean windows that end an episode
RUNS = 8.0  # scales of a block mean by which four blocks rise that run away: with 4, one in five long watches saw it in noise
FAR = math.log(1.4)  # a block of the loss so far above its baseline pages, whether or not it still rises
REST = 0.2  # of the highest block: what is left when a loss has come back from far
COLLAPSED = math.log(0.9)  # an entropy a tenth below its baseline
OTHER_NOISE = frozenset({"batch_size", "sequence_length", "data_mix"})  # events after which the scatter is another
YOUNG = 544  # samples before routing is judged: it finds its balance first


@dataclass(frozen=True)
class Gate:
    """Effect gate and severities of a role: least change in the judged scale, S of a rise, S of a fall.

    A change under `at_once` is S1 first and has its severity when it has lasted for LASTS samples.
    """

    effect: float
    up: int
    down: int
    plain: float = 0.0  # least change in plain units
    at_once: float = 0.0


GATES = {
    # 1.5 standard deviations of a batch of 11,000 sequences are 0.25 % (0.178 over the root of their number)
    "loss": Gate(0.002, 2, 0, at_once=0.005),
    "token_drop": Gate(0.02, 2, 0, plain=0.01),
    "router_entropy": Gate(0.006, 0, 2, at_once=math.inf),
}


def carry(state: State, step: float) -> State:
    """What is known of the long-run variance."""
    del step
    return {key: state[key] for key in ("ratios",) if key in state}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `level` (S0..S2) and `divergence` (S3), and recoveries."""
    values, base = _scaled(chunk)
    fresh = {"up": 0.0, "down": 0.0, "up_since": chunk.start, "down_since": chunk.start, "ratios": []}
    now: dict[str, Any] = {**fresh, **state}
    said: list[Said] = []
    for begin in range(0, len(chunk.indices), CHUNK):
        part = slice(begin, min(begin + CHUNK, len(chunk.indices)))
        is_open = now.get("episode") is not None
        said += _watches(chunk, values, part, now) if is_open else _sums(chunk, values, base, part, now)
        _learn_longrun(base.longrun[part], now)
    return said, now


def _learn_longrun(local: Array, now: dict[str, Any]) -> None:
    """The long-run ratio of one window is known to 60 %; the sums are scaled by the median of the last 16 chunks."""
    if len(local) == CHUNK and np.isfinite(local).all():
        now["ratios"] = [*now["ratios"], float(local.mean())][-LEARN:]


def _scaled(chunk: Chunk) -> tuple[Array, Expectation]:
    """The judged scale: arcsine of the root of a fraction (steady noise, and zero is a value), else the logarithm."""
    if chunk.role != "token_drop":
        return chunk.log, chunk.expected
    share = np.where(np.isfinite(chunk.value), np.clip(chunk.value, 0, 1), np.nan)
    values: Array = np.arcsin(np.sqrt(share))
    return values, expect(values, chunk.step, chunk.offset, zeros=True)


def _standard(values: Array, base: Expectation, part: slice, longrun: Array, least: Array) -> Array:
    """Residuals in long-run standard deviations (no less than `least`), clipped; 0 where nothing is known."""
    with np.errstate(invalid="ignore", divide="ignore"):
        noise = np.maximum(base.scale[part] * np.sqrt(longrun), least)
        sigma = np.sqrt(noise**2 + base.spread[part] ** 2)
        z = (values - base.mean[part]) / np.where(sigma > 0, sigma, np.nan)
    return np.clip(np.nan_to_num(z, nan=0.0, posinf=0.0, neginf=0.0), -CLIP, CLIP)


def _sums(chunk: Chunk, values: Array, base: Expectation, part: slice, now: dict[str, Any]) -> list[Said]:
    """CUSUM over one chunk (sums start at its beginning, so slices give the same floats); looks closer on an alarm."""
    longrun = base.longrun[part]
    if len(now["ratios"]) >= 2:
        longrun = np.full(len(longrun), float(np.median(now["ratios"])))
    longrun = np.clip(longrun, 1.0, MOST)  # one window alone knows it to 60 %: bounded after the median
    index = chunk.start + np.arange(part.start, part.stop)
    least = _noise_before(chunk, index, base.scale[part] * np.sqrt(longrun), now)
    z = _standard(values[chunk.offset + part.start : chunk.offset + part.stop], base, part, longrun, least)
    z[~enough(index, longrun) | (index < max(now.get("deaf_until", 0), 0 if chunk.role == "loss" else YOUNG))] = 0.0
    crossings: list[tuple[int, int, float]] = []
    for side, sign in (("up", 1.0), ("down", -1.0)):
        walk = np.cumsum(sign * z - K)
        lowest = np.minimum.accumulate(np.minimum(walk, 0.0))
        level = np.maximum(now[side] + walk, walk - lowest)
        since = _last_zero(now[side], walk, level, chunk.start + part.start, now[f"{side}_since"])
        crossings += [(int(k), int(since[k]), sign) for k in np.flatnonzero(level > H)]
        now[side] = float(level[-1]) if len(z) == CHUNK and level[-1] <= 2 * H else 0.0
        now[f"{side}_since"] = int(since[-1])
    for k, onset, sign in sorted(crossings):
        found = _alarm(chunk, values, base, part.start + k, onset, sign, float(longrun[k]), now)
        if found:
            return found + _watches(chunk, values, part, now)
    return []


def _noise_before(chunk: Chunk, index: NDArray[np.int64], noise: Array, now: dict[str, Any]) -> Array:
    """For each sample the noise before the newest change behind it that is known, for FROZEN samples; else 0."""
    until, least = now.get("noise_before", (0, 0.0))
    out = np.where(index < until, least, 0.0)
    for step, kind, since in chunk.events:
        at, heard = (np.searchsorted(chunk.step, [step, max(step, since)]) + chunk.first - int(index[0])).tolist()
        if kind in OTHER_NOISE and at >= 0 and heard < len(index) and np.isfinite(noise[at]):
            now["noise_before"] = (int(index[at]) + FROZEN, float(noise[at]))
            out[heard:] = noise[at]
    return out


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
    first = max(chunk.at(onset), at - 8 * BLOCK, 0)
    if at - first + 1 < CONFIRM or not _moves(chunk, values, base, k, first, sign):
        return []
    rest = values[max(0, at - LOOK + 1) : at + 1]
    rest = rest - base.intercept[k] - base.slope[k] * log_step(chunk.step[max(0, at - LOOK + 1) : at + 1])
    found = change_point(rest, float(base.scale[k] ** 2 * longrun))
    if found is None:
        return []
    first = max(0, at - LOOK + 1) + found
    if at - first + 1 < CONFIRM or not _moves(chunk, values, base, k, first, sign):
        return []
    gate = GATES[chunk.role]
    severity = gate.up if sign > 0 else gate.down
    after = values[first : at + 1] - base.intercept[k] - base.slope[k] * log_step(chunk.step[first : at + 1])
    shift = float(np.nanmedian(after))
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
        severity=min(severity, 1) if abs(shift) < gate.at_once else severity,
        lasting=severity,
        peak=abs(shift),
        # the level that a declared change brings is its doing, however far it lies
        far=math.inf if _declared(chunk, first, at) else FAR,
        clean=None,
        up=0.0,
        down=0.0,
        before=float(np.nanmedian(chunk.value[max(first - 2 * BLOCK, 0) : first])),
    )
    return [_say(chunk, index, now, "level", shift, float(np.nanmedian(chunk.value[first : at + 1])))]


def _declared(chunk: Chunk, first: int, at: int) -> bool:
    """Whether another batch, length or mixture was declared from the sample before the onset on."""
    low, high = chunk.step[max(first - 1, 0)], chunk.step[at]
    return any(kind in OTHER_NOISE and low <= step <= high and since <= high for step, kind, since in chunk.events)


def _moves(chunk: Chunk, values: Array, base: Expectation, k: int, first: int, sign: float) -> bool:
    """Effect gates: the residual is large enough, and the metric really stands elsewhere than before."""
    at = chunk.at(chunk.start + k)
    gate = GATES[chunk.role]
    if first < 1:
        return False
    near = slice(max(first - 2 * BLOCK, 0), first)
    after = values[first : at + 1]
    shift = float(np.nanmedian(after - base.intercept[k] - base.slope[k] * log_step(chunk.step[first : at + 1])))
    moved = float(np.nanmedian(after) - np.nanmedian(values[near]))
    plain = abs(float(np.nanmedian(chunk.value[first : at + 1]) - np.nanmedian(chunk.value[near])))
    if chunk.role != "loss":  # routing finds its balance slowly: a line through that runs past where it settles
        lately = float(np.nanmedian(values[max(first - WINDOW * BLOCK, 0) : first]))
        moved = sign * min(sign * moved, sign * (float(np.nanmedian(after)) - lately))
    return sign * shift >= gate.effect and sign * moved >= 0.5 * sign * shift and plain >= gate.plain


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
        unit="arcsine root" if chunk.role == "token_drop" else "log",
        onset_step=now["onset_step"],
        before=now["before"],
        after=after,
        z=shift / now["scale"] if now["scale"] > 0 else math.inf,
    )


def _watches(chunk: Chunk, values: Array, part: slice, now: dict[str, Any]) -> list[Said]:
    """While the baseline is frozen: block by block, is it back, is it getting worse, is it time to start anew?"""
    said: list[Said] = []
    first = chunk.start + part.start
    for index in range(first + (-first - 1) % BLOCK, chunk.start + part.stop, BLOCK):
        if index <= now["since"] or now["episode"] is None:
            continue
        block = slice(chunk.at(index) - BLOCK + 1, chunk.at(index) + 1)
        rest = float(block_medians(values[block] - now["a"] - now["b"] * log_step(chunk.step[block]))[0])
        now["peak"] = float(np.fmax(now["peak"], now["sign"] * rest))
        said += _comes_back(chunk, index, rest, now) or _gets_worse(chunk, values, index, rest, now)
        if index - now["since"] >= FROZEN:
            now.update(episode=None)
    return said


def _comes_back(chunk: Chunk, index: int, rest: float, now: dict[str, Any]) -> list[Said]:
    rest, level = now["sign"] * rest, now["sign"] * (_level(chunk, index) - now["before"])
    near = rest < max(GATES[chunk.role].effect, 0.3 * abs(now["shift"])) or (rest < REST * now["peak"] and level <= 0)
    now["clean"] = (index if now["clean"] is None else now["clean"]) if near else None
    if not near or index - now["clean"] < APART:
        return []
    said = [chunk.recovery(DETECTOR, now["episode"], index)]
    now.update(episode=None, deaf_until=index + (GAP + 1) * BLOCK)
    return said


def _level(chunk: Chunk, index: int) -> float:
    """The median of the block that ends at a sample."""
    return float(np.nanmedian(chunk.value[chunk.at(index) - BLOCK + 1 : chunk.at(index) + 1]))


def _gets_worse(chunk: Chunk, values: Array, index: int, rest: float, now: dict[str, Any]) -> list[Said]:
    """It lasted; S3: a loss that keeps rising, an entropy that has collapsed."""
    level = _level(chunk, index)
    if chunk.role == "router_entropy" and rest <= COLLAPSED and now["severity"] < 3:
        now["severity"] = 3
        return [_say(chunk, index, now, "level", rest, level)]
    lasts = now["clean"] is None and index - now["onset"] >= LASTS and now["sign"] * rest >= abs(now["shift"]) / 2
    if now["severity"] < now["lasting"] and lasts:
        now["severity"] = now["lasting"]
        return [_say(chunk, index, now, "level", rest, level)]
    return _runs_away(chunk, values, index, rest, now) if chunk.role == "loss" and now["severity"] == 2 else []


def _runs_away(chunk: Chunk, values: Array, index: int, rest: float, now: dict[str, Any]) -> list[Said]:
    at, noise = chunk.at(index), RUNS * now["scale"] / math.sqrt(BLOCK)
    four = block_medians(values[max(at - 4 * BLOCK, -1) + 1 : at + 1])
    if rest < max(now["far"], noise) and not _rises(four, rest, noise, index, now):
        return []
    now["severity"] = 3
    return [_say(chunk, index, now, "divergence", float(four[-1]) - math.log(now["before"]), math.exp(float(four[-1])))]


def _rises(four: Array, rest: float, noise: float, index: int, now: dict[str, Any]) -> bool:
    """Whether four blocks behind the alarm climb, and what wanders about the level that was told does not."""
    rise = float(four[-1] - four[0])
    behind = index - now["since"] >= 4 * BLOCK
    return bool(behind and (np.diff(four) > 0).all() and rise >= max(0.05, noise) and rest >= now["shift"] + rise / 2)
