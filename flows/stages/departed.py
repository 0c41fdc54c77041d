"""A run beside the expectations that a ladder gave for it, each of which judges only the steps behind its record."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from detectors import departure, given_loss
from detectors.finding import Answer
from detectors.series import Array
from flows.stages.crowd import Roles
from flows.stages.fresh import Samples

Body = Mapping[str, Any]


def departed(
    bodies: Sequence[Body],
    parts: Mapping[str, Samples],
    metrics: Roles,
    mine: dict[str, Any],
    parents: Mapping[str, Any],
    first: float,
) -> list[Answer]:
    """What new samples say; `mine` is the state of this attempt (by version and metric) and goes on, `first` its first step."""
    said: list[Answer] = []
    for k, (body, begin, end) in enumerate(spans(bodies)):
        state, before = mine.setdefault(str(k), {}), parents.get(str(k), {})
        shown = {name: _between(parts[name], begin, end) for name in parts if name in body["metrics"]}
        for name, (step, value) in shown.items():
            expected = body["metrics"][name]
            if expected["role"] in departure.GATES and len(step):
                known = state.get(name) or departure.carry(before.get(name, {}), first * body["per_step"])
                full = {**expected, **{key: body[key] for key in ("at", "per_step", "parameters")}}
                full |= {"leaf": bool(metrics[name][1])} | ({"tokens": body["tokens"]} if body.get("tokens") else {})
                found, state[name] = departure.scan(step, value, name, expected["role"], full, known)
                said += found
        said += _evals(body, shown, metrics, state)
    return said


def spans(bodies: Sequence[Body]) -> list[tuple[Body, float, float]]:
    """Each version with the steps that it judges: behind its record (exclusive), up to that of the next one (inclusive)."""
    begins = [-math.inf if body.get("from_step") is None else float(body["from_step"]) for body in bodies]
    return list(zip(bodies, begins, [*begins, math.inf][1:], strict=True))


def _between(part: Samples, begin: float, end: float) -> tuple[Array, Array]:
    inside = (part.step > begin) & (part.step <= end)
    return part.step[inside], part.value[inside]


def _evals(body: Body, shown: Mapping[str, tuple[Array, Array]], metrics: Roles, state: dict[str, Any]) -> list[Answer]:
    """Evaluations given the loss, once the loss has passed their steps."""
    said: list[Answer] = []
    for name, expected in body["metrics"].items():
        if "given" not in expected or name not in metrics:
            continue
        own = state.setdefault(name, {})
        fresh = np.stack(shown[name]) if name in shown else np.empty((2, 0))
        waiting = np.concatenate([own.get("waiting", np.empty((2, 0))), fresh], axis=1)
        loss = expected["given"]["loss"]
        blocks = state.get(loss, {}).get("blocks", np.empty((2, 0)))
        share = body["per_step"]
        ripe = waiting[0] * share <= (blocks[0, -1] if blocks.shape[1] else -math.inf)
        level = np.stack([blocks[0], blocks[1] + np.interp(blocks[0], body["at"], body["metrics"][loss]["centre"])])
        found, after = given_loss.scan(
            waiting[0][ripe],
            waiting[1][ripe],
            share,
            level,
            name,
            expected["role"],
            expected["given"],
            own.get("state", {}),
        )
        state[name] = {"waiting": waiting[:, ~ripe], "state": after}
        said += found
    return said
