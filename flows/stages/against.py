"""What a run is held against beside its own past: its plan, a reference run, and what smaller runs predict."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from detectors.finding import Answer
from detectors.plan import Plan
from flows.records import Attempt
from flows.stages.beside import Reference, beside, not_beside
from flows.stages.crowd import Roles
from flows.stages.departed import departed
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
    expectations: Sequence[Mapping[str, Any]] = ()  # bodies of a ladder's, as they were recorded


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
    if against.expectations:
        own = mine.setdefault("ladder", {})
        said += departed(against.expectations, every, metrics, own, parents.get("ladder", {}), attempt.first_step)
    return said


def of_against(against: Against, store: Store, metrics: Roles, state: RunState) -> Iterator[dict[str, Any]]:
    """Coverage rows: one for each thing that the run is held against."""
    newest = state.joint.get(str(state.begun[-1] if state.begun else ""), {})
    if against.plan is not None:
        reason = unplanned(against.plan, frozenset(role for role, _ in metrics.values()))
        yield _row("plan", reason)
    if against.reference is not None:
        yield _row("reference", not_beside(against.reference, store, metrics, newest.get("reference", {})))
    if against.expectations:
        yield _row("ladder", _not_expected(against.expectations[-1], metrics))


def _not_expected(body: Mapping[str, Any], metrics: Roles) -> str:
    """What the ladder does not judge, and why; which part of the schedule no rung knows."""
    said = [f"{name}: {why}" for name, why in body["not_expected"].items() if name in metrics]
    ends = [f"{rung['name']} ended at {rung['ended']:.0%}" for rung in body["rungs"] if rung["censored"]]
    said += [f"{', '.join(ends)}: what follows is extrapolated, alarms there are at most S2"] if ends else []
    return "; ".join(said)


def _row(check: str, reason: str) -> dict[str, Any]:
    return {"check_name": check, "metric": "", "reason": reason or CHECKED, "count": 0}
