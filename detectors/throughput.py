"""Slow steps: MFU, throughput and step time.

Sees: at least 12 of the last 20 samples worse than the trailing median (256 samples, one block apart) by 3 % or three
relative scatters (of samples in a block of 16, or of the block medians), whichever is more; so evaluation and
checkpoint pauses (about 2 % of the steps) do not count, and a bimodal step time or a machine shared with others widens
its own gate. S1 at once; S2 when it lasts for 64 samples, and, where two or more slow spells ended by themselves
before, for twice the longest of the last eight. One that began in the first 272 samples must be 10 % for that: the
step of a young run slows by 3 to 5 % as it warms up, and its reference has not seen how it wanders. The reference is
frozen until the metric is back.
A lone step above five times the median is annotated (S0).
Silent: before 100 samples; on sentinels (MFU -100) and on the first sample after a restart.
Fooled by: an announced change of batch, sequence length or hardware; a metric averaged over a window that changes.
False alarms: see docs/detectors.md. Source: the rule measured on open Megatron and SmolLM3 logs (statistics D9).
Units: change as a fraction of the reference.
"""

from typing import Any

import numpy as np

from detectors.noise import BLOCK, CHUNK, NORMAL_MAD, block_medians, row_median, windows
from detectors.series import SLOW_IS_HIGH, Array
from detectors.window import Chunk, Said, State

DETECTOR = ("throughput", 3)
LEAST = 0.03
SCATTERS = 3.0
LAST, LOW = 20, 12  # samples
REFERENCE = 16  # blocks
MIN_SAMPLES = 112
GROWN = (REFERENCE + 1) * BLOCK  # samples until the reference is whole
YOUNG = 0.1  # least slow-down (share) that is S2 before that: a step slows by some percent as a run warms up
LASTS = 64  # samples after which a slow-down is no hiccup
SPELLS = 8  # slow spells that are remembered
FROZEN = 4096  # samples after which a new level is the reference
LONE = 5.0


