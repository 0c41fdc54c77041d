"""A slow slide of the speed: MFU, throughput or step time that loses a little in every thousand steps.

Sees: at the end of a chunk, from medians of 64 samples: since its best of the last 4,096 samples (the median of three) the
speed has lost 5 % over at least 512 samples, bit by bit: no two medians hold half of the loss (a step is `throughput`'s),
four of five pairs of medians fall, and the loss is six times what they scatter about their line, and four times what
those before scattered. S2. One that began in
the first 1,024 samples must be 10 %: the step of a young run slows by some percent as it warms up.
Silent: before 1,024 samples; over a declared change of batch, length or deploy, which begins anew.
Fooled by: work that grows on purpose without a declared event (longer documents in a curriculum).
False alarms: see docs/detectors.md. Source: failure pattern of throttling, fragmentation and leaks (statistics D9 is deaf to
what its trailing reference follows). Units: change as a fraction of the best.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from detectors.noise import CHUNK, NORMAL_MAD
from detectors.series import SLOW_IS_HIGH, Array
from detectors.window import Chunk, Said, State

DETECTOR = ("slide", 1)
PART = 64  # samples of a median
KEPT = 64  # medians
LEAST, YOUNG_LEAST = 0.05, 0.1  # share of the best
YOUNG = 1024  # samples
LONG = 8  # medians
TOGETHER = 0.5  # share of the loss between two medians that makes it a step
FALL = 0.8  # share of the pairs of medians that fall
SCATTERS, WANDERS = 6.0, 4.0  # about the line; before it began
BACK = 0.02  # share of the best
ANEW = frozenset({"batch_size", "sequence_length", "deploy"})


def carry(state: State, step: float) -> State:
    """Nothing: a restart may run on other machines."""
    del state, step
    return {}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `trend` (S2) and recoveries, when a chunk is complete."""
    now: dict[str, Any] = {"parts": [], "episode": None, **state}
    said: list[Said] = []
    for at, index in chunk.wholes():
        _takes(chunk, at, index, now)
        said += _continues(chunk, index, now) if now["episode"] is not None else _opens(chunk, index, now)
    return said, now


def _takes(chunk: Chunk, at: slice, index: int, now: dict[str, Any]) -> None:
    """First index, first step and median of each part of a chunk, after those that are kept, from the newest change on."""
    values = chunk.value[at].reshape(-1, PART)
    speed = np.where(np.isfinite(values) & (values > 0), values, np.nan)
    if chunk.role in SLOW_IS_HIGH:
        speed = 1 / speed
    steps, parts = chunk.step[at].reshape(-1, PART)[:, 0], list(now["parts"])
    for k in np.flatnonzero(np.isfinite(speed).sum(axis=1) > PART // 2):
        parts.append((index - CHUNK + 1 + PART * int(k), float(steps[k]), float(np.nanmedian(speed[k]))))
    known = (step for step, kind, since in chunk.events if kind in ANEW and max(step, since) <= chunk.step[at][-1])
    turn = max(known, default=-np.inf)
    now["parts"] = [list(part) for part in parts if part[1] >= turn][-KEPT:]


def _opens(chunk: Chunk, index: int, now: dict[str, Any]) -> list[Said]:
    if index < YOUNG or len(now["parts"]) < LONG + 3:
        return []
    medians = np.array([median for _, _, median in now["parts"]])
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(medians, 3), axis=1)
    best, last = float(smooth.max()), float(smooth[-1])
    # it began where it last was as good as its best, but for what medians scatter from one to the next
    near = NORMAL_MAD * float(np.median(np.abs(np.diff(medians))))
    begin = int(np.flatnonzero(smooth >= best - near)[-1])
    if len(medians) - begin - 1 < LONG:
        return []
    lost = 1 - last / best
    first, onset, _ = now["parts"][begin + 1]
    if lost < (YOUNG_LEAST if first < YOUNG else LEAST) or not _bit_by_bit(medians, begin, best - last):
        return []
    now.update(episode=str(index), best=best, since=index)
    before, after = (1 / best, 1 / last) if chunk.role in SLOW_IS_HIGH else (best, last)
    return [
        chunk.finding(
            DETECTOR,
            "trend",
            index,
            index,
            2,
            now["episode"],
            direction="up" if chunk.role in SLOW_IS_HIGH else "down",
            magnitude=after / before - 1,
            unit="fraction",
            onset_step=onset,
            before=before,
            after=after,
        )
    ]


def _bit_by_bit(medians: Array, begin: int, lost: float) -> bool:
    """Whether a loss is spread over the medians behind `begin`, most of which fall, and stands out from how they scatter.

    They scatter about their line, and those before about their middle: a machine that is shared wanders.
    """
    before, part = medians[: begin + 1], medians[begin + 1 :]
    if max((a - b for a, b in pairwise(part.tolist())), default=0.0) > TOGETHER * lost:
        return False
    first, second = np.triu_indices(len(part), 1)
    slopes = (part[second] - part[first]) / (second - first)
    rest = part - np.median(slopes) * np.arange(len(part))
    least = max(SCATTERS * _scatter(rest), WANDERS * _scatter(before))
    return float(np.mean(slopes < 0)) >= FALL and lost >= least


def _scatter(values: Array) -> float:
    return NORMAL_MAD * float(np.median(np.abs(values - np.median(values))))


def _continues(chunk: Chunk, index: int, now: dict[str, Any]) -> list[Said]:
    """Over when a whole chunk is back at the best; after 4,096 samples what it is has become usual."""
    episode = now["episode"]
    last = [median for _, _, median in now["parts"][-CHUNK // PART :]]
    if last and min(last) >= (1 - BACK) * now["best"]:
        now["episode"] = None
        return [chunk.recovery(DETECTOR, episode, index)]
    if index - now["since"] >= KEPT * PART:
        now.update(episode=None, parts=[])
    return []
