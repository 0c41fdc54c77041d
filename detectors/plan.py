"""A run that is not where its plan has it: learning rate, batch, context, tokens, checkpoints, and its end.

Sees: three samples in a row off the plan: a learning rate by more than 1 % (S2; more than 10 % S3; more than twice the
planned one S4), a batch size, sequence length or tokens a step by more than 0.1 % (S3, pattern P72: whatever is compared
by tokens is wrong from there on), samples behind the last planned step (S2). A newest checkpoint older than two planned
intervals is S3 at once (P76). The plan of the step before and of the step behind count as well: trainers number steps
from 0 or from 1. Recovers at three samples that are on the plan again.
A rate is held to the plan itself where it is called `learning_rate` or `lr`; another one (of a group of parameters) to the
plan times the factor of its first three samples at which a step more or less makes no difference.
Silent: on what the plan does not say; on a count of tokens that falls.
Fooled by: a plan that was changed and not written down. False alarms: none by construction.
Units: log ratio to the plan; steps for the end and for checkpoints.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from detectors.finding import Answer, Finding, Recovery
from detectors.printed import last_digit
from detectors.series import Array

DETECTOR = ("plan", 1)
ROW = 3  # samples
SIZES = ("batch_size", "sequence_length", "tokens")
ROLES = frozenset({"learning_rate", "loss", "checkpoint", *SIZES})
OFF = {"learning_rate": 0.01} | dict.fromkeys(SIZES, 0.001)  # relative
FAR, TWICE = math.log(1.1), math.log(2.0)
LATE = 2.0  # intervals
PRINTED = 64  # first samples that tell how a rate is printed
WHOLE = re.compile(r"(^|[/. ])(learning[ _-]?rate|lr)$", re.IGNORECASE)
AGE = re.compile(r"(^|[^a-z])age([^a-z]|$)")
ROUNDING = 2.0**-22  # of a difference of two 32-bit counts, in units of the count

Stages = tuple[tuple[float, float], ...]  # first step and value, by step


@dataclass(frozen=True)
class Rate:
    """A learning rate by step: linear warm-up to `peak`, constant up to `decay_from`, then `shape` down to `final` at `end`.

    `shape` is constant, linear, cosine or sqrt (1 - sqrt of the share of the decay).
    """

    peak: float
    warmup: float = 0.0
    decay_from: float = 0.0
    end: float = math.inf
    final: float = 0.0
    shape: str = "constant"

    def at(self, step: Array) -> Array:
        """The rate at each step."""
        rising = self.peak * step / self.warmup if self.warmup > 0 else np.full(len(step), self.peak)
        begin = max(self.decay_from, self.warmup)
        share = np.clip((step - begin) / (self.end - begin), 0, 1) if math.isfinite(self.end) else np.zeros(len(step))
        left = {
            "linear": 1 - share,
            "cosine": 0.5 * (1 + np.cos(np.pi * share)),
            "sqrt": 1 - np.sqrt(share),
        }.get(self.shape, np.ones(len(step)))
        return np.where(step < self.warmup, rising, self.final + (self.peak - self.final) * left)


@dataclass(frozen=True)
class Plan:
    """What a run is meant to do; what is None or absent was not planned. `stages` are by role, tokens those of one step."""

    steps: float | None = None
    rate: Rate | None = None
    stages: Mapping[str, Stages] = field(default_factory=dict)
    checkpoint_interval: float | None = None

    def speaks_of(self, role: str) -> bool:
        """Whether a metric of this role can be held to it."""
        if role in ("learning_rate", "loss", "checkpoint"):
            parts = {"learning_rate": self.rate, "loss": self.steps, "checkpoint": self.checkpoint_interval}
            return parts[role] is not None
        return role in self.stages


def carry(state: Mapping[str, Any]) -> dict[str, Any]:
    """The factor of a rate and how it is printed; a deviation that goes on over a restart is told anew."""
    return {key: state[key] for key in ("factors", "printed") if key in state}


def scan(
    step: Array, value: Array, name: str, role: str, plan: Plan, state: Mapping[str, Any]
) -> tuple[list[Answer], dict[str, Any]]:
    """Findings `schedule` and `stall`, and recoveries, from further samples of one metric of a role in ROLES."""
    now: dict[str, Any] = {"out": 0, "back": 0, "since": 0.0, "told": -1, "episode": None, "last": None, **state}
    if not plan.speaks_of(role):
        return [], dict(state)
    actual, low, high = _held(step, value, name, role, plan, now)
    wrong = (actual < low) | (actual > high)  # NaN is neither
    if not (wrong.any() or now["out"] or now["episode"] is not None):
        return [], now
    said: list[Answer] = []
    planned = (low + high) / 2
    for k in np.flatnonzero(np.isfinite(actual)):
        if not wrong[k]:
            said += _on(float(step[k]), name, now)
            continue
        now["since"] = float(step[k]) if now["out"] == 0 else now["since"]
        now.update(out=now["out"] + 1, back=0)
        if now["out"] >= (1 if role == "checkpoint" else ROW):
            said += _off(float(step[k]), float(actual[k]), float(planned[k]), name, role, now)
    return said, now


def _held(
    step: Array, value: Array, name: str, role: str, plan: Plan, now: dict[str, Any]
) -> tuple[Array, Array, Array]:
    """What is held against the plan at each sample, and the least and most that the plan allows."""
    if role == "loss":
        assert plan.steps is not None
        return step, np.full(len(step), -math.inf), np.full(len(step), plan.steps + 1)
    if role == "checkpoint":
        assert plan.checkpoint_interval is not None
        age = value if AGE.search(name.lower()) else step - value
        return age, np.full(len(step), -math.inf), np.full(len(step), LATE * plan.checkpoint_interval)
    if role == "tokens":
        return _tokens(step, value, plan.stages["tokens"], now)
    around = (step - 1, step, step + 1)
    if role == "learning_rate":
        assert plan.rate is not None
        nearby = np.stack([plan.rate.at(each) for each in around])
        nearby = nearby * (1.0 if WHOLE.search(name) else _factor(nearby, value, now))
    else:
        nearby = np.stack([_stage(plan.stages[role], each) for each in around])
    low, high = nearby.min(axis=0) * (1 - OFF[role]), nearby.max(axis=0) * (1 + OFF[role])
    return value, *(_printed(value, low, high, now) if role == "learning_rate" else (low, high))


def _printed(value: Array, low: Array, high: Array, now: dict[str, Any]) -> tuple[Array, Array]:
    """The bounds, wider by the last digit with which the rate is printed as far as the first samples tell."""
    known = np.asarray(now.get("printed", ()))
    positive = np.isfinite(value) & (value > 0)
    told = np.concatenate([known, value[positive]])[:PRINTED]
    for k in np.flatnonzero(positive & ((value < low) | (value > high))):
        digit = last_digit(told[: len(known) + int(positive[: k + 1].sum())], float(value[k]))
        low[k], high[k] = low[k] - digit, high[k] + digit
    now["printed"] = told.tolist()
    return low, high


def _stage(stages: Stages, step: Array) -> Array:
    """The planned value at each step; before the first stage its own."""
    first, value = np.array(stages).T
    return np.asarray(value[np.maximum(np.searchsorted(first, step, side="right") - 1, 0)])


def _total(stages: Stages, step: Array) -> Array:
    """Planned tokens of the steps before each step."""
    first, value = np.array(stages).T
    before = np.concatenate([[0.0], np.cumsum(np.diff(first) * value[:-1])])
    at = np.maximum(np.searchsorted(first, step, side="right") - 1, 0)
    return np.asarray(before[at] + (step - first[at]) * value[at])


def _tokens(step: Array, value: Array, stages: Stages, now: dict[str, Any]) -> tuple[Array, Array, Array]:
    """Tokens a step since the sample before; NaN where there is none or the count fell."""
    last = now["last"] or (math.nan, math.nan)
    if len(step):
        now["last"] = (float(step[-1]), float(value[-1]))
    before, count = np.concatenate([[last[0]], step[:-1]]), np.concatenate([[last[1]], value[:-1]])
    taken = step - before
    with np.errstate(invalid="ignore"):
        rate = np.where(value > count, (value - count) / taken, np.nan)
    known = np.where(np.isfinite(before), before, step - 1)
    width = step - known
    nearby = np.stack([(_total(stages, step + k) - _total(stages, known + k)) / width for k in (-1, 0, 1)])
    rounding = ROUNDING * np.abs(value) / width
    return (
        rate,
        nearby.min(axis=0) * (1 - OFF["tokens"]) - rounding,
        nearby.max(axis=0) * (1 + OFF["tokens"]) + rounding,
    )


def _factor(nearby: Array, value: Array, now: dict[str, Any]) -> Array:
    """The factor to the plan of a rate of another name; NaN up to the third sample that tells it."""
    known = list(now.get("factors", ()))
    flat = nearby.max(axis=0) <= (1 + OFF["learning_rate"]) * nearby.min(axis=0)
    good = np.flatnonzero(flat & (value > 0) & np.isfinite(value) & (nearby[1] > 0))[: ROW - len(known)]
    now["factors"] = [*known, *(value[good] / nearby[1][good]).tolist()]
    if len(now["factors"]) < ROW:
        return np.full(len(value), np.nan)
    begin = int(good[-1]) + 1 if len(known) < ROW else 0
    return np.where(np.arange(len(value)) >= begin, np.median(now["factors"]), np.nan)


def _on(step: float, name: str, now: dict[str, Any]) -> list[Answer]:
    now.update(out=0, back=now["back"] + 1)
    if now["episode"] is None or now["back"] < ROW:
        return []
    ended = Recovery(DETECTOR[0], name, now["episode"], step)
    now.update(episode=None, told=-1)
    return [ended]


def _off(step: float, actual: float, planned: float, name: str, role: str, now: dict[str, Any]) -> list[Answer]:
    """The finding, once, and again when it has become more severe."""
    size = actual - planned if role in ("loss", "checkpoint") else _log(actual, planned)
    severity = {"learning_rate": _rate_severity(size), "loss": 2}.get(role, 3)
    if severity <= now["told"]:
        return []
    if now["episode"] is None:
        now["episode"] = f"{role}:{now['since']:.15g}"
    now["told"] = severity
    evidence: dict[str, Any] = {"plan": planned, "before": planned, "after": actual, "samples_out": now["out"]}
    if role in ("loss", "checkpoint"):
        evidence = {"plan": planned, "samples_out": now["out"]}
    return [
        Finding(
            *DETECTOR,
            "stall" if role == "checkpoint" else "schedule",
            name,
            role,
            "up" if size > 0 else "down",
            now["since"],
            step,
            size,
            "steps" if role in ("loss", "checkpoint") else "log",
            severity,
            now["episode"],
            evidence,
        )
    ]


def _log(actual: float, planned: float) -> float:
    return math.log(actual / planned) if actual > 0 and planned > 0 else math.copysign(math.inf, actual - planned)


def _rate_severity(size: float) -> int:
    return 4 if size > TWICE else 3 if abs(size) > FAR else 2
