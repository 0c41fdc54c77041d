"""Slow direction: loss, norms, router entropy, biases and logits, token drops, memory.

Sees: a monotone drift of the logarithm over the last 20 to 100 block medians, blocks of at least five autocorrelation
times: Mann-Kendall on the blocks (p < 1e-3 in two evaluations in a row) and a Theil-Sen slope that amounts to the
role's effect over the window (7 % of a gradient norm, 10 % of another norm); the shortest window that shows it counts.
OLS with Newey-West errors gives the interval that is reported. The level does not matter: 0.28 -> 0.59 over 42,000 steps
alarms, a steady 1.9 does not (marin#9149). S1: a direction asks for attribution; S2 when it has gone on: a gradient norm
by half (marin#9148), a loss by 0.8 % (from 0.4 % on a note: it creeps up at the end of a cooldown, marin#898), a largest
logit to its double (pattern P11), a log-sum-exp by half (P12), router logits to four times (P51).
Parameter norms are judged both ways (a norm that shrinks: P25), the others in the way that harms.
Silent: before 20 blocks; while the window still holds the first tenth of the run; about a drift that is over, until three
quarters of a window are newer than its end.
Fooled by: learning-rate decay (the norm of decayed weights may rise as the rate falls), batch or sequence changes, a
young router whose biases still find their place.
False alarms: see docs/detectors.md.
Units: log per 10,000 steps.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from detectors.hinges import onset
from detectors.noise import BLOCK, CHUNK
from detectors.trends import ENDS, Trend, longer, newey_west, trends
from detectors.window import Chunk, Said, State

DETECTOR = ("direction", 4)
P_VALUE, FADED = 1e-3, 0.05
TWICE = 2
RISEN = math.log(1.5)


@dataclass(frozen=True)
class Drift:
    """Ways that ask for attribution (1 up, -1 down), and the log change over a window that does.

    `least` is the change in the metric's own unit below which none matters, `risen` the log change since the beginning
    that is S2.
    """

    ways: tuple[int, ...] = (1,)
    effect: float = math.log(1.10)
    least: float = 0.0
    risen: float = math.inf


DRIFTS = {
    # a rise of 10 % in 10,000 steps, seen through noise, is heard before those are over: 16 of 16, by 10 % 12 of 16
    "grad_norm": Drift(effect=math.log(1.07), risen=RISEN),
    "update_norm": Drift(),
    "param_norm": Drift((1, -1)),
    "token_drop": Drift(),
    "loss": Drift(effect=0.004, risen=0.008),  # of 400,000 null samples with AR(1) up to 0.9 and 2 % noise one note
    "router_entropy": Drift((-1,), effect=0.005),  # near its ceiling it moves little before it collapses
    "router_bias": Drift(effect=math.log(2)),
    "router_logit": Drift(effect=RISEN, risen=math.log(4)),
    "max_logit": Drift(effect=math.log(1.25), least=1.0, risen=math.log(2)),
    "logsumexp": Drift(least=0.5, risen=RISEN),
    "memory": Drift(effect=math.log(1.02)),
}


def carry(state: State, step: float) -> State:
    """The block medians before `step`: a slow drift outlives a restart."""
    return {name: state[name][state[name][:, 0] < step] for name in ("fine", "coarse") if name in state}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `trend` (S1) and recoveries; evaluated when a chunk is complete."""
    now: dict[str, Any] = {"fires": 0, "over": -1.0, **state}
    said: list[Said] = []
    value = chunk.size if chunk.role == "router_bias" else chunk.log
    for at, index in chunk.wholes():
        now |= longer(now, chunk.step[at], value[at])
        said += _evaluate(chunk, index, now)
    return said, now


def _evaluate(chunk: Chunk, index: int, now: dict[str, Any]) -> list[Said]:
    drift = DRIFTS[chunk.role]
    levels = ((now["fine"], BLOCK), (now["coarse"], CHUNK))
    if now.get("episode") is not None:
        return _goes_on(chunk, index, trends(levels, index + 1), now)
    found = trends(levels, index + 1, drift.effect / 4)
    strong = next((each for each in found if _is_strong(each, drift) and each.early > now["over"]), None)
    now["fires"] = now["fires"] + 1 if strong else 0
    if strong is None or now["fires"] < TWICE:
        return []
    way = 1 if strong.slope > 0 else -1
    # one drift may be told several times: what it began from stays
    base = float(strong.value[:ENDS].mean())
    base = min(now["base"], base, key=lambda level: way * level) if now.get("way") == way else base
    now.update(episode=str(index), faded=0, way=way, base=base, size=strong.size)
    now["onset"] = onset(strong.step, strong.value, strong.slope)
    now["severity"] = 2 if _has_risen(strong, drift, now) else 1
    return [_finding(chunk, index, strong, now)]


def _is_strong(trend: Trend, drift: Drift) -> bool:
    way = 1 if trend.slope > 0 else -1
    if trend.p >= P_VALUE or way not in drift.ways or abs(trend.change) < drift.effect:
        return False
    ends = np.exp(trend.value[-ENDS:].mean()), np.exp(trend.value[:ENDS].mean())
    return abs(float(ends[0] - ends[1])) >= drift.least


def _goes_on(chunk: Chunk, index: int, found: Iterable[Trend], now: dict[str, Any]) -> list[Said]:
    """The end of an episode, or that it has grown to S2 (marin#9148: 0.28 to 0.59), by blocks no shorter than its own."""
    trend = next((each for each in found if each.size >= now["size"]), None)
    if trend is None:
        return []
    now["faded"] = 0 if trend.p < FADED and now["way"] * trend.slope > 0 else now["faded"] + 1
    if now["faded"] >= TWICE:
        episode, now["episode"] = now["episode"], None
        now.update(fires=0, over=float(trend.step[-1]))  # longer windows still hold what is over
        return [chunk.recovery(DETECTOR, episode, index)]
    if now["severity"] > 1 or not _has_risen(trend, DRIFTS[chunk.role], now):
        return []
    now["severity"] = 2
    return [_finding(chunk, index, trend, now)]


def _has_risen(trend: Trend, drift: Drift, now: dict[str, Any]) -> bool:
    return bool(now["way"] * (float(trend.value[-ENDS:].mean()) - now["base"]) >= drift.risen)


def _finding(chunk: Chunk, index: int, trend: Trend, now: dict[str, Any]) -> Said:
    low, high = newey_west(trend.step, trend.value)
    before, began, after = (
        math.exp(each) for each in (trend.value[:ENDS].mean(), now["base"], trend.value[-ENDS:].mean())
    )
    return chunk.finding(
        DETECTOR,
        "trend",
        index,
        index,
        now["severity"],
        now["episode"],
        direction="up" if trend.slope > 0 else "down",
        magnitude=trend.slope * 1e4,
        unit="log per 10,000 steps",
        onset_step=now["onset"],
        slope_per_10k=trend.slope * 1e4,
        interval_per_10k=[low * 1e4, high * 1e4],
        p=trend.p,
        blocks=len(trend.step),
        block_samples=trend.size,
        before=before,
        began_from=began,
        after=after,
    )
