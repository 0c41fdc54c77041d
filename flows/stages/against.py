"""What a run is held against beside its own past: its plan, and a reference run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from detectors.finding import Answer
from detectors.plan import Plan
from flows.records import Attempt
from flows.stages.beside import Reference, beside, not_beside
from flows.stages.crowd import Roles
from flows.stages.document import CHECKED
from flows.stages.fresh import Flat, Samples
from flows.stages.planned import held_to_plan, unplanned
from flows.stages.runstate import RunState
from flows.store import Store


@dataclass(frozen=True)
class Against:
    """What the configuration gives; nothing by default."""

    plan: Plan | None = None
    reference: Reference | None = None


def judged_against(
    against: Against,
    store: Store,
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
    said = held_to_plan(against.plan, every, metrics, mine.setdefault("plan", {}), parents.get("plan", {}))
    if against.reference is not None:
        own = mine.setdefault("reference", {})
        said += beside(against.reference, store, parts, metrics, own, parents.get("reference", {}))
    return said


def of_against(against: Against, store: Store, metrics: Roles, state: RunState) -> Iterator[dict[str, Any]]:
    """Coverage rows: one for each thing that the run is held against."""
    newest = state.joint.get(str(state.begun[-1] if state.begun else ""), {})
    if against.plan is not None:
        reason = unplanned(against.plan, frozenset(role for role, _ in metrics.values()))
        yield _row("plan", reason)
    if against.reference is not None:
        yield _row("reference", not_beside(against.reference, store, metrics, newest.get("reference", {})))


def _row(check: str, reason: str) -> dict[str, Any]:
    return {"check_name": check, "metric": "", "reason": reason or CHECKED, "count": 0}
