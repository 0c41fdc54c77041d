"""Overfitting: the eval loss climbs while the train loss falls.

Sees: two evaluations in a row that are each above the one before and at least 2 % above the best, while the train
loss (median of its last five samples) is at least 1 % below what it was at the best evaluation. S2, from the third
evaluation on. Slower: the gap between the two has grown over twenty evaluations by 2 % of the loss, and they rank with time
at p < 0.001 (Mann-Kendall): S1 (pattern P38). The first five evaluations of a run teach nothing about that.
Silent: without a train loss, and while the train loss does not fall (that is a divergence or a shift, not
overfitting).
Fooled by: an eval set whose content changes; a train loss that falls because the data became easier.
False alarms: 0 on the healthy recorded runs. Units: log ratio to the best evaluation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from detectors.finding import Answer, Finding, Recovery
from detectors.window import State

DETECTOR = ("overfit", 2)
ABOVE = 1.02
BELOW = 0.99
CLIMBS = 2
GAPS, EARLY, ENDS = 20, 5, 5  # evaluations in a gap's trend, before the first of them, at each of its ends
GROWN = 0.02  # log
RANKS = 3.09  # standard deviations of Kendall's sum: p < 0.001


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
        said += _gap(at, metric, now)
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


def _gap(at: Anchor, metric: str, now: dict[str, Any]) -> list[Answer]:
    """The eval loss moves away from the train loss, though neither may rise."""
    if at.value <= 0 or at.train <= 0 or now["count"] <= EARLY:
        return []
    now["gaps"] = [*now.get("gaps", ()), (at.step, math.log(at.value / at.train))][-GAPS:]
    gaps = [gap for _, gap in now["gaps"]]
    before, after = median(gaps[:ENDS]), median(gaps[-ENDS:])
    if now.get("parting") is not None:
        if after > now["parting_from"] + GROWN / 2:
            return []
        episode, now["parting"] = now["parting"], None
        return [Recovery(DETECTOR[0], metric, episode, at.known)]
    size = len(gaps)
    kendall = sum((b > a) - (b < a) for i, a in enumerate(gaps) for b in gaps[i + 1 :])
    spread = math.sqrt(size * (size - 1) * (2 * size + 5) / 18)
    if size < GAPS or kendall - 1 < RANKS * spread or after - before < GROWN:
        return []
    now.update(parting=f"gap:{at.step:.15g}", parting_from=before)
    evidence = {"gap_before": before, "gap_after": after, "samples": now["count"], "cadence": now["gap"]}
    start = now["gaps"][0][0]
    return [
        Finding(
            *DETECTOR, "trend", metric, "eval_loss", "up", start, at.known, after - before, "log", 1, now["parting"], evidence
        )
    ]  # fmt: skip


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
