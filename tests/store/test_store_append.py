import itertools
import math
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.records import STORED_SCHEMA, Attempt, Description, Role
from flows.store import open_store

NAN = math.nan


@pytest.fixture(scope="session")
def samples(look):
    return lambda store: look(
        store, "SELECT name, attempt, step, value, late, batch FROM samples ORDER BY name, attempt, step"
    ).rows()


def test_an_append_stores_rows_cursor_tracker_and_notes_together(store, append, samples):
    done = append(store, (0, "loss", 2.0), (0, "grad", 5.0), (1, "loss", 1.5), cursor="at 3", notes={"no JSON": 2})
    assert (done.new_rows, done.rewritten, done.batch) == (3, 0, 1)
    assert store.pull_state("hero") == ("at 3", "t")
    assert samples(store) == [
        ("grad", 1, 0.0, 5.0, False, 1),
        ("loss", 1, 0.0, 2.0, False, 1),
        ("loss", 1, 1.0, 1.5, False, 1),
    ]
    assert store.coverage("hero").select("check_name", "reason", "count").rows() == [("pull", "no JSON", 2)]


def test_the_same_rows_again_change_nothing(store, append, look, samples):
    given_rows = [(0, "loss", 2.0), (1, "loss", NAN), (2, "loss", math.inf)]
    append(store, *given_rows)
    before = samples(store)
    again = append(store, *given_rows)
    assert (again.new_rows, again.rewritten, again.batch) == (0, 0, 2)
    assert str(samples(store)) == str(before)
    assert look(store, "FROM rewritten").is_empty()


def test_another_value_of_a_step_replaces_the_sample_and_the_first_is_remembered(store, append, look, samples):
    append(store, (0, "loss", 2.0), (1, "loss", 1.0))
    done = append(store, (0, "loss", 3.0), (0, "loss", 4.0), (1, "loss", 1.0))
    assert (done.new_rows, done.rewritten) == (0, 2)
    assert [row[3] for row in samples(store)] == [4.0, 1.0]
    assert look(store, "FROM rewritten").rows() == [("hero", "loss", 1, 0.0, 2.0, 2)]
    assert store.coverage("hero")["count"].to_list() == [2]


def test_two_values_of_one_step_within_one_frame_count_as_rewritten(store, append, look, samples):
    done = append(store, (0, "loss", 2.0), (0, "loss", NAN), (0, "loss", NAN), (1, "loss", 7.0))
    assert (done.new_rows, done.rewritten) == (2, 1)
    assert math.isnan(samples(store)[0][3])
    assert look(store, "SELECT first_value, times FROM rewritten").rows() == [(2.0, 1)]


def test_the_last_value_of_a_metric_follows_a_rewritten_last_step(store, append):
    append(store, (0, "loss", 2.0), (9, "loss", 1.0))
    append(store, (9, "loss", 8.0))
    assert store.metrics("hero").rows() == [("loss", "loss", "nats", "down", "", 2, 0.0, 9.0, 8.0)]


def test_a_late_row_below_the_mark_is_added_and_marked(store, append, samples):
    append(store, (0, "loss", 2.0), (9, "loss", 1.0))
    append(store, (5, "loss", 1.7, 1, True))
    assert samples(store)[1] == ("loss", 1, 5.0, 1.7, True, 2)
    assert store.metrics("hero")["last_step"].to_list() == [9.0]


def test_several_attempts_may_stand_in_one_frame(store, append, samples):
    both = [Attempt(1, 0.0, None, "start", 1.0), Attempt(2, 1.0, 1, "rewind")]
    append(store, (0, "loss", 2.0), (1, "loss", 1.5), (1, "loss", 1.6, 2), (2, "loss", 1.4, 2), attempts=both)
    assert [(row[1], row[2], row[3]) for row in samples(store)] == [(1, 0, 2.0), (1, 1, 1.5), (2, 1, 1.6), (2, 2, 1.4)]
    assert [replace(each, source="") for each in store.attempts("hero")] == both
    assert {each.source for each in store.attempts("hero")} == {"runs/hero.jsonl"}
    assert store.history("hero", "loss").select("attempt", "step", "value").rows() == [
        (1, 0, 2.0),
        (2, 1, 1.6),
        (2, 2, 1.4),
    ]


def test_rows_without_a_step_or_of_another_shape_are_refused_and_nothing_is_stored(store, append, rows, samples):
    with pytest.raises(ValueError, match="1 rows have no step"):
        append(store, (math.nan, "loss", 1.0))
    with pytest.raises(ValueError, match="STORED_SCHEMA"):
        store.append("hero", rows((0, "loss", 1.0)).drop("late"), [], "c", "t", {}, lambda _: Role("other"))
    assert samples(store) == [] and store.pull_state("hero") == (None, None)


