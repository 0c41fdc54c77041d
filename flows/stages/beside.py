"""A run beside its reference: which steps are paired, and what waits until the reference has come that far."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from detectors import reference as paired
from detectors.finding import Answer
from detectors.series import Array
from flows.stages.crowd import Roles
from flows.stages.fresh import Samples
from flows.store import Store

MOST = 4_096  # samples of a metric that wait for a reference that is behind; older ones are given up


@dataclass(frozen=True)
class Reference:
    """Another run of the store, and the gates (relative, by metric) that are not those of their role."""

    run: str
    gates: Mapping[str, float] = field(default_factory=dict)

    def gate(self, name: str, role: str) -> float | None:
        """What is worth a look at this metric; None where it is not compared."""
        return self.gates.get(name, paired.GATES.get(role))


def beside(
    other: Reference,
    store: Store,
    parts: Mapping[str, Samples],
    metrics: Roles,
    mine: dict[str, Any],
    parents: Mapping[str, Any],
) -> list[Answer]:
    """What new whole-run samples say beside those of the reference; `mine` is the state of this attempt, and goes on."""
    reached = _reached(other, store)
    asked: dict[str, tuple[float, Array]] = {}
    for name in sorted({*parts, *mine}):
        gate = other.gate(name, metrics[name][0])
        if gate is None or metrics[name][1] or name not in reached:
            continue
        state = mine.setdefault(
            name, {"waiting": np.empty((2, 0)), "pairs": paired.carry(parents.get(name, {}).get("pairs", {}))}
        )
        fresh = np.stack(parts[name][:2]) if name in parts else np.empty((2, 0))
        waiting = np.concatenate([state["waiting"], fresh], axis=1)
        ripe = waiting[0] <= reached[name]
        state["waiting"] = waiting[:, ~ripe][:, -MOST:]
        if ripe.any():
            asked[name] = gate, waiting[:, ripe]
    said: list[Answer] = []
    for name, (gate, new), theirs in _with_theirs(other, store, asked):
        found, mine[name]["pairs"] = paired.scan(
            new[0], theirs, new[1], name, metrics[name][0], gate, mine[name]["pairs"]
        )
        said += found
    return said


def _reached(other: Reference, store: Store) -> dict[str, float]:
    return dict(store.metrics(other.run).select("name", "last_step").drop_nulls().iter_rows())


def _with_theirs(
    other: Reference, store: Store, asked: Mapping[str, tuple[float, Array]]
) -> Iterator[tuple[str, tuple[float, Array], Array]]:
    """Each metric with the reference's values at its steps, NaN where there is none."""
    if not asked:
        return
    low = min(float(new[0].min()) for _, new in asked.values())
    high = max(float(new[0].max()) for _, new in asked.values())
    rows = store.stands(other.run, list(asked), low, high)
    for name, each in asked.items():
        yield name, each, _at(each[1][0], rows.filter(pl.col("name") == name))


def _at(step: Array, rows: pl.DataFrame) -> Array:
    known, value = rows["step"].to_numpy(), rows["value"].fill_null(float("nan")).to_numpy()
    if not len(known):
        return np.full(len(step), np.nan)
    at = np.minimum(np.searchsorted(known, step), len(known) - 1)
    return np.where(known[at] == step, value[at], np.nan)


def not_beside(other: Reference, store: Store, metrics: Roles, states: Mapping[str, Any]) -> str:
    """Why the comparison is less than whole; "" where nothing is missing. `states` are those of the newest attempt."""
    reached = _reached(other, store)
    common = [
        n for n, (role, group) in metrics.items() if not group and n in reached and other.gate(n, role) is not None
    ]
    if not common:
        return f"no metric in common with {other.run}"
    if not any(metrics[name][0] == "loss" for name in common):
        return f"no loss in common with {other.run}: whether both saw the same data is not known"
    waits = [name for name in common if states.get(name, {}).get("waiting", np.empty((2, 0))).shape[1]]
    if waits:
        return f"{other.run} ends at step {reached[waits[0]]:.15g}: nothing is compared behind it"
    if any(states.get(name, {}).get("pairs", {}).get("order") == "apart" for name in common):
        return f"{other.run} saw other data at the same steps: only compared without pairing the noise"
    return ""
