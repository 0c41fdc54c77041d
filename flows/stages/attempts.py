"""Which attempt a row belongs to, judged in the order in which the source wrote it.

A source that goes back has begun a new attempt when most of its metrics (weighted by how often they were logged in the
attempt at hand) go back and then advance through steps already seen. A lone old row, a step written twice, a block
average stamped with its start, and a long file that starts over at each name are none. Rows that may begin an attempt
are held until the next rows tell; so the result depends on the rows alone, not on how they were batched.
The next segment of a logical run begins an attempt whether or not it goes back.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from flows.records import SAMPLE_SCHEMA, STORED_SCHEMA, Attempt, Begin
from flows.sources.contract import SYSTEM

MOST_HELD = 200_000  # rows; a source that stays undecided for longer has not gone back


@dataclass
class Tracker:
    """Where a source stands: attempts so far, per metric [samples, highest step, last step] of the newest, rows held."""

    attempts: list[Attempt] = field(default_factory=list)
    metrics: dict[str, list[float]] = field(default_factory=dict)
    held: list[tuple[Any, ...]] = field(default_factory=list)

    def dump(self) -> str:
        """JSON text."""
        return json.dumps(
            {"attempts": [vars(a) for a in self.attempts], "metrics": self.metrics, "held": self.held}, default=str
        )

    @staticmethod
    def load(text: str | None) -> "Tracker":
        """The tracker that `dump` wrote; a fresh one for None."""
        if text is None:
            return Tracker()
        raw = json.loads(text)
        return Tracker([Attempt(**a) for a in raw["attempts"]], raw["metrics"], [tuple(row) for row in raw["held"]])


def assign(rows: pl.DataFrame, tracker: Tracker, *, final: bool = False) -> pl.DataFrame:
    """Gives SAMPLE_SCHEMA rows their attempt and whether they came late (STORED_SCHEMA); advances the tracker.

    With `final` (nothing will follow) held rows are decided: they did not begin an attempt.
    """
    if tracker.held:
        held = pl.DataFrame(tracker.held, schema={**SAMPLE_SCHEMA, "logged_at": pl.String()}, orient="row")
        rows = pl.concat([held.with_columns(pl.col("logged_at").str.to_datetime(time_unit="us", strict=False)), rows])
        tracker.held = []
    parts: list[pl.DataFrame] = []
    while len(rows):
        back = _first_back(rows, tracker)
        forward = rows if back is None else rows[:back]
        parts.append(_forward(forward, tracker))
        if back is None:
            break
        rows = rows[back:]
        verdict = _decide(rows, tracker)
        if verdict is None and not final:
            tracker.held = rows.with_columns(pl.col("logged_at").dt.to_string("iso:strict")).rows()
            break
        if verdict:
            _begin(float(rows["step"][0]), tracker)
            continue
        # the first row of the candidate is a lone old one; what follows it is looked at afresh
        parts.append(_late(rows[:1], tracker))
        rows = rows[1:]
    return pl.concat(parts) if parts else pl.DataFrame(schema=STORED_SCHEMA)


def begin(rows: pl.DataFrame, tracker: Tracker, what: Begin) -> pl.DataFrame:
    """Another segment begins with the first of `rows`: decides what was held, and begins an attempt before it.

    Returns the held rows, as `assign` would. The attempt goes on from the newest of the segment that `what` names.
    """
    held = assign(rows.clear(), tracker, final=True)
    mine = [each.attempt for each in tracker.attempts if what.parent and each.source == what.parent]
    step = float(rows["step"][0])
    if not tracker.attempts:
        tracker.attempts = [Attempt(0, step, None, "start", source=what.segment)]
        return held
    _begin(step, tracker, max(mine, default=None), what)
    return held


def _first_back(rows: pl.DataFrame, tracker: Tracker) -> int | None:
    """Position of the first row whose step is below an earlier one of the same metric in this attempt."""
    highest = max((m[1] for m in tracker.metrics.values()), default=float("-inf"))
    steps = rows["step"]
    if steps[0] >= highest and steps.is_sorted():
        return None
    known = pl.DataFrame(
        {"name": list(tracker.metrics), "known": [m[1] for m in tracker.metrics.values()]},
        schema={"name": pl.String, "known": pl.Float64},
    )
    before = (
        rows.select("name", "step")
        .join(known, on="name", how="left", maintain_order="left")
        .select(
            back=pl.col("step") < pl.max_horizontal(pl.col("known"), pl.col("step").cum_max().shift(1).over("name"))
        )["back"]
    )
    position = before.fill_null(value=False).arg_max()
    return position if position is not None and before[position] else None


def _forward(rows: pl.DataFrame, tracker: Tracker) -> pl.DataFrame:
    """Rows that only go forward; they count for their metrics."""
    if not tracker.attempts and len(rows):
        tracker.attempts = [Attempt(0, float(rows["step"][0]), None, "start")]
    for name, count, high, last in (
        rows.group_by("name")
        .agg(pl.len().alias("n"), pl.col("step").max().alias("h"), pl.col("step").last().alias("l"))
        .iter_rows()
    ):
        old = tracker.metrics.get(name)
        tracker.metrics[name] = [count + (old[0] if old else 0), max(high, old[1]) if old else high, last]
    return _stored(rows, tracker, late=False)


def _late(rows: pl.DataFrame, tracker: Tracker) -> pl.DataFrame:
    return _stored(rows, tracker, late=True)


def _stored(rows: pl.DataFrame, tracker: Tracker, *, late: bool) -> pl.DataFrame:
    attempt = tracker.attempts[-1].attempt if tracker.attempts else 0
    return rows.with_columns(attempt=pl.lit(attempt, pl.Int32), late=pl.lit(late)).select(list(STORED_SCHEMA))


def _decide(rows: pl.DataFrame, tracker: Tracker) -> bool | None:
    """Whether the first row begins a new attempt: True, False, or None while more rows must tell."""
    # a machine's metrics have no step of their own: they say nothing of where the run went on
    voters = {name: m for name, m in tracker.metrics.items() if not name.startswith(SYSTEM)} or tracker.metrics
    total = sum(m[0] for m in voters.values())
    votes: dict[str, str] = {}
    last: dict[str, float] = {}
    yes = no = 0.0
    seen = 0
    for step, name in _steps(rows):
        seen += 1
        known = voters.get(name)
        if known is None:
            continue
        vote = votes.get(name)
        new = _vote(vote, step, known[1], last.get(name))
        last[name] = step
        if new != vote:
            yes += known[0] * ((new == "yes") - (vote == "yes"))
            no += known[0] * ((new == "no") - (vote == "no"))
            votes[name] = new
        if 2 * yes > total:
            return True
        if 2 * no >= total or seen > MOST_HELD:
            return False
    return None


def _steps(rows: pl.DataFrame) -> Iterator[tuple[float, str]]:
    for part in rows.select("step", "name").iter_slices(4096):
        yield from part.iter_rows()


def _vote(vote: str | None, step: float, high: float, last: float | None) -> str:
    """back: went back, undecided; yes: and then advanced through seen steps; no: goes forward."""
    if vote == "yes":
        return vote
    if step < high and (vote != "back" or last is None or step <= last):
        return "back"
    if vote == "back" and last is not None and last < step <= high:
        return "yes"
    return "no"


def _begin(step: float, tracker: Tracker, parent: int | None = None, what: Begin | None = None) -> None:
    """A new attempt at `step`, the child of the newest or of `parent`. Of its ancestors stands what lies before it."""
    newest = tracker.attempts[-1]
    parent = newest.attempt if parent is None else parent
    reason, source = ("rewind", newest.source) if what is None else (what.reason, what.segment)
    ends = {parent: step}
    if what is not None and what.last is not None:
        ends[parent] = min(step, math.nextafter(what.last, math.inf))
    by_number = {each.attempt: each for each in tracker.attempts}
    below, end = by_number[parent], step
    while below.parent is not None:
        end = min(end, below.first_step)
        ends[below.parent] = end
        below = by_number[below.parent]
    # what is no ancestor of the newest is no part of the run
    tracker.attempts = [replace(each, valid_until=ends.get(each.attempt, each.first_step)) for each in tracker.attempts]
    tracker.attempts.append(Attempt(newest.attempt + 1, step, parent, reason, source=source))
    tracker.metrics = {}
