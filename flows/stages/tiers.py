"""The second tier of an attempt: which metrics are in it, and what of their findings may be told by now."""

from collections.abc import Mapping, Sequence

import polars as pl

from detectors import tiers
from detectors.finding import Finding, Recovery
from flows.records import Attempt
from flows.stages.runstate import RunState


def by_tier(
    rows: pl.DataFrame,
    metrics: Mapping[str, tuple[str, str]],
    attempt: Attempt,
    answers: Sequence[Finding | Recovery],
    state: RunState,
) -> list[Finding | Recovery]:
    """The answers of a pass about one attempt as they may be told; `metrics` gives role and group. `state` goes on."""
    number = str(attempt.attempt)
    judged = [name for name, (role, group) in metrics.items() if tiers.is_statistical(role, group)]
    mine = rows.filter((pl.col("attempt") == attempt.attempt) & pl.col("name").is_in(judged))
    first = mine.group_by("name").agg(pl.col("step").min()).iter_rows()
    whole = ((step, metrics[name][0], name) for name, step in first if not metrics[name][1])
    state.seats = tiers.seated(state.seats, attempt.attempt, whole)
    second = [name for name in judged if name not in {seat[3] for seat in state.seats}]
    if number not in state.second and not second:
        return list(answers)
    before = state.second.get(number) or tiers.carry(state.second.get(str(attempt.parent), {}))
    parts = mine.filter(pl.col("name").is_in(second)).partition_by("name", as_dict=True, maintain_order=True)
    lines = {str(key[0]): (metrics[str(key[0])][0], part["step"].to_numpy()) for key, part in parts.items()}
    newest = float(rows.filter(pl.col("attempt") == attempt.attempt)["step"].to_numpy().max())
    reached = max(newest, before.get("newest", newest))
    said, after = tiers.told(answers, lines, reached, before)
    state.second[number] = {**after, "newest": reached}
    return said
