"""Whether a falling learning rate explains the rise of a gradient norm: the exponent is fitted, never assumed.

Sees: the trend of `direction` on a whole-run gradient norm while the learning rate fell by 20 % within its window.
The exponent beta of norm ~ rate^-beta is fitted on the blocks before the window, warmup left out: OLS of log norm on
log(1 / rate) and the step with Newey-West errors, if the rate varied there by half and the fit is significant; it is
cut to [0, 1/2] (the law of weight decay, arXiv:2506.02285). Says how loud the trend may be, S0 as an annotation:
`cap` 1 while beta is not known; else 0, 1 or 4 as the trend of what is left after beta log(1 / rate) is none, one of
10 %, or one of half.
The norm of llm.c's GPT-2 124M falls as the rate goes to 0: an exponent of 1/2 for all would hide a real rise (pattern P14).
Silent: while the rate stands still, without a learning rate, on a fall.
Fooled by: a norm that drifted for another reason while the rate fell before.
False alarms: see docs/detectors.md.
Units: log of the norm over the window.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from detectors.finding import Answer, Finding, Recovery
from detectors.hinges import onset
from detectors.noise import BLOCK, CHUNK
from detectors.sections import Blocks, Leaves
from detectors.series import Array
from detectors.trends import KEPT, Trend, least_squares, mann_kendall, theil_sen, trends

DETECTOR = ("ratelaw", 1)
EVERY = CHUNK // BLOCK
P_VALUE = 1e-3
FIT = 2.58  # standard errors, p = 0.01
EFFECT, RISEN = math.log(1.10), math.log(1.5)
FELL = 0.2
VARIED = math.log(1.5)  # of the rate before the window
FEWEST = 20  # blocks before the window
MOST_BETA = 0.5
UNKNOWN, FREE = 1, 4  # severities
TWICE = 2


def carry(state: Mapping[str, Any], step: float) -> dict[str, Any]:
    """What the parent knew before `step`: an exponent is worth more than a restart."""
    norms = {
        name: {level: each[level][each[level][:, 0] < step] for level in ("fine", "coarse")}
        for name, each in state.get("norms", {}).items()
    }
    return {"norms": norms}


def scan(new: Blocks, leaves: Leaves, state: Mapping[str, Any]) -> tuple[list[Answer], dict[str, Any]]:
    """Findings `trend` (S0) with recoveries, at every sixteenth block of a norm.

    A block of a norm waits until the learning rate (the first by name) has passed its step.
    """
    rates = dict(state.get("rates", {}))
    for name in (name for name in new if leaves[name][0] == "learning_rate"):
        rates[name] = np.concatenate([rates.get(name, np.empty((0, 2))), _logs(new[name])[:, 1:]])
    waiting = dict(state.get("waiting", {}))
    for name in (name for name in new if leaves[name][0] == "grad_norm"):
        waiting[name] = np.concatenate([waiting.get(name, np.empty((0, 3))), _logs(new[name])])
    rate = rates[min(rates)] if rates else np.empty((0, 2))
    if not len(rate):
        return [], {**state, "waiting": {name: rows[-KEPT:] for name, rows in waiting.items()}}
    norms, said = dict(state.get("norms", {})), []
    for name, rows in sorted(waiting.items()):
        ready = rows[rows[:, 1] <= rate[-1, 0]]
        waiting[name] = rows[len(ready) :][-KEPT:]
        known = np.interp(ready[:, 1], rate[:, 0], rate[:, 1])
        norms[name], found = _take(name, np.column_stack([ready, known]), norms.get(name, {}))
        said += found
    last = min((rows[0, 1] for rows in waiting.values() if len(rows)), default=rate[-1, 0])
    rates = {each: rows[max(0, int(np.searchsorted(rows[:, 0], last)) - 1) :] for each, rows in rates.items()}
    return said, {"rates": rates, "waiting": waiting, "norms": norms}


def _logs(rows: Array) -> Array:
    """Blocks with the logarithm of their value; NaN where it is not positive."""
    value = rows[:, 2]
    return np.column_stack([rows[:, :2], np.log(np.where(value > 0, value, np.nan))])


def _take(name: str, rows: Array, state: Mapping[str, Any]) -> tuple[dict[str, Any], list[Answer]]:
    """Judge blocks of one norm: number, step, log norm, log rate."""
    now = {"fine": np.empty((0, 3)), "coarse": np.empty((0, 3)), "cap": FREE, "other": 0, "episode": "", **state}
    said: list[Answer] = []
    for row in rows:
        block = int(row[0])
        now["fine"] = np.concatenate([now["fine"], row[None, 1:]])[-KEPT:]
        if block % EVERY == EVERY - 1:
            last = now["fine"][-EVERY:]
            good = last[np.isfinite(last).all(axis=1)]
            middle = np.median(good[:, 1:], axis=0) if len(good) else np.full(2, np.nan)
            now["coarse"] = np.concatenate([now["coarse"], [[row[1], *middle]]])[-KEPT:]
            said += _judge(name, block, now)
    return now, said


def _judge(name: str, block: int, now: dict[str, Any]) -> list[Answer]:
    levels = ((now["fine"][:, :2], BLOCK), (now["coarse"][:, :2], CHUNK))
    found = trends(levels, (block + 1) * BLOCK, EFFECT / 4)
    strong = next((each for each in found if each.p < P_VALUE and each.change >= EFFECT), None)
    cap, numbers = (FREE, {}) if strong is None else _cap(strong, now["coarse" if strong.size >= CHUNK else "fine"])
    now["other"] = now["other"] + 1 if cap != now["cap"] else 0
    if cap == now["cap"] or (now["cap"] != FREE and now["other"] < TWICE):
        return []
    step = float(now["fine"][-1, 0])
    said: list[Answer] = [Recovery(DETECTOR[0], name, now["episode"], step)] if now["episode"] else []
    now.update(cap=cap, other=0, episode="" if strong is None else str(block))
    if strong is None:
        return said
    cadence = float(strong.step[-1] - strong.step[0]) / ((len(strong.step) - 1) * strong.size)
    evidence = {"cap": cap, **numbers, "block_samples": strong.size, "blocks": len(strong.step)}
    began = onset(strong.step, strong.value, strong.slope)
    return [*said, Finding(
        *DETECTOR, "trend", name, "grad_norm", "up", began, step, strong.change, "log", 0, str(block),
        evidence | {"samples": (block + 1) * BLOCK, "cadence": cadence},
    )]  # fmt: skip


def _cap(trend: Trend, rows: Array) -> tuple[int, dict[str, Any]]:
    """How loud a trend may be by its window's learning rate."""
    good = rows[np.isfinite(rows).all(axis=1)]
    rate = np.interp(trend.step, good[:, 0], good[:, 2])
    fell = 1 - math.exp(rate[-1] - rate[0])
    if fell < FELL:
        return FREE, {"rate_fell": fell}
    beta = exponent(good[good[:, 0] < trend.step[0]])
    if beta is None:
        return UNKNOWN, {"rate_fell": fell, "beta": None}
    left = trend.value + beta * rate
    slope = theil_sen(trend.step, left) * float(trend.step[-1] - trend.step[0])
    remains = slope >= EFFECT and mann_kendall(left) < P_VALUE
    cap = FREE if remains and slope >= RISEN else UNKNOWN if remains else 0
    return cap, {"rate_fell": fell, "beta": beta, "left": slope}


def exponent(rows: Array) -> float | None:
    """beta of norm ~ rate^-beta in [0, 1/2] from rows (n, 3) of step, log norm, log rate; None where it is not known."""
    if not len(rows):
        return None
    decays = rows[int(np.argmax(rows[:, 2] >= rows[:, 2].max() - 1e-6)) :]  # warmup left out
    if len(decays) < FEWEST or np.ptp(decays[:, 2]) < VARIED:
        return None
    time = (decays[:, 0] - decays[0, 0]) / (decays[-1, 0] - decays[0, 0])
    x = np.column_stack([-decays[:, 2], np.ones(len(decays)), time])
    beta, covariance = least_squares(x, decays[:, 1])
    sure = beta[0] ** 2 > FIT**2 * covariance[0, 0]
    return float(np.clip(beta[0], 0.0, MOST_BETA)) if sure else None
