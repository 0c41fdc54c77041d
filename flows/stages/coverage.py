"""What was and was not checked, as rows: beside every green light stands what it does not cover."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from detectors.suite import BY_ROLE, NEEDED, detectors_of
from flows.stages.document import CHECKED
from flows.stages.memory import Memory

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


def coverage(metrics: pl.DataFrame, memories: Mapping[tuple[str, int], Memory]) -> list[dict[str, Any]]:
    """Rows (check_name, metric, reason, count) for the metrics of this pass, and for the roles that no metric has."""
    have = set(metrics["role"])
    out = [_row(role, "", CHECKED if role in have else "no metric with this role", 0) for role in EXPECTED]
    by_name = {r["name"]: (r["role"], r["group_name"]) for r in metrics.iter_rows(named=True)}
    newest = {name: memory for (name, _), memory in sorted(memories.items(), key=lambda pair: pair[0][1])}
    for name, memory in newest.items():
        role, group = by_name[name]
        if not group and role in BY_ROLE:
            out += _of_metric(name, role, memory)
    return out


def _of_metric(name: str, role: str, memory: Memory) -> list[dict[str, Any]]:
    out = []
    if memory.sentinels:
        out.append(_row("sentinels", name, "values that are no measurement", memory.sentinels))
    if memory.end and not memory.live and role != "learning_rate":
        return [*out, _row(role, name, "zero from the first sample on: not logged", memory.end)]
    for each in detectors_of(role):
        short = memory.end < NEEDED.get(each, 0)
        out.append(
            _row(each, name, f"{memory.end} of at least {NEEDED[each]} samples" if short else CHECKED, memory.end)
        )
    return out


def _row(check: str, metric: str, reason: str, count: int) -> dict[str, Any]:
    return {"check_name": check, "metric": metric, "reason": reason, "count": count}
