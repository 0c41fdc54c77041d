"""An event explains from the moment at which it was put on record, however the samples were cut into passes."""

import json
from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest

from detectors.window import Known
from flows.playbook import load_playbook
from flows.records import SAMPLE_SCHEMA, Attempt, Description, Event
from flows.sources.roles import role_of
from flows.stages.attempts import Tracker, assign
from flows.stages.heard import hear, known_to, restarts, step_of
from flows.stages.judge import judge
from flows.stages.runstate import RunState
from flows.store import open_store

START = 1_900_000_000.0
STEPS = 1_600


def seconds(step):
    return START + 10.0 * step


def frame(clock, level):
    """A loss that moves to another level at step 1,200, a sample every 10 s."""
    noise = np.random.default_rng(4).normal(0, 0.01, STEPS)
    value = np.where(np.arange(STEPS) < 1_200, 2.0, level) * np.exp(noise)
    times = [datetime.fromtimestamp(seconds(s), UTC).replace(tzinfo=None) if clock else None for s in range(STEPS)]
    rows = list(zip(map(float, range(STEPS)), times, ["train/loss"] * STEPS, value.tolist(), strict=True))
    return pl.DataFrame(rows, schema=SAMPLE_SCHEMA, orient="row")


def watched(recorded_at, cuts, clock=True, added_before=0, source="user"):
    """severity_history after each pass, and what was told; the event is added before pass number `added_before`."""
    return judged(recorded_at, cuts, clock, added_before, source, 2.5)[1:]


def judged(recorded_at, cuts, clock, added_before, source, level):
    """The store, and the same."""
    store, tracker, rows = open_store(":memory:", clock=lambda: START), Tracker(), frame(clock, level)
    store.register_run(Description("r", "made", "test", "step"))
    told, history = [], []

    def announce(changes, log):
        told.extend((each.what, each.step) for each in changes)
        return (), ()

    for number, (first, last) in enumerate(zip([0, *cuts], [*cuts, STEPS], strict=True)):
        if number == added_before:
            store.add_event("r", Event("data_mix", 1_200.0, recorded_at=recorded_at, source=source))
        placed = assign(rows[first:last], tracker, final=last == STEPS)
        store.append("r", placed, tracker.attempts, "c", tracker.dump(), {}, role_of)
        judge(store, "r", load_playbook, clock=lambda: START, announce=announce)
        history = [row["severity_history"] for row in store.incidents("r")]
    return store, history, told


@pytest.mark.parametrize("cuts", [(), (1_000, 1_300, 1_450), (700, 1_290, 1_291)])
def test_declared_beforehand_it_explains_from_the_first_word_on(cuts):
    history, told = watched(seconds(900), cuts)
    assert '"severity": 0' in history[0] and history[0].count("severity") == 1
    assert told[0][0] == "opened" and "lowered" not in [what for what, _ in told]


@pytest.mark.parametrize("cuts", [(), (1_000, 1_300, 1_450), (700, 1_290, 1_291)])
def test_declared_too_late_it_lowers_from_then_on_and_what_was_said_stays(cuts):
    history, told = watched(seconds(1_500), cuts)
    levels = [(1, 1200.0), (2, 1201.0), (3, 1350.0), (0, 1500.0)]
    assert json.loads(history[0]) == [{"severity": severity, "step": step} for severity, step in levels]
    if cuts:
        assert ("lowered", 1_500.0) in told


@pytest.mark.parametrize("late", [False, True])
def test_detectors_too_know_of_it_from_its_record_on_however_the_samples_came(late):
    recorded = seconds(1_300 if late else 900)

    def said(cuts, added_before):
        store, *_ = judged(recorded, cuts, True, added_before, "user", 6.0)
        return [(row["detector"], row["detected_step"], row["severity"]) for row in store.findings("r")]

    whole = said((), 0)
    assert ("divergence" in {name for name, *_ in whole}) == late
    assert said((1_000, 1_250, 1_300), 3 if late else 1) == whole


def test_an_attempt_knows_that_it_and_those_before_it_began_and_of_none_after_it():
    line = [
        Attempt(0, 0.0, None, "start", 80.0), Attempt(1, 80.0, 0, "rewind", 60.0), Attempt(2, 60.0, 0, "rewind", 90.0),
        Attempt(3, 90.0, 2, "rewind"),
    ]  # fmt: skip
    assert [[each.step for each in restarts(line, n)] for n in range(4)] == [[], [80.0], [60.0], [90.0, 60.0]]
    state = RunState(heard={"2:15.0": 70.0})
    events = [Event("deploy", 50.0, recorded_at=15.0), Event("data_mix", 99.0, recorded_at=1.0, source="plan")]
    assert known_to(events, line, 2, state) == [
        Known(50.0, "deploy", 70.0), Known(60.0, "restart"), Known(99.0, "data_mix"),
    ]  # fmt: skip
    assert known_to(events, line, 0, state)[0] == Known(50.0, "deploy", float("inf"))


def test_what_a_plan_says_counts_from_its_own_step_whenever_it_was_read():
    assert watched(seconds(9_999), (), source="plan") == watched(seconds(900), ())


def test_a_log_without_times_learns_of_it_with_the_samples_that_are_read_afterwards():
    history, _ = watched(START, (1_000, 1_300, 1_450), clock=False, added_before=3)
    assert history[0].endswith('{"severity": 0, "step": 1450.0}]')


def test_an_event_that_no_sample_is_later_than_counts_nowhere():
    state = RunState()
    rows = pl.DataFrame({"attempt": [1, 1], "step": [3.0, 4.0], "seconds": [10.0, 20.0]})
    hear(rows, [Event("deploy", 2.0, recorded_at=15.0), Event("deploy", 2.0, recorded_at=25.0)], state)
    hear(
        rows.with_columns(step=pl.col("step") + 9, seconds=pl.col("seconds") + 9),
        [Event("x", 1.0, recorded_at=15.0)],
        state,
    )
    assert [step_of(state, 1)(at) for at in (15.0, 25.0)] == [4.0, float("inf")]
    assert step_of(RunState.load(state.dump()), 1)(15.0) == 4.0
    assert step_of(state, 2)(15.0) == float("inf")
