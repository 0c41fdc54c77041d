"""The plan of a run: what its metrics are held to, and the planned changes as events."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from detectors import plan as held
from detectors.finding import Answer
from flows.records import Event
from flows.sections import PlanSection
from flows.stages.crowd import Roles
from flows.stages.fresh import Samples

SOURCE = "plan"
STAGED = {"tokens": "tokens_per_step", "batch_size": "batch_size", "sequence_length": "sequence_length"}


def plan_of(section: PlanSection) -> held.Plan:
    """The plan as the detector takes it."""
    rate = None
    if section.peak_learning_rate is not None:
        rate = held.Rate(
            section.peak_learning_rate,
            section.warmup_steps,
            section.decay_from or 0.0,
            section.steps or float("inf"),
            section.final_learning_rate,
            section.schedule,
        )
    stages = {role: _stages(section, key) for role, key in STAGED.items() if getattr(section, key)}
    return held.Plan(section.steps, rate, stages, section.checkpoint_interval)


def _stages(section: PlanSection, key: str) -> held.Stages:
    return tuple((each.step, each.value) for each in getattr(section, key))


def planned_events(section: PlanSection) -> Iterator[Event]:
    """The changes that the plan announces: they explain by themselves what follows from them."""
    for key in ("batch_size", "sequence_length"):
        for (_, before), (step, after) in pairwise(_stages(section, key)):
            yield _event(key, step, note=f"{before:g} to {after:g}")
    for each in section.mixture:
        yield _event("data_mix", each.step, note=each.name)
    if section.warmup_steps:
        yield _event("warmup", 0.0, section.warmup_steps)
    if section.schedule != "constant" and section.decay_from is not None:
        yield _event("lr_decay", section.decay_from, section.steps)


def _event(kind: str, step: float, end: float | None = None, note: str = "") -> Event:
    return Event(kind, step, end, f"planned: {note}" if note else "planned", source=SOURCE)


def held_to_plan(
    plan: held.Plan | None, parts: Mapping[str, Samples], metrics: Roles, mine: dict[str, Any], parents: dict[str, Any]
) -> list[Answer]:
    """What new whole-run samples say against the plan; `mine` is its state in this attempt, and goes on."""
    said: list[Answer] = []
    for name, part in parts.items():
        role, group = metrics[name]
        if plan is None or group or role not in held.ROLES or not plan.speaks_of(role):
            continue
        before = mine.get(name) or held.carry(parents.get(name, {}))
        found, mine[name] = held.scan(part.step, part.value, name, role, plan, before)
        said += found
    return said


def unplanned(plan: held.Plan | None, roles: frozenset[str]) -> str:
    """Why parts of the plan are not checked; "" where all are."""
    asked = [] if plan is None else [role for role in sorted(held.ROLES) if plan.speaks_of(role)]
    missing = [role for role in asked if role not in roles]
    return f"no metric with the role {', '.join(missing)}" if missing else ""
