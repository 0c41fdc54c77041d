"""What a log does not show is said, once a kind and with its numbers, and nothing of a healthy one."""

import random
from datetime import datetime, timedelta

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.records import SAMPLE_SCHEMA
from flows.sources.roles import role_of
from flows.stages.attempts import Tracker, assign
from flows.stages.honesty import learn
from flows.stages.honesty_words import said

NOON = datetime(2026, 3, 1, 12)
Row = tuple[float, datetime | None, dict[str, float]]


def log(steps, names=("loss", "grad_norm", "lr"), seconds=10.0):
    return [(float(s), NOON + timedelta(seconds=seconds * s), dict.fromkeys(names, 1.0)) for s in steps]


def frame(rows: list[Row]) -> pl.DataFrame:
    samples = [(step, at, name, value) for step, at, values in rows for name, value in values.items()]
    return pl.DataFrame(samples, schema=SAMPLE_SCHEMA, orient="row")


def told(rows: list[Row], step_key="step", cuts=(), epochs=True) -> dict[str, int]:
    """What is said of rows that came in pieces, cut at these samples, with the state written down between."""
    samples, tracker, before = frame(rows), Tracker(), 0
    for cut in (*cuts, len(samples)):
        tracker = Tracker.load(tracker.dump())
        learn(tracker.facts, assign(samples[before:cut], tracker, final=cut == len(samples), epochs=epochs), role_of)
        before = cut
    return said(tracker.facts, step_key, role_of)


def without(rows, name, steps):
    return [(s, at, {k: v for k, v in values.items() if k != name or s not in steps}) for s, at, values in rows]


def test_nothing_is_said_of_regular_logs():
    evals = [(s, at, {**values, **({"eval/loss": 2.0} if s % 250 == 0 else {})}) for s, at, values in log(range(3000))]
    assert told(evals) == {}
    assert told(log(range(0, 90_000, 10))) == {}
    assert told(log([1, *range(10, 5000, 10)])) == {}  # the first step is one of its own
    assert told(log(range(500)) + log(range(300, 900), seconds=20.0)) == {}  # a rewind


def test_nothing_is_said_where_evaluations_take_steps_of_their_own():
    rows = [
        (float(s), None, {"eval/loss": 1.0, "epoch": 0.0} if s % 101 == 100 else {"loss": 1.0, "lr": 1.0, "epoch": 0.0})
        for s in range(3000)
    ]
    assert told(rows) == {}
    odd = {97, 230, 391, 777, 1200, 1203, 2000}
    rows = [(float(s), None, {"eval/loss": 1.0} if s in odd else {"loss": 1.0, "lr": 1.0}) for s in range(3000)]
    assert told(rows) == {}


def test_missing_rows_are_counted_with_where_they_are():
    rows = log([*range(0, 1000, 10), *range(1810, 3000, 10)])
    assert told(rows) == {
        "81 rows missing between steps 990 and 1,810, although every 10th step was logged before and after "
        "(loss, grad_norm and lr)": 81
    }
    rows = log([*range(100), *range(103, 200), *range(230, 300)])
    assert told(rows) == {
        "33 rows missing at 2 places, the largest between steps 199 and 230, although every step was logged before and "
        "after (loss, grad_norm and lr)": 33
    }
    assert told(rows, step_key="consumed_tokens") == {}  # tokens have no rhythm


def test_values_that_single_metrics_leave_out_are_counted():
    rows = without(log(range(500), ("loss", "grad_norm", "lr", "mfu")), "grad_norm", {57, 203, 204, 340})
    assert told(rows) == {
        "4 values left out at 3 places, first behind step 56, where the other metrics of the row have theirs (grad_norm): "
        "NaN may have been dropped": 4
    }
    every_hundredth = without(
        log(range(900), ("loss", "grad_norm", "lr", "mfu")), "grad_norm", set(range(100, 900, 100))
    )
    assert told(every_hundredth) == {}  # a rhythm of the trainer's own


def test_a_history_thinned_backwards_tells_where_its_rhythm_changes():
    assert told(log([*range(0, 5000, 100), *range(5000, 6000, 10)])) == {
        "the distance between logged steps changes from 100 to 10 at step 5,000 (loss, grad_norm and lr): older rows may "
        "have been thinned out": 1
    }
    assert told(log([*range(0, 50), *range(50, 1000, 10)])) == {
        "the distance between logged steps changes from 1 to 10 at step 50 (loss, grad_norm and lr)": 1
    }


def test_a_sampled_history_is_called_one():
    chance = random.Random(0)
    steps = sorted(chance.sample(range(20_000), 500))
    (sentence,) = told(log(steps))
    assert sentence.startswith("500 rows at irregular steps (the first ones 5 to 146 apart)")
    assert told(log(steps), step_key="consumed samples") == {}


