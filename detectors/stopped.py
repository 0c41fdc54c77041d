"""A metric that is logged no more while the loss goes on.

Sees: a whole-run metric of a core role, of 20 samples or more, of which none came for 20 of its own distances (median of
the last 16, in steps) and twice its longest one, while some loss was logged there: S1. Evaluations, and checkpoints that
are logged when they are saved, speak rarely: five distances of an evaluation, two of a checkpoint (S3, pattern P76).
Silent: on what stops with the loss, on leaves, on a metric that never comes back after a restart.
Fooled by: a metric that is read later than the loss by more than that; logging that was made sparser on purpose, once.
False alarms: none by construction on regular logs. Units: steps.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from detectors.finding import Answer, Finding, Recovery
from detectors.series import Array

DETECTOR = ("stopped", 1)
LOSS = "loss"
CORE = frozenset(
    {LOSS, "grad_norm", "param_norm", "mfu", "throughput", "step_time", "token_drop", "router_entropy", "tokens"}
    | {"learning_rate", "eval_loss", "eval_score", "checkpoint", "memory"}
)
TIMES = 20.0
RARE = {"eval_loss": (5.0, 8), "eval_score": (5.0, 8), "checkpoint": (2.0, 4)}  # distances, least samples
SEEN = 20  # samples
LAST = 16  # distances
SEVERITY = {"checkpoint": 3}


@dataclass(frozen=True)
class Clock:
    """Steps at which some loss was logged: the newest ones, how many came before them, and their first usual distance."""

    steps: Array
    before: int
    pace: float | None

    def count(self, step: float) -> int:
        """Losses logged up to `step`."""
        return self.before + int(np.searchsorted(self.steps, step, side="right"))


def scan(
    steps: Mapping[str, Array], roles: Mapping[str, str], state: Mapping[str, Any]
) -> tuple[list[Answer], dict[str, Any]]:
    """Findings `stall` and recoveries; `steps` are the new steps of whole-run metrics, increasing."""
    known = {name: dict(each) for name, each in state.get("metrics", {}).items()}
    clock = _clock([line for name, line in steps.items() if roles.get(name) == LOSS], state)
    said: list[Answer] = []
    for name in sorted({*known, *(n for n in steps if roles.get(n) in CORE)}):
        mine = known.setdefault(name, {"count": 0, "gaps": [], "longest": 0.0, "open": None})
        said += _metric(name, roles[name], steps.get(name, np.empty(0)), clock, mine)
    kept = clock.steps[-LAST - 1 :]
    before = clock.before + len(clock.steps) - len(kept)
    return said, {"metrics": known, "clock": kept.tolist(), "before": before, "pace": clock.pace}


def _clock(new: Sequence[Array], state: Mapping[str, Any]) -> Clock:
    steps = np.unique(np.concatenate([np.asarray(state.get("clock", ()), dtype=float), *new]))
    pace = state.get("pace")
    if pace is None and len(steps) > LAST:  # of the first steps: one number for the attempt, however it is cut
        pace = float(np.median(np.diff(steps[: LAST + 1])))
    return Clock(steps, state.get("before", 0), pace)


def _metric(name: str, role: str, new: Array, clock: Clock, mine: dict[str, Any]) -> list[Answer]:
    """Every distance that is too long is looked at when it ends, the open one as far as the loss has come."""
    said: list[Answer] = []
    line = np.concatenate([[mine["last"]], new]) if "last" in mine else new
    first = mine["count"] + (0 if "last" in mine else 1)  # samples up to line[0]
    gaps = np.diff(line)
    every = np.concatenate([mine["gaps"], gaps])
    suspects = np.flatnonzero(gaps >= RARE.get(role, (TIMES, SEEN))[0] * every.min()).tolist() if len(gaps) else []
    for k in suspects:
        before = every[max(0, k + len(mine["gaps"]) - LAST) : k + len(mine["gaps"])]
        longest = max([mine["longest"], *gaps[:k]])
        gap = Gap(float(line[k]), float(line[k + 1]), first + k, before, longest)
        at = mine.get("at") if k == 0 and "last" in mine else None
        said += _silent(name, role, gap, clock, at, mine)
        if mine["open"] is not None:
            said.append(Recovery(DETECTOR[0], name, mine["open"], gap.until))
            mine["open"] = None
    if len(new):
        mine.update(count=mine["count"] + len(new), last=float(line[-1]), gaps=every[-LAST:].tolist(), at=None)
        mine["longest"] = max([mine["longest"], *gaps])
    if "last" in mine and mine.get("at") is None and len(clock.steps) and clock.steps[-1] > mine["last"]:
        mine["at"] = clock.count(mine["last"])
    if "last" in mine and mine["open"] is None:
        gap = Gap(mine["last"], float(clock.steps[-1]) if len(clock.steps) else -math.inf, mine["count"],
                  np.array(mine["gaps"]), mine["longest"])  # fmt: skip
        said += _silent(name, role, gap, clock, mine.get("at"), mine)
    return said


@dataclass(frozen=True)
class Gap:
    """From the step `last` on nothing before `until`; `samples` up to then, with their last distances and the longest."""

    last: float
    until: float
    samples: int
    distances: Array
    longest: float


def _silent(name: str, role: str, gap: Gap, clock: Clock, at: int | None, mine: dict[str, Any]) -> list[Answer]:
    """A finding at the first loss that was logged when the gap was too long, if the loss went on in most of it."""
    times, least = RARE.get(role, (TIMES, SEEN))
    if mine["open"] is not None or gap.samples < least or not len(gap.distances):
        return []
    usual = float(np.median(gap.distances))
    rare = clock.pace is not None and usual >= TIMES * clock.pace
    times = times if rare else TIMES
    wait = max(times * usual, 2.0 * gap.longest if times == TIMES else 0.0)
    later = clock.steps[(clock.steps >= gap.last + wait) & (clock.steps < gap.until)]
    since = clock.count(gap.last) if at is None else at
    needed = wait / clock.pace / 2 if clock.pace else SEEN / 2
    enough = later[np.searchsorted(clock.steps, later, side="right") + clock.before - since >= needed].tolist()
    if not enough:
        return []
    mine["open"] = f"{gap.last:.15g}"
    evidence = {"usual": usual, "cadence": usual, "samples": gap.samples}
    return [
        Finding(
            *DETECTOR, "stall", name, role, "none", gap.last, enough[0], enough[0] - gap.last, "steps",
            SEVERITY.get(role, 1), f"{gap.last:.15g}", evidence,
        )
    ]  # fmt: skip
