"""How often things happen: loss spikes and skipped steps that come three times as often as before.

Sees: a Poisson CUSUM over single events, against the rate of the 10,000 samples that ended 1,000 before (one event more than were
seen, so never below 1 in 10,000), tuned to three times that rate, with a mean time between false alarms of at least
200,000 samples by its likelihood-ratio bound: S1. Five events in the last 1,000 samples, three times what was
expected, with p < 1e-5: S2. If spikes fill 2 % of those 1,000 samples, or skips a fifth of the last 100: S3 (patterns
P04, P29; marin#1368 had 5 % of 2,500 steps in spikes before the last one). A spike is an excursion of 6 robust scales,
as in detectors/spikes.py; a skip is a rise of a counter or a flag that is up.
Silent: before 2,000 samples; on rates that were high from the start.
Fooled by: data whose difficulty changes in bursts; a flag that stays up without ever having come down (it reads as a counter).
False alarms: see docs/detectors.md. Units: log ratio of the rates. Source: statistics D8.
"""

import math
from typing import Any

import numpy as np

from detectors.window import Chunk, Said, State

DETECTOR = ("rates", 1)
K = 6.0
APART = 8  # samples under half the bar between two excursions
REFERENCE, RECENT = 10_000, 1_000  # samples
RATIO = math.log(3)
BETWEEN = 2e5  # samples between false alarms
LEAST = 3  # events
FEW, P = 5, 1e-5  # a test at every event needs more than the 1e-3 of a single one
IN_SPIKES = 0.02  # of RECENT
SKIPPED, OF = 20, 100
MEMORY = 2_000  # events


def carry(state: State, step: float) -> State:
    """The rate of the parent. Its events keep their distance from the attempt's own, whose indices go on."""
    del step
    return {key: state[key] for key in ("events", "began") if key in state}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `level` (S1..S3) and recoveries."""
    now: dict[str, Any] = {
        "events": [],
        "sum": 0.0,
        "since": 0,
        "began": chunk.start,
        "episode": None,
        "inside": [],
        **state,
    }
    now["events"] = [i for i in now["events"] if i < chunk.start]  # a new attempt is shown the parent's tail again
    said: list[Said] = []
    for index, is_new in _spikes(chunk, now) if chunk.role == "loss" else _skips(chunk, now):
        said += _ends(chunk, index, now)
        now["inside"] = [*(i for i in now["inside"] if i > index - RECENT), index]
        if is_new:
            now["events"] = [*(i for i in now["events"] if i > index - RECENT - REFERENCE), index][-MEMORY:]
            _sum(chunk, index, now)
        said += _judge(chunk, index, now)
    said += _ends(chunk, chunk.end - 1, now)
    return said, now


def _spikes(chunk: Chunk, now: dict[str, Any]) -> list[tuple[int, bool]]:
    """Samples inside an excursion of the loss, and whether each begins one."""
    base = chunk.expected
    with np.errstate(invalid="ignore", divide="ignore"):
        z = (chunk.log[chunk.offset :] - base.mean) / np.where(base.wander > 0, base.wander, np.nan)
    out = []
    for k in np.flatnonzero(z >= K / 2).tolist():
        index = chunk.start + k
        goes_on = index - now.get("out", -APART) < APART
        if goes_on or z[k] >= K:
            out.append((index, not goes_on))
            now["out"] = index
    return out


def _skips(chunk: Chunk, now: dict[str, Any]) -> list[tuple[int, bool]]:
    """Samples at which a counter rose, or at which a flag was up: a value that came down before is no counter."""
    out = []
    last, falls = now.get("last"), now.get("falls", False)
    for index, value in zip(chunk.indices, chunk.value[chunk.offset :].tolist(), strict=True):
        if not math.isfinite(value):
            continue
        if last is not None:
            falls = falls or value < last
            if value > last or (falls and value > 0):
                out.append((index, True))
        last = value
    now.update(last=last, falls=falls)
    return out


def _expected(index: int, now: dict[str, Any]) -> float | None:
    """Events a sample in the reference; None while that is too short."""
    stop = index - RECENT
    size = int(min(stop - now["began"], REFERENCE))
    if size < RECENT:
        return None
    count = sum(1 for i in now["events"] if stop - size <= i < stop)
    return (count + 1) / size


def _sum(chunk: Chunk, index: int, now: dict[str, Any]) -> None:
    """The log likelihood ratio that the rate is threefold. It is brought up to date at events only, so slices agree."""
    usual = _expected(index, now)
    last, now["at"] = now.get("at", index), index
    if usual is not None:
        left = max(0.0, now["sum"] - 2 * usual * (index - last))
        now["sum"] = left + RATIO
        if not left:
            now.update(since=index, since_step=float(chunk.step[chunk.at(index)]))


def _judge(chunk: Chunk, index: int, now: dict[str, Any]) -> list[Said]:
    usual = _expected(index, now)
    if usual is None:
        return []
    span = max(RECENT, index - now["since"])  # from the event on with which the sum began to grow
    recent = [i for i in now["events"] if i >= index - span]
    alarm = now["sum"] >= max(math.log(BETWEEN * usual), RATIO) and len(recent) >= LEAST
    if not alarm and now["episode"] is None:
        return []
    severity = _severity(chunk.role, index, recent, usual * span, now)
    if now["episode"] is None:
        now.update(episode=str(index), onset=now["since_step"], severity=-1)
    if severity <= now["severity"]:
        return []
    now["severity"] = severity
    return [
        chunk.finding(
            DETECTOR,
            "level",
            index,
            index,
            severity,
            now["episode"],
            direction="up",
            magnitude=math.log(len(recent) / (usual * span)),
            unit="log",
            onset_step=now["onset"],
            events=len(recent),
            of_samples=span,
            usual=usual * span,
            p=tail(len(recent), usual * span),
            in_spikes=len(now["inside"]) / RECENT,
        )
    ]


def _severity(role: str, index: int, recent: list[int], usual: float, now: dict[str, Any]) -> int:
    count = len(recent)
    if count < FEW or count < 3 * usual or tail(count, usual) >= P:
        return 1
    if role == "loss":
        return 3 if len(now["inside"]) >= IN_SPIKES * RECENT else 2
    return 3 if sum(i > index - OF for i in recent) >= SKIPPED else 2


def tail(count: int, mean: float) -> float:
    """Probability of at least `count` events where `mean` are expected (Poisson)."""
    below, term = 0.0, math.exp(-mean)
    for k in range(count):
        below += term
        term *= mean / (k + 1)
    return max(0.0, 1.0 - below)


def _ends(chunk: Chunk, index: int, now: dict[str, Any]) -> list[Said]:
    """Over once RECENT samples up to `index` had no event."""
    if now["episode"] is None or index < now["inside"][-1] + RECENT:
        return []
    said = [chunk.recovery(DETECTOR, now["episode"], now["inside"][-1] + RECENT)]
    now.update(episode=None, sum=0.0)
    return said
