"""What needs two metrics: evaluations against the train loss.

An evaluation waits until the train loss has passed its step, so that it does not matter which arrives first.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from detectors import overfit
from detectors.finding import Answer
from detectors.series import Array
from flows.stages.fresh import Key, Samples

LAST = 5  # train losses whose median stands for an evaluation's step

Line = tuple[Array, Array]  # steps, values
Parts = Mapping[Key, Samples]


def judge_evals(
    parts: Parts, remembered: Mapping[Key, Line], roles: Mapping[str, str], attempt: int, state: dict[str, Any]
) -> list[Answer]:
    """Overfitting of every eval loss of one attempt.

    `remembered` gives steps and values of the train losses before this pass; `state` keeps, a metric, the evaluations
    that the train loss has not passed yet.
    """
    train = next(
        (name for name, role in roles.items() if role == "loss" and (attempt, name) in {*parts, *remembered}), None
    )
    step, value = _joined(parts, remembered, (attempt, train)) if train else (np.empty(0), np.empty(0))
    said: list[Answer] = []
    for name in (name for name, role in roles.items() if role == "eval_loss"):
        mine = state.get(name, {})
        rows = parts.get((attempt, name))
        fresh = [] if rows is None else zip(rows.step, rows.value, strict=True)
        waiting = [*mine.get("waiting", []), *((float(s), float(v)) for s, v in fresh)]
        if not waiting:
            continue
        ripe = [(s, v) for s, v in waiting if len(step) and s <= step[-1]]
        found, after = overfit.scan(
            [overfit.Anchor(s, v, *_train_at(step, value, s)) for s, v in ripe], name, mine.get("state", {})
        )
        state[name] = {"waiting": waiting[len(ripe) :], "state": after}
        said += found
    return said


def _joined(parts: Parts, remembered: Mapping[Key, Line], key: Key) -> Line:
    old = remembered.get(key, (np.empty(0), np.empty(0)))
    rows = parts.get(key)
    if rows is None:
        return old
    return np.concatenate([old[0], rows.step]), np.concatenate([old[1], rows.value])


def _train_at(step: Array, value: Array, at: float) -> tuple[float, float]:
    """Median of the last five finite train losses up to `at`, and the first step at which that was known."""
    stop = int(np.searchsorted(step, at, side="right"))
    last = value[max(0, stop - LAST) : stop]
    last = last[np.isfinite(last)]
    known = float(step[min(int(np.searchsorted(step, at)), len(step) - 1)])
    return (float(np.median(last)) if len(last) else math.nan), max(at, known)
