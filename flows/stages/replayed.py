"""The steps that a new attempt does again, beside those of the line of attempts that it comes from."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from detectors import replays
from detectors.finding import Answer, Finding, Recovery
from detectors.series import Array
from flows.records import ANEW, Attempt
from flows.stages.crowd import Roles
from flows.stages.fresh import Samples
from flows.stages.past import Past

LOOKED_AT = 1_024  # first samples of an attempt: those without a first pass count as well


def replayed(
    attempt: Attempt, past: Past, parts: Mapping[str, Samples], metrics: Roles, mine: dict[str, Any]
) -> list[Answer]:
    """What new samples of an attempt say against the first pass; `mine` is its state of this, and goes on.

    Looks at whole-run losses and gradient norms, and reads the store for the steps of at most LOOKED_AT samples of each.
    A run that was started anew restored nothing: of it nothing is asked.
    """
    if attempt.parent is None or attempt.reason == ANEW:
        return []
    if "reached" not in mine:
        mine |= {"reached": past.reached(attempt.parent, attempt.first_step), "metrics": {}}
    asked: dict[str, Samples] = {}
    for name, part in parts.items():
        role, group = metrics[name]
        known = mine["metrics"].get(name, {})
        if group or role not in replays.ROLES or known.get("done") or not len(part.step):
            continue
        seen = int(known.get("seen", 0))
        taken = part.at(slice(0, LOOKED_AT - seen))
        mine["metrics"][name] = {**known, "seen": seen + len(taken.step)}
        taken = taken.at(taken.step <= mine["reached"])
        if len(taken.step):
            asked[name] = taken
    if not asked:
        return []
    line = _before(attempt, past, asked)
    said: list[Answer] = []
    for name, part in asked.items():
        old = _at(part.step, line.filter(pl.col("name") == name))
        answers, after = replays.scan(part.step, old, part.value, name, metrics[name][0], mine["metrics"][name])
        mine["metrics"][name] = after
        said += [_known(answer, mine["reached"]) for answer in answers]
    return said


def _known(answer: Answer, reached: float) -> Answer:
    """The same, said at the highest step that the run had reached, as that it went back is: nothing of it was known before."""
    if isinstance(answer, Finding):
        return replace(answer, detected_step=max(answer.detected_step, reached))
    return replace(answer, step=max(answer.step, reached)) if isinstance(answer, Recovery) else answer


def _before(attempt: Attempt, past: Past, asked: Mapping[str, Samples]) -> pl.DataFrame:
    """name, step, value of the same steps; of several attempts in the line of parents the newest counts."""
    by_number = {each.attempt: each for each in past.found.attempts}
    line, number = [], attempt.parent
    while number is not None:
        line.append(number)
        number = by_number[number].parent
    low, high = (end(float(end(part.step)) for part in asked.values()) for end in (min, max))
    rows = past.store.samples(past.run, list(asked), low, high).filter(pl.col("attempt").is_in(line))
    return rows.sort("attempt").unique(["name", "step"], keep="last", maintain_order=True).sort("name", "step")


def _at(step: Array, rows: pl.DataFrame) -> Array:
    """The value at each step, NaN where there is none."""
    known, value = rows["step"].to_numpy(), rows["value"].to_numpy()
    if not len(known):
        return np.full(len(step), np.nan)
    at = np.minimum(np.searchsorted(known, step), len(known) - 1)
    return np.where(known[at] == step, value[at], np.nan)
