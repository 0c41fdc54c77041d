"""Steps that start over with each epoch are one attempt, its epochs one behind the other; what went back stays apart."""

import random
from datetime import datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.records import SAMPLE_SCHEMA
from flows.stages.attempts import Tracker, assign
from flows.stages.epochs import ENDS

NOON = datetime(2026, 3, 1, 12)


class Log:
    """A training whose loss falls from 3 to 1 in `whole` steps; it logs what a trainer logs, under steps of the epoch."""

    def __init__(self, *, epoch=True, clock=True, whole=400, metrics=("loss", "lr"), seed=0):
        self.epoch, self.clock, self.whole, self.metrics = epoch, clock, whole, metrics
        self.chance, self.at, self.done, self.rows = random.Random(seed), NOON, 0, []

    def run(self, steps, epoch, done=None, pause=10.0):
        """Log `steps` of an epoch; the training stands at `done` before (None: where it was)."""
        self.done = self.done if done is None else done
        for n, step in enumerate(steps):
            self.at += timedelta(seconds=10.0 if n else pause)
            u = self.done / self.whole
            values = {
                "loss": 3 - 2 * u + self.chance.gauss(0, 0.02),
                "lr": 1e-3 * (1 - u),
                "mfu": self.chance.gauss(0.4, 0.01),
            }
            values = {name: values[name] for name in self.metrics}
            if self.epoch:
                values["epoch"] = float(epoch)  # the last of a row, as the first of the next one would be no proof
            self.rows += [(float(step), self.at if self.clock else None, name, value) for name, value in values.items()]
            self.done += 1
        return self


def read(rows, cuts=(), epochs=True):
    """Steps of each attempt as they are stored (of its first metric), the attempts, and how often epochs were joined."""
    frame = pl.DataFrame(rows, schema=SAMPLE_SCHEMA, orient="row")
    tracker, parts, before = Tracker(), [], 0
    for cut in (*cuts, len(frame)):
        tracker = Tracker.load(tracker.dump())
        parts.append(assign(frame[before:cut], tracker, final=cut == len(frame), epochs=epochs))
        before = cut
    stored = pl.concat(parts)
    assert stored["value"].to_list() == frame["value"].to_list()
    first = stored.filter(pl.col("name") == rows[0][2])
    steps = [part["step"].to_list() for part in first.partition_by("attempt", maintain_order=True)]
    return steps, [(a.first_step, a.reason) for a in tracker.attempts], tracker.facts.joined


@pytest.mark.parametrize("epoch", [True, False])
@pytest.mark.parametrize("clock", [True, False])
def test_epochs_are_read_one_behind_the_other(epoch, clock):
    log = Log(epoch=epoch, clock=clock)
    for e in range(4):
        log.run(range(100), e)
    assert read(log.rows) == ([[float(s) for s in range(400)]], [(0.0, "start")], 3)
    assert read(log.rows, cuts=(299, 300, 301, 500)) == read(log.rows)


def test_steps_that_begin_at_one_and_rows_of_every_tenth_step_go_on_too():
    log = Log(whole=120)
    for e in range(3):
        log.run(range(1, 41), e)
    assert read(log.rows)[0] == [[float(s) for s in range(1, 121)]]
    log = Log(whole=120)  # every tenth step of the training: an epoch of 404 steps begins with its 6th
    for e, first in enumerate((0, 6, 2)):
        log.run(range(first, 404, 10), e)
    assert read(log.rows)[0] == [[float(s) for s in range(0, 1220, 10)]]


def test_an_epoch_that_is_logged_begins_one_with_its_second_row():
    log = Log().run(range(50), 0).run(range(2), 1)
    assert read(log.rows[:-1], cuts=(len(log.rows) - 1,))[2] == 1
    tracker = Tracker()
    assign(pl.DataFrame(log.rows, schema=SAMPLE_SCHEMA, orient="row"), tracker)
    assert (len(tracker.held), len(tracker.attempts), tracker.axis.offset) == (0, 1, 50.0)


def test_without_one_its_first_rows_are_held_until_they_tell():
    log = Log(epoch=False).run(range(50), 0).run(range(ENDS), 1)
    tracker = Tracker()
    frame = pl.DataFrame(log.rows, schema=SAMPLE_SCHEMA, orient="row")
    assign(frame[:-2], tracker)
    assert len(tracker.held) == 2 * (ENDS - 1)
    assign(frame[-2:], tracker := Tracker.load(tracker.dump()))
    assert (len(tracker.held), len(tracker.attempts), tracker.axis.offset) == (0, 1, 50.0)


@pytest.mark.parametrize("epoch", [True, False])
def test_a_run_that_was_started_anew_is_an_attempt(epoch):
    log = Log(epoch=epoch).run(range(100), 0).run(range(100), 0, done=0)
    steps, attempts, joined = read(log.rows)
    assert attempts == [(0.0, "start"), (0.0, "anew")] and joined == 0
    assert steps == [[float(s) for s in range(100)]] * 2


