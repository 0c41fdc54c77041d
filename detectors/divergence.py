"""Catastrophe in the loss: at least twice its best, and staying there.

Sees: two samples in a row at or above twice the best level so far (the lowest block median, at first the lowest
median of three, so that one lucky sample sets no record). It needs no noise model and runs from the second sample on,
hence it covers the first minutes of a run, resets of the weights, and explosions. S3; S4 when 25 samples later it is
still there and not falling.
Silent: where the loss is not positive, where the rise is under 2 % of the first loss (a loss near zero doubles by
noise), and where it is within four times the scatter of the sixteen samples before. A declared change of the data
(`data_mix`, `sequence_length`) begins a new best, as the first sample of a run does: the level it brings is the change's
doing, twice that level is not.
Fooled by: a task whose loss is reset on purpose (a curriculum): declare the event.
False alarms: 0 on the healthy recorded runs. Units: log ratio to the best.
"""

import math
from typing import Any

import numpy as np

from detectors.noise import BLOCK, NORMAL_MAD, block_medians
from detectors.series import Array
from detectors.window import Chunk, Said, State

DETECTOR = ("divergence", 2)
FACTOR = 2.0
BACK = math.sqrt(2.0)  # hysteresis: below this multiple of the best ...
CALM = 10  # ... for so many samples ends the episode
VERDICT = 25  # samples after which it must be falling ...
FALLING = 0.9  # ... to below this share of where it stood
RESETS = frozenset({"data_mix", "sequence_length"})  # events after which another loss is another task's


def carry(state: State, step: float) -> State:
    """The best loss of the parent stays the bar (its abandoned steps may have set it by a little)."""
    del step
    return {key: state[key] for key in ("start", "best") if key in state}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `divergence` at S3 and S4, and the recovery."""
    new = chunk.value[chunk.offset :]
    bars, best = _bars(chunk, state.get("best", math.inf))
    first = next((float(v) for v in new if np.isfinite(v)), None) if state.get("start") is None else state["start"]
    now: dict[str, Any] = {**state, "start": first, "best": best}
    with np.errstate(invalid="ignore"):
        high = new >= FACTOR * bars
    if now.get("episode") is None and not high.any():
        return [], now
    said: list[Said] = []
    for k, index in enumerate(chunk.indices):
        if now.get("episode") is not None:
            said += _continues(chunk, index, float(new[k]), now)
        elif high[k]:
            said += _opens(chunk, index, float(bars[k]), now)
    return said, now


def _bars(chunk: Chunk, best: float) -> tuple[Array, float]:
    """The best level that each new sample is held against, and the best at the end of the last whole block.

    Levels are block medians (a lucky sample sets no record); in the first two blocks of a run or of other data medians of
    three, up to two samples back, so that a pair cannot lower its own bar.
    """
    size, turns = len(chunk.indices), _turns(chunk)
    medians = block_medians(chunk.value[chunk.offset :])
    levels = np.concatenate([[best], np.where(np.isfinite(medians), medians, np.inf)])
    # behind each turn only blocks that lie wholly behind it count
    firsts = [first for turn in turns if 0 <= (first := -(-turn // BLOCK)) < len(levels)]
    levels[firsts] = np.inf
    levels = np.concatenate([np.minimum.accumulate(part) for part in np.split(levels, firsts)])
    bars = np.repeat(levels[: -(-size // BLOCK)], BLOCK)[:size]
    for turn in turns:
        middle = _middle(chunk.value[turn + chunk.offset :][: 2 * BLOCK])
        young = np.concatenate([[np.inf, np.inf], np.minimum.accumulate(middle)])
        low, high = max(turn, 0), min(turn + 2 * BLOCK, size)
        bars[low:high] = young[low - turn : high - turn]
    return bars, float(levels[-1])


def _turns(chunk: Chunk) -> list[int]:
    """Where, from the chunk's first sample on, a level is new: at the start of the run and at each change of the data,
    or where that became known."""
    told = [max(step, since) for step, kind, since in chunk.events if kind in RESETS]
    at = [int(np.searchsorted(chunk.step, step)) - chunk.offset for step in told]
    start = [0] if chunk.start == 0 else []
    return sorted({*start, *(turn for turn in at if -2 * BLOCK < turn < len(chunk.indices))})


def _middle(values: Array) -> Array:
    """Median of each sample and the two before it; the larger of the first two. Non-finite counts as high."""
    finite = np.where(np.isfinite(values), values, np.inf)
    middle: Array = np.median(
        np.lib.stride_tricks.sliding_window_view(np.concatenate([[-np.inf] * 2, finite]), 3), axis=1
    )
    middle[0] = finite[0]
    middle[1:2] = finite[:2].max()
    return middle


def _opens(chunk: Chunk, index: int, best: float, now: dict[str, Any]) -> list[Said]:
    at = chunk.at(index)
    if at < 1 or not (0 < best < np.inf) or now["start"] is None:
        return []
    pair = chunk.value[at - 1 : at + 1]
    rise = float(np.min(np.where(np.isnan(pair), -np.inf, pair)))
    if rise < FACTOR * best or rise - best < 0.02 * abs(now["start"]) or not _beyond_scatter(chunk, at - 1, rise):
        return []
    onset = at - 1
    while onset > 0 and chunk.value[onset - 1] >= BACK * best and at - onset < CALM:
        onset -= 1
    onset_index = onset + chunk.first
    top = float(np.nanmax(pair))
    now.update(
        episode=str(index),
        onset=onset_index,
        onset_step=float(chunk.step[onset]),
        reference=best,
        calm=0,
        graded=False,
        recent=[rise],
    )
    return [
        chunk.finding(
            DETECTOR,
            "divergence",
            onset_index,
            index,
            3,
            str(index),
            direction="up",
            magnitude=math.log(min(top, 1e300) / best),
            unit="log",
            before=best,
            after=float(pair[1]),
            peak=top,
        )
    ]


def _beyond_scatter(chunk: Chunk, at: int, value: float) -> bool:
    """Whether value is far outside the scatter of the samples before `at`, where there are enough of them."""
    before = chunk.value[max(0, at - BLOCK) : at]
    before = before[np.isfinite(before)]
    if len(before) < BLOCK // 2:
        return True
    middle = float(np.median(before))
    return value - middle > 4 * NORMAL_MAD * float(np.median(np.abs(before - middle)))


def _continues(chunk: Chunk, index: int, value: float, now: dict[str, Any]) -> list[Said]:
    """An open episode: the verdict after 25 samples, and the way back."""
    if not math.isfinite(value):
        return []
    best = now["reference"]
    now["calm"] = now["calm"] + 1 if value < BACK * best else 0
    now["recent"] = [*now["recent"], value][-VERDICT:]
    if now["calm"] >= CALM:
        said = [chunk.recovery(DETECTOR, now["episode"], index)]
        now.update(episode=None, recent=[])
        return said
    recent = now["recent"]
    if now["graded"] or len(recent) < VERDICT:
        return []
    now["graded"] = True
    last = float(np.median(recent[-5:]))
    if last < FACTOR * best or last < FALLING * float(np.median(recent[:10])):
        return []
    return [
        chunk.finding(
            DETECTOR,
            "divergence",
            now["onset"],
            index,
            4,
            now["episode"],
            direction="up",
            magnitude=math.log(last / best),
            unit="log",
            onset_step=now["onset_step"],
            before=best,
            after=last,
            peak=max(recent),
        )
    ]
