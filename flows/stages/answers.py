"""Answers of every detector to the samples that are new in a pass."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from detectors import bounds as own
from detectors import restarts, stopped
from detectors.finding import Answer, Finding, Recovery
from detectors.schedule import restarted
from detectors.screen import screened
from detectors.sections import Blocks
from detectors.series import Array
from detectors.suite import JOINT, POINTS, TOGETHER, is_sentinel, load_joint
from flows.records import Attempt
from flows.stages.against import Against, judged_against
from flows.stages.bounds import Watched, bounds_of
from flows.stages.crowd import Roles
from flows.stages.fresh import Flat, Fresh, Key, Samples, fresh
from flows.stages.heard import known_to
from flows.stages.joint import Line, judge_evals
from flows.stages.known import masked_of
from flows.stages.listening import listen
from flows.stages.metric import judge_metric
from flows.stages.past import Answers, Past
from flows.stages.replayed import replayed
from flows.stages.runstate import RunState
from flows.stages.tiers import by_tier
from flows.store import Store, Waiting

_POINTED = frozenset[str]().union(*POINTS.values())


def collect(
    store: Store,
    run: str,
    found: Waiting,
    state: RunState,
    heard_until: float | None,
    watched: Sequence[Watched] = (),
    against: Against = Against(),  # noqa: B008  # frozen
) -> Answers:
    """Judge the rows, attempt by attempt; `state` goes on. `heard_until` (unix seconds) lets silence be judged.

    `watched` are the user's own bounds, `against` what the run is held against beside its past.
    """
    out = Answers()
    metrics = roles_of(found.metrics)
    limits = {name: bounds_of(watched, name, role) for name, (role, _) in metrics.items()}
    new = Fresh()
    if len(found.rows):
        new = fresh(found.rows, lambda name: _together(*metrics[name]))
    past = Past(store, run, found, metrics, limits, out)
    by_number = {each.attempt: each for each in found.attempts}
    masked = masked_of(store, run)
    for attempt in new.attempts:
        each = by_number[attempt]
        parts = {name: part for (number, name), part in new.alone.items() if number == attempt}
        blocks = _together_judged(new.together.get(attempt), each, past, out)
        out.say(attempt, _bounded(new.together.get(attempt), each, past, state))
        memories = past.memories(each, list(parts))
        remembered: dict[Key, Line] = {
            (attempt, name): (m.step, m.value) for name, m in memories.items() if metrics[name][0] == "loss"
        }
        events = known_to(found.events, found.attempts, attempt, state)
        for name, part in parts.items():
            role, group = metrics[name]
            said, done = judge_metric(
                memories[name], part, name=name, role=role, group=group, bounds=limits[name], events=events,
                masked=masked.get(name, ()),
            )  # fmt: skip
            out.say(attempt, said)
            out.memories[name, attempt] = memories[name]
            if len(done):
                blocks[name] = done
        out.say(attempt, _evals(past, new.alone, remembered, metrics, each, state))
        points = {n: np.column_stack([p.step, p.step, p.value]) for n, p in parts.items() if metrics[n][0] in _POINTED}
        for detector, rows in _shown(blocks, points, metrics):
            out.say(attempt, _joint(detector, rows, metrics, each, state))
        mine = state.joint.setdefault(str(attempt), {})
        # a metric that only a bound keeps out of the crowd is looked at no more than one in it
        whole = {n: part.step for n, part in parts.items() if not metrics[n][1] and not _together(*metrics[n])}
        said, mine["stopped"] = stopped.scan(
            whole, {n: role for n, (role, _) in metrics.items()}, mine.get("stopped", {})
        )
        out.say(attempt, said)
        out.say(attempt, replayed(each, past, parts, metrics, mine.setdefault("replays", {})))
        out.say(attempt, judged_against(against, store, each, parts, new.together.get(attempt), metrics, state))
        if attempt not in state.begun:
            state.begun.append(attempt)
            if each.parent is not None:
                rates = [name for name in parts if metrics[name][0] == "learning_rate"]
                out.say(attempt, _restarted(each, past, rates, parts))
                parents = state.joint.get(str(each.parent), {}).get("restarts", {})
                reached = max(past.reached(each.parent, each.first_step), each.first_step)
                said, mine["restarts"] = restarts.scan(by_number[each.parent].first_step, reached, parents)
                out.say(attempt, said)
        out.new[attempt] = by_tier(found.rows, metrics, each, out.new.get(attempt, []), state)
    listen(found.rows, metrics, state, heard_until, out)
    return out


def roles_of(metrics: pl.DataFrame) -> Roles:
    """Role and group of each metric of a run."""
    return dict(zip(metrics["name"], metrics.select("role", "group_name").iter_rows(), strict=True))


def _together(role: str, group: str) -> bool:
    """Whether a metric is one of the crowd; a learning rate is not, since a restart is compared with more of it."""
    return role != "learning_rate" and screened(role, group)


def _together_judged(new: Flat | None, attempt: Attempt, past: Past, out: Answers) -> dict[str, Array]:
    """The metrics that are screened together; returns the blocks that they complete."""
    if new is None:
        return {}
    crowd = out.crowds[attempt.attempt] = past.crowd(attempt, new.names)
    said, blocks = crowd.advance(new, past.metrics)
    out.say(attempt.attempt, said)
    return blocks


def _bounded(new: Flat | None, attempt: Attempt, past: Past, state: RunState) -> list[Answer]:
    """The user's bounds on metrics of the crowd, beside it: a bound must not change what the detectors know of them."""
    names = [] if new is None else [name for name in new.names if past.limits[name]]
    if new is None or not names:
        return []
    mine = state.joint.setdefault(str(attempt.attempt), {}).setdefault("bounds", {})
    parents = state.joint.get(str(attempt.parent), {}).get("bounds", {})
    samples = dict(new.each())
    said: list[Answer] = []
    for name in names:
        role, part = past.metrics[name][0], samples[name]
        real = ~is_sentinel(role, part.value)
        before = mine.get(name) or own.carry(parents.get(name, {}), attempt.first_step)
        found, mine[name] = own.scan(part.step[real], part.value[real], before, past.limits[name], name=name, role=role)
        said += found
    return said