def carry(state: State, step: float) -> State:
    """The slow spells of the parent; its tail gives the reference."""
    del step
    return {key: state[key] for key in ("spells",) if key in state}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `level` (S2), `spike` (S0), and recoveries."""
    speed = _speed(chunk)
    typical, gate = _reference(speed, chunk)
    ratio = speed[chunk.offset :] / typical
    now: dict[str, Any] = {"low": [], "spells": [], **state}
    low = ratio < gate
    flags = np.concatenate([np.zeros(LAST - len(now["low"]), bool), np.array(now["low"], bool), low])
    crowd = np.convolve(flags, np.ones(LAST, int))[LAST : LAST + len(low)]
    said: list[Said] = []
    for begin in range(0, len(low), CHUNK):
        if now.get("episode") is None and not low[begin : begin + CHUNK].any():
            continue
        for k in range(begin, min(begin + CHUNK, len(low))):
            if now.get("episode") is not None:
                said += _continues(chunk, k, float(speed[chunk.offset + k]), now)
            elif low[k] and crowd[k] >= LOW:
                said += _opens(chunk, k, speed, flags[k + 1 : k + 1 + LAST], float(typical[k]), float(gate[k]), now)
            elif ratio[k] < 1 / LONE and chunk.start + k != now.get("launch"):
                said += _lone(chunk, k, float(typical[k]), float(ratio[k]))
    now["low"] = flags[-LAST:].tolist()
    return said, now


def _speed(chunk: Chunk) -> Array:
    """The metric so that high is good."""
    values = np.where(np.isfinite(chunk.value) & (chunk.value > 0), chunk.value, np.nan)
    return 1 / values if chunk.role in SLOW_IS_HIGH else values


def _reference(speed: Array, chunk: Chunk) -> tuple[Array, Array]:
    """Trailing median of each new sample, from blocks that end one block before its own, and the share of it that is slow."""
    size = len(speed) - chunk.offset
    first, rows = chunk.offset // BLOCK, -(-size // BLOCK)
    medians = block_medians(speed)
    inner = block_medians(np.abs(speed[: len(medians) * BLOCK].reshape(-1, BLOCK) - medians[:, None]).reshape(-1))
    typical, scatter = (row_median(windows(part, first, rows, REFERENCE, 1)) for part in (medians, inner))
    wander = row_median(
        np.abs(windows(medians, first, rows, REFERENCE, 1) - typical[:, None])
    )  # a machine shared by others
    each = np.repeat(np.arange(rows), BLOCK)[:size]
    gate = 1 - np.maximum(LEAST, SCATTERS * NORMAL_MAD * np.maximum(scatter, wander) / typical)
    typical = typical[each]
    typical[: max(0, MIN_SAMPLES - chunk.start)] = np.nan
    return typical, gate[each]


def _plain(chunk: Chunk, speed: float) -> float:
    return 1 / speed if chunk.role in SLOW_IS_HIGH else speed


def _opens(
    chunk: Chunk, k: int, speed: Array, flags: Any, typical: float, gate: float, now: dict[str, Any]
) -> list[Said]:
    index = chunk.start + k
    at = chunk.at(index)
    onset = index - (LAST - 1 - int(np.argmax(flags)))
    level = float(np.nanmedian(speed[max(chunk.at(onset), 0) : at + 1]))
    if level >= gate * typical:
        return []
    now.update(
        episode=str(index),
        typical=typical,
        gate=gate,
        since=index,
        fine=0,
        onset=onset,
        lasts=False,
        recent=[],
        onset_step=float(chunk.step[chunk.at(onset)]),
    )
    return [_level(chunk, index, 1, level, now)]


def _continues(chunk: Chunk, k: int, speed: float, now: dict[str, Any]) -> list[Said]:
    """Back when 20 samples in a row but for pauses are above the gate; after 4,096 samples the new level is normal."""
    index = chunk.start + k
    if np.isfinite(speed):
        now["fine"] = now["fine"] + 1 if speed >= now["gate"] * now["typical"] else max(0, now["fine"] - LAST // 4)
    if now["fine"] >= LAST:
        said = [chunk.recovery(DETECTOR, now["episode"], index)]
        now.update(episode=None, spells=[*now["spells"], index - LAST - now["onset"] + 1][-SPELLS:])
        return said
    young = now["onset"] < GROWN
    if index - now["since"] >= (GROWN if young else FROZEN):
        now["episode"] = None
    now["recent"] = [*now["recent"], speed][-2 * LAST :]
    least = max(LASTS, 2 * max(now["spells"])) if len(now["spells"]) > 1 else LASTS
    if now["lasts"] or index - now["onset"] + 1 < least:
        return []
    level = float(np.nanmedian(now["recent"]))
    gate = min(now["gate"], 1 - YOUNG) if young else now["gate"]
    now["lasts"] = level < gate * now["typical"]
    return [_level(chunk, index, 2, level, now)] if now["lasts"] else []


def _level(chunk: Chunk, index: int, severity: int, level: float, now: dict[str, Any]) -> Said:
    return chunk.finding(
        DETECTOR,
        "level",
        now["onset"],
        index,
        severity,
        now["episode"],
        direction="up" if chunk.role in SLOW_IS_HIGH else "down",
        magnitude=_plain(chunk, level) / _plain(chunk, now["typical"]) - 1,
        unit="fraction",
        onset_step=now["onset_step"],
        before=_plain(chunk, now["typical"]),
        after=_plain(chunk, level),
    )


def _lone(chunk: Chunk, k: int, typical: float, ratio: float) -> list[Said]:
    index = chunk.start + k
    episode = f"lone:{index}"
    found = chunk.finding(
        DETECTOR,
        "spike",
        index,
        index,
        0,
        episode,
        direction="up" if chunk.role in SLOW_IS_HIGH else "down",
        magnitude=_plain(chunk, typical * ratio) / _plain(chunk, typical) - 1,
        unit="fraction",
        before=_plain(chunk, typical),
        after=_plain(chunk, typical * ratio),
    )
    return [found, chunk.recovery(DETECTOR, episode, index)]
