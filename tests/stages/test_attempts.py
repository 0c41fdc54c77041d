"""Which attempt a row belongs to: restarts, and what only looks like one."""

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.records import SAMPLE_SCHEMA
from flows.stages.attempts import Tracker, assign

Rows = list[tuple[float, str, float]]


def frame(rows: Rows) -> pl.DataFrame:
    data = [(float(step), None, name, value) for step, name, value in rows]
    return pl.DataFrame(data, schema=SAMPLE_SCHEMA, orient="row")


def assigned(rows: Rows, cuts: tuple[int, ...] = ()) -> tuple[list[tuple], list[tuple]]:
    """(attempt, late) of each row in order, and (attempt, first step, valid until) of each attempt."""
    tracker, out, before = Tracker(), [], 0
    for cut in (*cuts, len(rows)):
        tracker = Tracker.load(tracker.dump())
        out.append(assign(frame(rows[before:cut]), tracker, final=cut == len(rows)))
        before = cut
    stored = pl.concat(out)
    return (
        stored.select("step", "name", "value", "attempt", "late").rows(),
        [(a.attempt, a.first_step, a.valid_until) for a in tracker.attempts],
    )


def logged(steps, names=("loss", "lr"), value=0.0) -> Rows:
    return [(s, n, value) for s in steps for n in names]


def test_a_resume_that_replays_steps_is_a_new_attempt():
    rows, attempts = assigned(logged(range(1, 101)) + logged(range(51, 101), value=1.0))
    assert attempts == [(0, 1.0, 51.0), (1, 51.0, None)]
    assert [r[3] for r in rows] == [0] * 200 + [1] * 100
    assert not any(r[4] for r in rows)


def test_a_second_restart_cuts_both_earlier_attempts():
    _, attempts = assigned(logged(range(1, 50)) + logged(range(20, 60)) + logged(range(10, 30)))
    assert attempts == [(0, 1.0, 10.0), (1, 20.0, 10.0), (2, 10.0, None)]


def test_a_lone_old_row_is_late_and_no_attempt():
    rows, attempts = assigned(logged(range(1, 11)) + logged([5], value=9.0) + logged(range(11, 20)))
    assert attempts == [(0, 1.0, None)]
    assert [r for r in rows if r[4]] == [(5.0, "loss", 9.0, 0, True), (5.0, "lr", 9.0, 0, True)]


def test_a_step_written_twice_is_no_attempt():
    rows, attempts = assigned(logged([1, 2, 3, 3]))
    assert attempts == [(0, 1.0, None)]
    assert not any(r[4] for r in rows)


def test_a_block_average_stamped_with_its_start_is_no_attempt():
    rows = []
    for block in range(6):
        rows += logged(range(block * 10, block * 10 + 10), names=("loss", "lr", "grad_norm"))
        rows.append((block * 10 - 3, "average", 1.0))
        rows.append((block * 10 - 5, "average", 1.0))
    _, attempts = assigned(rows)
    assert [a[0] for a in attempts] == [0]


def test_a_long_table_that_starts_over_at_each_name_is_no_attempt():
    _, attempts = assigned([(s, name, 0.0) for name in ("a", "b", "c") for s in range(50)])
    assert attempts == [(0, 0.0, None)]


def test_evaluations_that_are_rare_do_not_hide_a_restart():
    first = [row for s in range(100) for row in [*logged([s]), *([(s, "eval", 0.0)] if s % 25 == 0 else [])]]
    _, attempts = assigned(first + logged(range(60, 90)))
    assert attempts == [(0, 0.0, 60.0), (1, 60.0, None)]


def test_rows_that_may_begin_an_attempt_are_held_until_the_next_rows_tell():
    tracker = Tracker()
    assert len(assign(frame(logged(range(1, 11))), tracker)) == 20
    assert len(assign(frame(logged([5])), tracker)) == 0
    assert len(tracker.held) == 2
    decided = assign(frame(logged([6])), Tracker.load(tracker.dump()))
    assert decided["attempt"].to_list() == [1] * 4


LOGS = st.lists(st.tuples(st.integers(0, 12), st.sampled_from("abc")), min_size=1, max_size=60)


@settings(max_examples=200, deadline=None)
@given(log=LOGS, data=st.data())
def test_any_split_gives_the_same_attempts(log, data):
    rows = [(float(s), n, float(i)) for i, (s, n) in enumerate(log)]
    cuts = tuple(sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=5))))
    assert assigned(rows, cuts) == assigned(rows)


@settings(max_examples=200, deadline=None)
@given(log=LOGS)
def test_no_row_is_lost_or_moved_and_only_late_rows_go_back(log):
    rows = [(float(s), n, float(i)) for i, (s, n) in enumerate(log)]
    stored, attempts = assigned(rows)
    assert [r[2] for r in stored] == [r[2] for r in rows]
    assert all(r[3] < len(attempts) for r in stored)
    high: dict[tuple[int, str], float] = {}
    for step, name, _, attempt, late in stored:
        known = high.get((attempt, name), float("-inf"))
        assert late == (step < known)
        high[attempt, name] = max(step, known)


def test_metrics_of_machines_do_not_outvote_a_rewind() -> None:
    """They are placed at the last step that was reached, and there are many of them."""
    first = [(float(step), "loss", 1.0) for step in range(20)]
    machines = [(19.0, f"system/gpu.{at}.gpu", 90.0) for at in range(40)]
    again = [(float(step), "loss", 1.0) for step in range(10, 30)]
    later = [(29.0, f"system/gpu.{at}.gpu", 90.0) for at in range(40)]
    _, attempts = assigned([*first, *machines, *again, *later])
    assert [start for _, start, _ in attempts] == [0.0, 10.0]