def test_a_loss_of_every_tenth_row_is_told_where_the_others_have_each():
    rows = [
        (float(s), None, {"lr": 1.0, "mfu": 0.4, "grad_norm": 2.0, **({"loss": 3.0} if s % 10 == 0 else {})})
        for s in range(1000)
    ]
    assert told(rows) == {
        "loss stands at every 10th step only, 3 of 4 metrics at every step: what the loss did between is not seen": 100
    }


def test_a_clock_that_goes_back_is_told_and_jitter_is_not():
    rows = log(range(100)) + [(s, at - timedelta(minutes=30), v) for s, at, v in log(range(100, 200))]
    assert told(rows) == {
        "the clock of the log goes back 1 time while the steps go on, by up to 30 min, first at step 100: times between "
        "rows are not to be trusted there": 1
    }
    jitter = [(s, at + timedelta(seconds=4 * (s % 2)), v) for s, at, v in log(range(100), seconds=1.0)]
    assert told(jitter) == {}
    by_name = log(range(100), ("loss",)) + log(range(100), ("lr",))
    assert told(by_name) == {}  # a long table that begins anew with each name


def test_two_writers_of_the_same_steps_are_told():
    rows = [row for s in range(200) for row in log([s, s])]
    (sentence,) = told(rows)
    assert sentence.startswith("200 steps hold more than one value throughout (loss, grad_norm and lr): two writers")


def test_two_strands_that_are_written_by_turns_are_told():
    by_turns = [row for s in range(60) for row in log([1000 + s, s])]
    sentences = told(by_turns)
    assert [text for text in sentences if "two strands of steps in one log" in text]
    by_blocks = [row for s in range(0, 60, 10) for row in log([*range(1000 + s, 1010 + s), *range(s, s + 10)])]
    (sentence,) = [text for text in told(by_blocks) if "two runs write into one log" in text]
    assert sentence.startswith("the steps go back and 5 times on")
    assert [text for text in told(log(range(299, -1, -1))) if "the rows stand in reverse order" in text]


def test_steps_that_start_over_with_each_epoch_are_told():
    rows = [(float(s), None, {"epoch": float(e), "loss": 1.0}) for e in range(4) for s in range(30)]
    assert told(rows, cuts=(60, 61)) == {
        "step starts over while the run goes on (3 times), as with a new epoch: one is read behind the other, with steps that "
        "count on; --step-key names the step to take": 3
    }
    assert told(rows, cuts=(60, 61), epochs=False) == {
        "step starts over with a new epoch (3 times), which is taken for a run that went back: log a step that goes on, or "
        "name one with --step-key": 3
    }
    restarted = [(float(s), None, {"train/epoch": s // 10, "loss": 1.0}) for s in [*range(30), *range(40)]]
    assert told(restarted) == {}


def test_a_loss_of_exactly_zero_among_others_is_told():
    rows = [(float(s), None, {"loss": 0.0 if s in (50, 70) else 2.0, "lr": 0.0 if s < 3 else 1.0}) for s in range(200)]
    assert told(rows) == {
        "2 values of exactly 0 among others (loss): no loss and no norm is 0, so NaN may have been written as 0": 2
    }


def test_a_machines_metrics_say_nothing_of_the_rhythm():
    rows = [(s, at, {**values, **({"system/gpu": 1.0} if s % 7 == 3 else {})}) for s, at, values in log(range(400))]
    assert told(rows) == {}


def test_names_are_harmless_and_few():
    names = [f"\x1b[31mloss\n{at}" for at in range(40)]
    (sentence,) = told(log([*range(100), *range(150, 300)], names))
    assert "(loss 0, loss 1, loss 2 and 37 more)" in sentence
    assert sentence.isprintable()


@st.composite
def odd_logs(draw):
    """Rows of several rhythms with holes, repeats, rewinds, second strands and clocks that jump."""
    chance = random.Random(draw(st.integers(0, 10**6)))
    rows, step, stride, skew = [], 0, 1, 0.0
    for _ in range(draw(st.integers(30, 120))):
        event = chance.random()
        if event < 0.02:
            stride = chance.choice([1, 2, 5])
        elif event < 0.05:
            step += stride * chance.randrange(2, 9)
        elif event < 0.07:
            step = max(0, step - chance.randrange(30))
        elif event < 0.08:
            skew = chance.uniform(-500, 500)
        names = [n for n in ("loss", "grad_norm", "lr", "mfu") if chance.random() > 0.01]
        if event > 0.97:
            names = ["eval/loss"]
        if names:
            rows.append(
                (float(step), NOON + timedelta(seconds=step + skew), {n: chance.choice([0.0, 1.0]) for n in names})
            )
        if event < 0.98:
            step += stride
    return rows


@settings(max_examples=15, deadline=None)
@given(rows=odd_logs(), data=st.data())
def test_what_is_said_does_not_depend_on_how_the_rows_came(rows, data):
    size = sum(len(values) for *_, values in rows)
    cuts = sorted(data.draw(st.lists(st.integers(0, size), max_size=5)))
    assert told(rows, cuts=cuts) == told(rows)
