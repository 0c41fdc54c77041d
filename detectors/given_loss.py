"""Evaluations that are worse than those of smaller runs at the same training loss: "the loss is fine, the evals are low".

Sees: a loss or score of an evaluation against the straight line that the rungs of a ladder give it over the log of the
training loss (the median of the last 8 blocks of 16 samples up to its step): three evaluations in a row worse by three
standard deviations of the rungs around that line. S2 (pattern P78; SmolLM3's tensor-parallel seed was seen by its
evaluations only). Over when two in a row are back within two thirds of that.
Silent: before 8 % of the schedule; where a rung is not comparable; on evaluations better than the line.
Fooled by: an evaluation set of another kind under the same name; a loss that a mixture has moved.
False alarms: see docs/ladder.md. Units: log (losses), logit (scores).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from detectors.finding import Answer, Finding, Recovery
from detectors.ladder_fit import transformed
from detectors.ladder_rungs import START
from detectors.series import Array

DETECTOR = ("given_loss", 1)
ROW, BACK = 3, 2
DEVIATIONS = 3.0
BLOCKS = 8


def scan(
    step: Array,
    value: Array,
    per_step: float,
    level: Array,
    name: str,
    role: str,
    given: Mapping[str, Any],
    state: Mapping[str, Any],
) -> tuple[list[Answer], dict[str, Any]]:
    """Findings `ladder` and recoveries. `level` (2, k): share of the schedule and log training loss of blocks, by share, which
    reach behind the last step; `given` holds slope, cut and sd of the line.
    """
    now: dict[str, Any] = {"out": 0, "back": 0, "since": 0.0, "episode": None, **state}
    said: list[Answer] = []
    for at, one, score in zip(step * per_step, step.tolist(), transformed(role, value), strict=True):
        known = level[1, level[0] <= at][-BLOCKS:]
        if at < START or not np.isfinite(score) or len(known) < BLOCKS:
            continue
        miss = float(score - given["slope"] * np.median(known) - given["cut"])
        worse = miss if role == "eval_loss" else -miss
        if now["episode"] is not None:
            now["back"] = now["back"] + 1 if worse < DEVIATIONS * given["sd"] * 2 / 3 else 0
            if now["back"] >= BACK:
                said.append(Recovery(DETECTOR[0], name, now["episode"], one))
                now.update(episode=None, out=0)
            continue
        if worse < DEVIATIONS * given["sd"]:
            now["out"] = 0
            continue
        now["since"] = one if now["out"] == 0 else now["since"]
        now["out"] += 1
        if now["out"] == ROW:
            episode = f"given:{one:.15g}"
            now.update(episode=episode, back=0)
            evidence = {"given": given["loss"], "sd": given["sd"], "samples_out": ROW}
            way, unit = "up" if miss > 0 else "down", "log" if role == "eval_loss" else "logit"
            said.append(
                Finding(*DETECTOR, "ladder", name, role, way, now["since"], one, miss, unit, 2, episode, evidence)
            )
    return said, now