def _evals(
    past: Past,
    parts: Mapping[Key, Samples],
    remembered: dict[Key, Line],
    metrics: Roles,
    attempt: Attempt,
    state: RunState,
) -> list[Answer]:
    """Overfitting; train losses without new rows are looked up, since evaluations may arrive later than they."""
    roles = {name: role for name, (role, group) in metrics.items() if not group}
    mine = state.evals.get(str(attempt.attempt))
    if mine is None:
        parent = state.evals.get(str(attempt.parent), {})
        mine = {
            name: {
                "state": {k: v for k, v in each["state"].items() if k in ("best", "best_step", "best_train", "count")}
            }
            for name, each in parent.items()
            if each.get("state", {}).get("best_step") is not None and each["state"]["best_step"] < attempt.first_step
        }
    waits = any(roles.get(name) == "eval_loss" for a, name in parts if a == attempt.attempt)
    if waits or any(each.get("waiting") for each in mine.values()):
        for name in (n for n, r in roles.items() if r == "loss" and (attempt.attempt, n) not in remembered):
            memory = past.memory(name, attempt.attempt)
            if memory is not None:
                remembered[attempt.attempt, name] = (memory.step, memory.value)
        said = judge_evals(parts, remembered, roles, attempt.attempt, mine)
    else:
        said = []
    state.evals[str(attempt.attempt)] = mine
    return said


def _shown(blocks: Mapping[str, Array], points: Mapping[str, Array], metrics: Roles) -> Iterator[tuple[str, Blocks]]:
    """Each detector across metrics with the new rows of what it looks at, if there are any."""
    for detector, roles in [*JOINT.items(), *TOGETHER.items(), *POINTS.items()]:
        if detector in POINTS:
            new = {name: rows for name, rows in points.items() if metrics[name][0] in roles}
        else:
            whole = detector in TOGETHER
            new = {n: rows for n, rows in blocks.items() if metrics[n][0] in roles and (metrics[n][1] == "") == whole}
        if new:
            yield detector, new


def _joint(detector: str, new: Blocks, metrics: Roles, attempt: Attempt, state: RunState) -> list[Answer]:
    """What a detector across metrics says; a new attempt goes on with what its parent knew."""
    mine = state.joint.setdefault(str(attempt.attempt), {})
    parents = state.joint.get(str(attempt.parent), {})
    module = load_joint(detector)
    if detector not in mine and detector in parents:
        mine[detector] = module.carry(parents[detector], attempt.first_step)
    said, mine[detector] = module.scan(new, metrics, mine.get(detector, {}))
    return said


def _rewind(attempt: Attempt, reached: float) -> list[Answer]:
    """That a run went back is worth a line (S0). It is known when the run has been at `reached`, its highest step so far:
    a step below that would claim that it was known before it happened.
    """
    episode = f"attempt:{attempt.attempt}"
    evidence = {"attempt": attempt.attempt, "parent": attempt.parent, "reached": reached}
    found = Finding(
        "lineage", 1, "rewind", "", "other", "none", attempt.first_step, reached, reached - attempt.first_step, "steps", 0,
        episode, evidence,
    )  # fmt: skip
    return [found, Recovery("lineage", "", episode, reached)]


def _restarted(attempt: Attempt, past: Past, rates: Sequence[str], parts: Mapping[str, Samples]) -> list[Answer]:
    """What a new attempt shows at once: that it went back, and a learning rate other than its parent's at the same steps."""
    assert attempt.parent is not None
    reached = past.reached(attempt.parent, attempt.first_step)
    said = _rewind(attempt, reached) if reached > attempt.first_step else []  # a segment may go on without a step back
    for name in rates:
        parent = past.memory(name, attempt.parent)
        if parent is not None:
            said += restarted(parent.step, parent.value, parts[name].step, parts[name].value, name)
    return said