def test_a_row_that_fails_late_in_the_transaction_takes_everything_back(store, append):
    append(store, (0, "loss", 2.0), cursor="one")
    with pytest.raises(ZeroDivisionError):
        store.append(
            "hero", pl.DataFrame(schema=STORED_SCHEMA), Exploding(), "two", "t", {"n": 1}, lambda _: Role("other")
        )
    assert store.pull_state("hero") == ("one", "t") and len(store.coverage("hero")) == 0


class Exploding(list):
    def __iter__(self):
        raise ZeroDivisionError


def test_roles_can_be_given_anew(store, append):
    append(store, (0, "loss", 2.0), (0, "x", 2.0))
    assert (
        store.assign_roles(
            "hero", lambda name: Role("mfu", "fraction") if name == "x" else Role("loss", "nats", "down")
        )
        == 1
    )
    assert store.metrics("hero")["role"].to_list() == ["loss", "mfu"]


def test_more_metrics_than_sixteen_bits_hold_are_told_apart(store, append, look):
    count = 70_000
    append(store, *((0, f"m{i}", float(i)) for i in range(count)))
    done = append(store, *((1, f"m{i}", float(i)) for i in range(count)), (0, "m69999", -1.0))
    assert (done.new_rows, done.rewritten) == (count, 1)
    assert look(store, "SELECT value FROM samples WHERE name = 'm69999' ORDER BY step")["value"].to_list() == [
        -1.0,
        69999.0,
    ]


WRITTEN = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.sampled_from(["loss", "grad"]),
        st.sampled_from([0.0, 1.0, 2.0, NAN, math.inf]),
        st.integers(1, 2),
    ),
    max_size=25,
)
TABLES = (
    "SELECT name, attempt, step, logged_at, value, late FROM samples ORDER BY ALL",
    "SELECT name, attempt, step, first_value, times FROM rewritten ORDER BY ALL",
    "SELECT * FROM metrics ORDER BY name",
    "SELECT * EXCLUDE (updated_at) FROM coverage ORDER BY ALL",
    "SELECT * FROM segments ORDER BY ALL",
    "SELECT * FROM latest ORDER BY ALL",
)


def tables_after(build, look, batches, times=1) -> str:
    store = open_store(":memory:", clock=lambda: 0.0)
    store.register_run(Description("hero", "x", "jsonl", "_step"))
    attempts = [Attempt(1, 0.0, None, "start", 3.0), Attempt(2, 3.0, 1, "rewind")]
    for _ in range(times):
        for batch in batches:
            store.append("hero", build(*batch), attempts, "c", "t", {}, Role)
    return str([look(store, sql).rows() for sql in TABLES])


@settings(max_examples=8, deadline=None)
@given(written=WRITTEN, cuts=st.sets(st.integers(0, 25), max_size=5))
def test_any_split_into_appends_gives_the_same_tables_and_so_does_pulling_again(rows, look, written, cuts):
    # metrics appear in the order in which they were written, so both are there from the first row
    written = [(0, "loss", 0.0, 1), (0, "grad", 0.0, 1), *written]
    bounds = [0, *sorted(min(cut + 2, len(written)) for cut in cuts), len(written)]
    pieces = [written[a:b] for a, b in itertools.pairwise(bounds)]
    whole = tables_after(rows, look, [written])
    assert tables_after(rows, look, pieces) == whole
    assert tables_after(rows, look, pieces, times=2) == whole


@settings(max_examples=8, deadline=None)
@given(written=WRITTEN)
def test_the_tables_hold_what_a_plain_dictionary_would(rows, look, samples, written):
    last, first, seen = {}, {}, {}
    for step, name, value, attempt in written:
        key = (name, attempt, float(step))
        first.setdefault(key, value)
        seen.setdefault(key, {str(value)}).add(str(value))
        last[key] = value
    store = open_store(":memory:", clock=lambda: 0.0)
    store.register_run(Description("hero", "x", "jsonl", "_step"))
    for at in range(0, len(written), 4):
        store.append("hero", rows(*written[at : at + 4]), [], "c", "t", {}, Role)
    assert str({row[:3]: row[3] for row in samples(store)}) == str(dict(sorted(last.items())))
    again = look(store, "SELECT name, attempt, step, first_value, times FROM rewritten ORDER BY ALL").rows()
    assert str({row[:3]: row[3:] for row in again}) == str(
        {key: (first[key], len(values) - 1) for key, values in sorted(seen.items()) if len(values) > 1}
    )
