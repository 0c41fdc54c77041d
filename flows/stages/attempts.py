"""Which attempt a row belongs to, judged in the order in which the source wrote it.

A source that goes back has begun a new attempt when most of its metrics (weighted by how often they were logged in the
attempt at hand) go back and then advance through steps already seen. A lone old row, a step written twice, a block
average stamped with its start, and a long file that starts over at each name are none. Rows that may begin an attempt
are held until the next rows tell; so the result depends on the rows alone, not on how they were batched.
The next segment of a logical run begins an attempt whether or not it goes back. A step that starts over with each epoch
begins none (`epochs.py`): the rows of the next epoch are given the steps behind the last one.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

import polars as pl

from flows.records import ANEW, SAMPLE_SCHEMA, STORED_SCHEMA, Attempt, Begin
from flows.sources.contract import SYSTEM
from flows.stages.epochs import Axis, starts_over
from flows.stages.tracker import Tracker

__all__ = ["Tracker", "assign", "begin"]

MOST_HELD = 200_000  # rows; a source that stays undecided for longer has not gone back
ROWS_AT_HAND = 4096  # that are gone through one by one


def assign(rows: pl.DataFrame, tracker: Tracker, *, final: bool = False, epochs: bool = True) -> pl.DataFrame:
    """Gives SAMPLE_SCHEMA rows their attempt and whether they came late (STORED_SCHEMA); advances the tracker.

    With `final` (nothing will follow) held rows are decided: what did not go back for sure began no attempt, what did began
    no epoch. Without `epochs` the steps are taken as they stand: whoever chose them means them.
    """
    rows = _onward(rows, tracker.axis.offset)
    if tracker.held:
        held = pl.DataFrame(tracker.held, schema={**SAMPLE_SCHEMA, "logged_at": pl.String()}, orient="row")
        rows = pl.concat([held.with_columns(pl.col("logged_at").str.to_datetime(time_unit="us", strict=False)), rows])
        tracker.held = []
    parts: list[pl.DataFrame] = []
    while len(rows):
        back = _first_back(rows, tracker)
        parts.append(_forward(rows if back is None else rows[:back], tracker))
        if back is None:
            break
        late, verdict = _row_by_row(rows[back:], tracker)
        parts.append(_stored(rows[back : back + len(late)], tracker, late))
        tracker.axis.follow(rows[back : back + len(late)].filter(~pl.Series(late, dtype=pl.Boolean)))
        rows = rows[back + len(late) :]
        if verdict is False:
            continue
        epoch = _is_epoch(rows, tracker) if verdict and epochs else False
        if verdict and epoch:
            rows = _next_epoch(rows, tracker)
        elif verdict and (epoch is False or final):
            rows = _restart(rows, tracker)
        elif final:
            parts.append(_undecided(rows, tracker))
            break
        else:
            tracker.held = rows.with_columns(pl.col("logged_at").dt.to_string("iso:strict")).rows()
            break
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
    back = _back(rows, tracker)
    position = back.arg_max()
    return position if position is not None and back[position] else None


def _back(rows: pl.DataFrame, tracker: Tracker) -> pl.Series:
    """Which rows have a step below an earlier one of the same metric in this attempt."""
    known = pl.DataFrame(
        {"name": list(tracker.metrics), "known": [m[1] for m in tracker.metrics.values()]},
        schema={"name": pl.String, "known": pl.Float64},
    )
    before = pl.max_horizontal(pl.col("known"), pl.col("step").cum_max().shift(1).over("name"))
    found = rows.select("name", "step").join(known, on="name", how="left", maintain_order="left")
    return found.select(back=pl.col("step") < before)["back"].fill_null(value=False)


def _row_by_row(rows: pl.DataFrame, tracker: Tracker) -> tuple[list[bool], bool | None]:
    """The first of `rows` may begin an attempt: whether the rows at hand came late, up to one that does (True) or for
    which more rows must tell (None); False where none of them does. Logs of two writers go back at every other row."""
    steps, names = rows["step"][:ROWS_AT_HAND].to_list(), rows["name"][:ROWS_AT_HAND].to_list()
    late: list[bool] = []
    for at, (step, name) in enumerate(zip(steps, names, strict=True)):
        known = tracker.metrics.get(name)
        if known is None:
            tracker.metrics[name] = [1, step, step]
        elif step >= known[1]:
            tracker.metrics[name] = [known[0] + 1, step, step]
        else:
            ahead = zip(islice(steps, at, None), islice(names, at, None), strict=True)
            verdict = _decide(chain(ahead, _steps(rows[ROWS_AT_HAND:])), tracker)
            if verdict is not False:
                return late, verdict
        late.append(known is not None and step < known[1])
    return late, False


def _undecided(rows: pl.DataFrame, tracker: Tracker) -> pl.DataFrame:
    """What is left when nothing will follow. What goes back came late, be it ever so much."""
    back = _back(rows, tracker)
    _count(rows.filter(~back), tracker)
    return _stored(rows, tracker, back)


def _forward(rows: pl.DataFrame, tracker: Tracker) -> pl.DataFrame:
    """Rows that only go forward; they count for their metrics."""
    if not tracker.attempts and len(rows):
        tracker.attempts = [Attempt(0, float(rows["step"][0]), None, "start")]
    _count(rows, tracker)
    tracker.axis.follow(rows)
    return _stored(rows, tracker, pl.Series([False]).new_from_index(0, len(rows)))


def _onward(rows: pl.DataFrame, by: float) -> pl.DataFrame:
    return rows.with_columns(pl.col("step") + by) if by else rows


def _is_epoch(rows: pl.DataFrame, tracker: Tracker) -> bool | None:
    """Whether `rows`, which begin something, begin an epoch; None while more rows must tell."""
    if not tracker.is_first(rows["step"][0]) or tracker.reach()[0] <= tracker.attempts[-1].first_step:
        return False
    samples = {name: known[0] for name, known in tracker.metrics.items()}
    for many in (ROWS_AT_HAND, MOST_HELD):
        found = starts_over(rows.head(many), tracker.axis, samples)
        if found is not None or len(rows) < many:
            return found
    return False


def _next_epoch(rows: pl.DataFrame, tracker: Tracker) -> pl.DataFrame:
    """The rows, with the first of them one distance behind the last step of the attempt."""
    by = sum(tracker.reach()) - float(rows["step"][0])
    tracker.axis.offset += by
    tracker.facts.joined += 1
    return _onward(rows, by)


def _restart(rows: pl.DataFrame, tracker: Tracker) -> pl.DataFrame:
    """The rows that begin an attempt: of a run that was started anew at the first step, else of one that goes on."""
    axis, (_, stride), again = tracker.axis, tracker.reach(), tracker.is_first(rows["step"][0])
    rows = _onward(rows, -axis.offset) if again else rows
    _begin(float(rows["step"][0]), tracker)
    tracker.axis = Axis(0.0 if again else axis.offset, axis.first)
    if again and axis.first is not None and axis.first <= stride:
        tracker.attempts[-1] = replace(tracker.attempts[-1], reason=ANEW)
    return rows


def _count(rows: pl.DataFrame, tracker: Tracker) -> None:
    for name, count, high, last in (
        rows.group_by("name", maintain_order=True)
        .agg(pl.len().alias("n"), pl.col("step").max().alias("h"), pl.col("step").last().alias("l"))
        .iter_rows()
    ):
        old = tracker.metrics.get(name)
        tracker.metrics[name] = [count + (old[0] if old else 0), max(high, old[1]) if old else high, last]


def _stored(rows: pl.DataFrame, tracker: Tracker, late: Sequence[bool] | pl.Series) -> pl.DataFrame:
    attempt = tracker.attempts[-1].attempt if tracker.attempts else 0
    flags = pl.Series("late", late, dtype=pl.Boolean)
    return rows.with_columns(flags, attempt=pl.lit(attempt, pl.Int32)).select(list(STORED_SCHEMA))


def _decide(rows: Iterable[tuple[float, str]], tracker: Tracker) -> bool | None:
    """Whether the first row begins a new attempt: True, False, or None while more rows must tell."""
    # a machine's metrics have no step of their own: they say nothing of where the run went on
    voters = {name: m for name, m in tracker.metrics.items() if not name.startswith(SYSTEM)} or tracker.metrics
    total = sum(m[0] for m in voters.values())
    votes: dict[str, str] = {}
    last: dict[str, float] = {}
    yes = no = 0.0
    seen = 0
    for step, name in rows:
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
    tracker.metrics, tracker.axis = {}, Axis()
