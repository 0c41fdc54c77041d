"""What was and was not checked, as rows: beside every green light stands what it does not cover."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import polars as pl

from detectors.suite import BY_ROLE, NEEDED, detectors_of
from detectors.tiers import is_statistical
from flows.stages.bounds import Watched
from flows.stages.crowd import Crowd
from flows.stages.document import CHECKED
from flows.stages.past import Answers
from flows.stages.runstate import RunState

# the checks that a large run is expected to have, whether or not it logs what they need
EXPECTED = (
    "loss",
    "grad_norm",
    "param_norm",
    "learning_rate",
    "eval_loss",
    "mfu",
    "throughput",
    "token_drop",
    "router_entropy",
)


SECOND = "investigated only when the false discovery rate allows: all seats of the first tier are taken, or one of many"


def coverage(metrics: pl.DataFrame, found: Answers, seated: Collection[str]) -> list[dict[str, Any]]:
    """Rows (check_name, metric, reason, count) for the metrics of this pass, and for the roles that no metric has.

    `seated` are the metrics of the first tier.
    """
    have = set(metrics["role"])
    out = [_row(role, "", CHECKED if role in have else "no metric with this role", 0) for role in EXPECTED]
    roles = {
        name: role for name, role, group in metrics.select("name", "role", "group_name").iter_rows()
        if not group and role in BY_ROLE
    }  # fmt: skip
    newest: dict[str, Seen] = {}
    for attempt in sorted({*(number for _, number in found.memories), *found.crowds}):
        mine = {name: each for (name, number), each in found.memories.items() if number == attempt and name in roles}
        newest |= {name: Seen(each.end, each.live, each.sentinels) for name, each in mine.items()}
        crowd = found.crowds.get(attempt, Crowd())
        for k in (k for k, name in enumerate(crowd.names) if name in roles and name not in mine):
            newest[crowd.names[k]] = Seen(int(crowd.calm.samples[k]), bool(crowd.live[k]), int(crowd.sentinels[k]))
    for name, seen in newest.items():
        out += _of_metric(name, roles[name], seen)
    judged = [name for name, role, group in metrics.select("name", "role", "group_name").iter_rows()
              if is_statistical(role, group)]  # fmt: skip
    if second := len({*judged} - {*seated}):
        out.append(_row("second tier", "", SECOND, second))
    if found.unreadable:
        out.append(_row("judge", "", "memories of another version were given up: judged anew", len(found.unreadable)))
    return out


def of_bounds(metrics: pl.DataFrame, watched: Sequence[Watched], state: RunState) -> list[dict[str, Any]]:
    """One row about the user's own bounds, which names those that no metric has; also once after the last is gone."""
    if not watched and not state.bounded:
        return []
    state.bounded = bool(watched)
    have = list(metrics.select("name", "role").iter_rows())
    idle = [each.label for each in watched if not any(each.takes(name, role) for name, role in have)]
    reason = f"no such metric: {', '.join(idle)}" if idle else CHECKED
    return [_row("bounds", "", reason, len(watched))]


class Seen(NamedTuple):
    """Samples of a metric, whether any was not zero, and how many were no measurement."""

    samples: int
    live: bool
    sentinels: int


def _of_metric(name: str, role: str, seen: Seen) -> list[dict[str, Any]]:
    out = []
    if seen.sentinels:
        out.append(_row("sentinels", name, "values that are no measurement", seen.sentinels))
    if seen.samples and not seen.live and role != "learning_rate":
        return [*out, _row(role, name, "zero from the first sample on: not logged", seen.samples)]
    for each in detectors_of(role):
        short = seen.samples < NEEDED.get(each, 0)
        out.append(
            _row(each, name, f"{seen.samples} of at least {NEEDED[each]} samples" if short else CHECKED, seen.samples)
        )
    return out


def _row(check: str, metric: str, reason: str, count: int) -> dict[str, Any]:
    return {"check_name": check, "metric": metric, "reason": reason, "count": count}
