"""From which step on an event counts: the first one that was logged after somebody put it on record.

So it is for the detectors, which ask what happened at a step, as for the incidents, which are lowered by it.
Once found it is kept, so that it depends on the samples and not on when the watch ran. What was logged before never
learns of it: an event that was declared too late lowers an incident from then on and leaves what was said as it was.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from detectors.window import Known
from flows.incidents.severity import StepOf
from flows.records import Attempt, Event
from flows.stages.planned import SOURCE
from flows.stages.runstate import RunState


def hear(rows: pl.DataFrame, events: Sequence[Event], state: RunState) -> None:
    """Note the events that the new samples (attempt, step, seconds) are later than, an attempt; `state` goes on.

    A sample without a time was read after the event, so it counts as later.
    """
    if not len(rows):
        return
    for recorded_at in {each.recorded_at for each in events if each.recorded_at is not None}:
        later = rows.filter(
            pl.col("seconds").is_null() | pl.col("seconds").is_nan() | (pl.col("seconds") >= recorded_at)
        )
        for attempt, step in later.group_by("attempt").agg(pl.col("step").min()).iter_rows():
            state.heard.setdefault(_key(attempt, recorded_at), float(step))


def dated(events: Sequence[Event]) -> list[Event]:
    """Those of a plan without the moment at which they were stored: a plan counts from its own steps."""
    return [replace(each, recorded_at=None) if each.source == SOURCE else each for each in events]


def known_to(events: Sequence[Event], attempts: Sequence[Attempt], attempt: int, state: RunState) -> list[Known]:
    """What was planned or done, with the step from which on an attempt knows it."""
    heard = step_of(state, attempt)
    told = {
        Known(each.step, each.kind)
        if each.recorded_at is None
        else Known(each.step, each.kind, heard(each.recorded_at))
        for each in dated(events)
    }
    return sorted({*told, *(Known(each.step, each.kind) for each in restarts(attempts, attempt))})


def restarts(attempts: Sequence[Attempt], attempt: int) -> list[Event]:
    """That an attempt, and those before it in its line, began. Of a later one it could not know: it is no cause of what it
    cut off."""
    by_number = {each.attempt: each for each in attempts}
    found, each = [], by_number[attempt]
    while each.parent is not None:
        found.append(Event("restart", each.first_step, source="detected"))
        each = by_number[each.parent]
    return found


def step_of(state: RunState, attempt: int) -> StepOf:
    """Unix seconds at which an event was recorded -> the step from which it counts in an attempt; inf: not yet."""
    return lambda recorded_at: state.heard.get(_key(attempt, recorded_at), math.inf)


def _key(attempt: int, recorded_at: float) -> str:
    return f"{attempt}:{recorded_at!r}"