def test_a_run_that_was_started_anew_in_a_later_epoch_counts_from_its_first_step_again():
    log = Log().run(range(100), 0).run(range(100), 1).run(range(60), 0, done=0).run(range(100, 160), 0).run(range(9), 1)
    steps, attempts, joined = read(log.rows)
    assert attempts == [(0.0, "start"), (0.0, "anew")] and joined == 2
    assert steps[1] == [*map(float, range(60)), *map(float, range(100, 160)), *map(float, range(160, 169))]
    assert read(log.rows, cuts=(401, 402, 403, 640, 1000)) == (steps, attempts, joined)


@pytest.mark.parametrize("epoch", [True, False])
def test_a_rollback_to_a_checkpoint_of_a_later_epoch_goes_back_on_the_axis_that_was_made(epoch):
    log = Log(epoch=epoch).run(range(100), 0).run(range(80), 1).run(range(40, 100), 1, done=140).run(range(100), 2)
    steps, attempts, joined = read(log.rows)
    assert attempts == [(0.0, "start"), (140.0, "rewind")] and joined == 2
    assert steps == [[*map(float, range(180))], [*map(float, range(140, 300))]]


def test_a_log_that_begins_at_a_checkpoint_and_goes_back_to_it_was_restored():
    log = Log(whole=6000).run(range(5000, 5200), 3, done=5000).run(range(5000, 5100), 3, done=5000)
    assert read(log.rows)[1] == [(5000.0, "start"), (5000.0, "rewind")]


def test_a_pause_such_as_a_new_start_takes_is_one_unless_the_epoch_is_logged():
    for epoch, attempts in ((False, 2), (True, 1)):
        log = Log(epoch=epoch).run(range(100), 0).run(range(100), 1, pause=1800.0)
        assert len(read(log.rows)[1]) == attempts
    shuffled = Log(epoch=False).run(range(100), 0)
    shuffled.at = NOON - timedelta(hours=1)
    assert len(read(shuffled.run(range(100), 1).rows)[1]) == 2  # two logs in one: the clock goes back


def test_metrics_that_have_not_moved_tell_nothing_and_neither_does_what_only_grows():
    log = Log(epoch=False, metrics=("mfu",)).run(range(100), 0).run(range(100), 1)
    assert read(log.rows)[1] == [(0.0, "start"), (0.0, "anew")]
    grows = [(step, at, "wall_time", (at - NOON).total_seconds()) for step, at, *_ in log.rows]
    both = [row for pair in zip(log.rows, grows, strict=True) for row in pair]
    assert read(both)[1] == [(0.0, "start"), (0.0, "anew")]


def test_a_learning_rate_that_begins_anew_weighs_as_much_as_a_loss_that_goes_on():
    log = Log(epoch=False).run(range(100), 0).run(range(100), 1)
    anew = {(row[0], row[2]): row[3] for row in log.rows[:200]}
    rows = log.rows[:200] + [(s, at, n, anew[s, n] if n == "lr" else value) for s, at, n, value in log.rows[200:]]
    assert read(rows)[1] == [(0.0, "start"), (0.0, "anew")]


def test_what_goes_back_once_more_before_it_tells_is_no_epoch():
    log = Log(epoch=False).run(range(100), 0).run(range(4), 1).run(range(100), 1)
    assert [reason for _, reason in read(log.rows)[1]] == ["start", "anew", "anew"]


def test_a_step_that_was_chosen_is_taken_as_it_stands():
    log = Log().run(range(100), 0).run(range(100), 1)
    assert read(log.rows, epochs=False)[1:] == ([(0.0, "start"), (0.0, "anew")], 0)


@st.composite
def logs(draw):
    """Epochs of equal length, with rollbacks, new starts and rows that come late among them."""
    chance = random.Random(draw(st.integers(0, 10**6)))
    log, size = Log(epoch=draw(st.booleans()), whole=200), chance.choice([3, 12, 30])
    for e in range(draw(st.integers(1, 5))):
        log.run(range(size), e)
        what = chance.random()
        if what < 0.3:
            back = chance.randrange(1, size)
            log.run(range(size - back, size), e, done=max(log.done - back, 0))
        elif what < 0.4:
            log.run(range(size), 0, done=0)
        elif what < 0.6:
            log.run([chance.randrange(size)], e)
    return log.rows


@settings(max_examples=25, deadline=None)
@given(rows=logs(), data=st.data())
def test_any_split_gives_the_same_axis(rows, data):
    cuts = tuple(sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=5))))
    assert read(rows, cuts=cuts) == read(rows)


def test_a_row_that_came_late_between_two_pulls_changes_nothing_of_what_is_kept():
    rows = pl.DataFrame(Log().run([*range(60), 30, *range(60, 90)], 0).rows, schema=SAMPLE_SCHEMA, orient="row")
    whole, parts = Tracker(), Tracker()
    assign(rows, whole, final=True)
    for first, last in ((0, 150), (150, 200), (200, len(rows))):
        assign(rows[first:last], parts, final=last == len(rows))
    assert (
        vars(parts.axis) == vars(whole.axis)
        and whole.axis.ends["loss"][1] == rows.filter(name="loss")["value"][-8:].to_list()
    )
