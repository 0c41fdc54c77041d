"""Evaluations that leave their own course: each eval loss and each score, by itself.

Sees: an evaluation and the next one that both stand off the line of the twelve before them (logarithm on the log of
the step) on the same side: by five scatters, and by 0.5 % of a loss or 5 % of a score. A loss must stand above where
it was, not only fall more slowly. Worse: S2; better: S0, told because the training loss may say otherwise
(marin#1529: train shifts, evals flat; marin#898 and #826: some evals rise alone).
Silent: before eight evaluations; on a lone bad one; on scores of zero.
Fooled by: a new eval set or format under the old name; a score for which less is better.
False alarms: see docs/detectors.md. Units: log ratio.
"""

import math
from typing import Any

import numpy as np

from detectors.noise import fit_lines, log_step, windows
from detectors.series import Array
from detectors.window import Chunk, Said, State

DETECTOR = ("evals", 1)
WINDOW, LEAST = 12, 6  # evaluations in a line
SCATTERS = 5.0
EFFECT = {"eval_loss": 0.005, "eval_score": 0.05}
NOISE = {"eval_loss": 0.001, "eval_score": 0.01}  # the least scatter that is believed
SETTLED = 2 * WINDOW  # evaluations after which the new level is the course
BACK = 2


def carry(state: State, step: float) -> State:
    """An open episode stays open: a restart mends no evaluation."""
    del step
    return state


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `level` (S2 worse, S0 better) and recoveries."""
    now: dict[str, Any] = {"episode": None, **state}
    x = log_step(chunk.step)
    courses = _courses(chunk.log, x, chunk.offset)
    off = _both_off(chunk, x, courses)
    said: list[Said] = []
    for k in range(len(off)):
        at = chunk.offset + k
        if now["episode"] is not None:
            said += _continues(chunk, chunk.start + k, float(chunk.log[at] - now["a"] - now["b"] * x[at]), now)
        elif off[k] and (chunk.role != "eval_loss" or _stands_off(chunk.log[: at + 1], courses, k, float(x[at]))):
            said += _opens(chunk, chunk.start + k, courses[:, k], float(x[at]), now)
    return said, now


def _courses(log: Array, x: Array, offset: int) -> Array:
    """For each new sample the line through the WINDOW values that end two before it: rows a, b, one-sample scatter."""
    count = len(log) - offset
    wx, wy = (windows(part, offset, count, WINDOW, 1) for part in (x, log))
    a, b, mx, sxx, n, rest = fit_lines(wx, wy)
    lever = 1 + 1 / np.maximum(n, 1) + (x[offset:] - mx) ** 2 / np.where(sxx > 0, sxx, np.inf)
    return np.stack([np.where(n >= LEAST, a, np.nan), b, rest, np.sqrt(lever)])


def _both_off(chunk: Chunk, x: Array, courses: Array) -> Any:
    """Whether a sample and the one before it both stand off the course, on the same side."""
    a, b, rest, lever = courses
    size = len(a)
    if chunk.offset + size < 2:
        return np.zeros(size, dtype=bool)
    gate = np.maximum(EFFECT[chunk.role], SCATTERS * np.maximum(rest, NOISE[chunk.role]) * lever)
    here = chunk.log[chunk.offset :] - a - b * x[chunk.offset :]
    log, before = np.concatenate([[np.nan], chunk.log]), np.concatenate([[np.nan], x])
    last = log[chunk.offset : chunk.offset + size] - a - b * before[chunk.offset : chunk.offset + size]
    with np.errstate(invalid="ignore"):
        return (np.minimum(np.abs(here), np.abs(last)) > gate) & (here * last > 0)


def _stands_off(log: Array, courses: Array, k: int, x: float) -> bool:
    """Whether a loss is really elsewhere than before: half the residual lies above the two evaluations before the pair."""
    residual = float(log[-1] - courses[0, k] - courses[1, k] * x)
    moved = float(log[-2:].mean() - log[-4:-2].mean())
    return residual < 0 or moved >= 0.5 * residual


def _opens(chunk: Chunk, index: int, course: Array, x: float, now: dict[str, Any]) -> list[Said]:
    at = chunk.at(index)
    a, b, rest, _ = course
    shift = float(chunk.log[at] - a - b * x)
    gate = max(EFFECT[chunk.role], SCATTERS * max(float(rest), NOISE[chunk.role]))
    # the frozen course of a bending curve drifts: near is what is nearer to it than to the new level
    now.update(episode=str(index), since=index, a=float(a), b=float(b), near=max(gate / 2, abs(shift) / 3), back=0)
    worse = (shift > 0) == (chunk.role == "eval_loss")
    return [
        chunk.finding(
            DETECTOR,
            "level",
            index - 1,
            index,
            2 if worse else 0,
            now["episode"],
            direction="up" if shift > 0 else "down",
            magnitude=shift,
            unit="log",
            before=math.exp(a + b * x),
            after=float(chunk.value[at]),
            z=shift / max(float(rest), NOISE[chunk.role]),
        )
    ]


def _continues(chunk: Chunk, index: int, rest: float, now: dict[str, Any]) -> list[Said]:
    """Back after two evaluations near the course; after 24 the new level is the course."""
    if math.isfinite(rest):
        now["back"] = now["back"] + 1 if abs(rest) < now["near"] else 0
    said = [chunk.recovery(DETECTOR, now["episode"], index)] if now["back"] >= BACK else []
    if said or index - now["since"] >= SETTLED:
        now["episode"] = None
    return said
