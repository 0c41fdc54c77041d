"""What a run is held against beside its own past: its plan."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from detectors.finding import Answer
from detectors.plan import Plan
from flows.records import Attempt
from flows.stages.crowd import Roles
from flows.stages.document import CHECKED
from flows.stages.fresh import Flat, Samples
from flows.stages.planned import held_to_plan, unplanned
from flows.stages.runstate import RunState


@dataclass(frozen=True)
class Against:
    """What the configuration gives; nothing by default."""

    plan: Plan | None = None


def judged_against(
    against: Against,
    attempt: Attempt,
    parts: Mapping[str, Samples],
    together: Flat | None,
    metrics: Roles,
    state: RunState,
) -> list[Answer]:
    """What new samples of an attempt (judged alone, and together) say against what the run is held against."""
    if against == Against():
        return []
    mine = state.joint.setdefault(str(attempt.attempt), {})
    parents = state.joint.get(str(attempt.parent), {})
    every = {**parts, **(together.each() if together is not None else {})}
    return held_to_plan(against.plan, every, metrics, mine.setdefault("plan", {}), parents.get("plan", {}))


def of_against(against: Against, metrics: Roles) -> Iterator[dict[str, Any]]:
    """Coverage rows: one for each thing that the run is held against."""
    if against.plan is not None:
        reason = unplanned(against.plan, frozenset(role for role, _ in metrics.values()))
        yield {"check_name": "plan", "metric": "", "reason": reason or CHECKED, "count": 0}
