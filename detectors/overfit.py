"""Overfitting: the eval loss climbs while the train loss falls.

Sees: two evaluations in a row that are each above the one before and at least 2 % above the best, while the train
loss (median of its last five samples) is at least 1 % below what it was at the best evaluation. S2, from the third
evaluation on.
Silent: without a train loss, and while the train loss does not fall (that is a divergence or a shift, not
overfitting).
Fooled by: an eval set whose content changes; a train loss that falls because the data became easier.
False alarms: 0 on the healthy recorded runs. Units: log ratio to the best evaluation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from detectors.finding import Answer, Finding, Recovery
from detectors.window import State

DETECTOR = ("overfit", 1)
ABOVE = 1.02
BELOW = 0.99
CLIMBS = 2


@dataclass(frozen=True)
class Anchor:
    """One evaluation: its step, its value, the train loss then, and the step at which both were known."""

    step: float
    value: float
    train: float
    known: float


def scan(anchors: Sequence[Anchor], metric: str, state: State) -> tuple[list[Answer], State]:
    """Findings `overfit` (S2) and recoveries, in order; `state` goes from one call to the next."""
    now: dict[str, Any] = {"climbs": 0, "count": 0, "best": math.inf, "best_step": None, "best_train": None, **state}
    said: list[Answer] = []
    for at in anchors:
        if not math.isfinite(at.value) or not math.isfinite(at.train):
            continue
        now["count"] += 1
        now["gap"] = at.step - now["last_step"] if now.get("last_step") is not None else now.get("gap", 1.0)
        now["climbs"] = now["climbs"] + 1 if at.value > now.get("last", math.inf) else 0
        now["last"], now["last_step"] = at.value, at.step
        if at.value < now["best"]:
            now.update(best=at.value, best_step=at.step, best_train=at.train)
            if now.get("episode") is not None:
                said.append(Recovery(DETECTOR[0], metric, now["episode"], at.known))
                now["episode"] = None
            continue
        falls = at.train < BELOW * now["best_train"]
        if now.get("episode") is None and now["climbs"] >= CLIMBS and at.value > ABOVE * now["best"] > 0 and falls:
            now["episode"] = f"{at.step:.15g}"
            said.append(_finding(at, metric, now))
    return said, now


def _finding(at: Anchor, metric: str, now: dict[str, Any]) -> Finding:
    return Finding(
        *DETECTOR,
        "overfit",
        metric,
        "eval_loss",
        "up",
        now["best_step"],
        at.known,
        math.log(at.value / now["best"]),
        "log",
        2,
        now["episode"],
        {
            "before": now["best"],
            "after": at.value,
            "train_before": now["best_train"],
            "train_after": at.train,
            "climbs": now["climbs"],
            "samples": now["count"],
            "cadence": now["gap"],
        },
    )
