"""Tokens a step against the logged sizes: what follows them is quiet, what does not is a note."""

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from detectors.accounts import carry, scan
from detectors.finding import Finding
from flows.stages.memory import decode, encode

SIZE = 200
STEP = np.arange(SIZE, dtype=float)
ROLES = {"total_tokens": "tokens", "batch_size": "batch_size", "micro": "batch_size", "seq_len": "sequence_length"}
LEAVES = {name: (role, "") for name, role in ROLES.items()}


def rows(value):
    return np.column_stack([STEP, STEP, np.broadcast_to(value, SIZE)])


def a_run(batch, length=1024.0, tokens=None, **more):
    batch, length = np.broadcast_to(batch, SIZE), np.broadcast_to(length, SIZE)
    total = np.cumsum(batch * length if tokens is None else tokens)
    return {"total_tokens": rows(total), "batch_size": rows(batch), "seq_len": rows(length)} | {
        k: rows(v) for k, v in more.items()
    }


def found(run):
    return [each for each in scan(run, LEAVES, {})[0] if isinstance(each, Finding)]


LONGER = np.where(STEP < 90, 1024.0, 4096.0)
RAMP = np.where(STEP < 100, 64.0, np.minimum(64 + 8 * (STEP - 99), 256))


@pytest.mark.parametrize(
    "run",
    [
        a_run(64.0),
        a_run(RAMP),
        a_run(64.0, LONGER),
        a_run(RAMP, LONGER),
        a_run(
            np.where(STEP < 90, 65536.0, 262144.0),
            LONGER,
            np.where(STEP < 90, 65536.0, 262144.0),
        ),
        a_run(RAMP, micro=4.0),
        {name: each for name, each in a_run(RAMP).items() if name == "total_tokens"},
        a_run(64.0, tokens=65536 * np.random.default_rng(0).uniform(0.7, 1, SIZE)),
        a_run(RAMP, tokens=RAMP * 1024 / 1e9),
    ],
    ids=["constant", "ramp", "context", "both", "batch in tokens", "micro", "no sizes", "no padding", "billions"],
)
def test_a_count_that_follows_the_sizes_is_quiet(run):
    assert found(run) == []


def test_tokens_that_are_lost_are_a_note_at_the_third_sample():
    (said,) = found(a_run(64.0, tokens=np.where(STEP < 120, 65536.0, 60000.0)))
    assert (said.kind, said.severity, said.metric, said.direction) == ("invariant", 1, "total_tokens", "down")
    assert (said.onset_step, said.detected_step) == (120, 123)
    assert said.magnitude == pytest.approx(60000 / 65536 - 1)


def test_a_batch_that_grows_without_the_count_is_a_note():
    (said,) = found(a_run(np.where(STEP < 120, 64.0, 128.0), tokens=np.full(SIZE, 65536.0)))
    assert (said.onset_step, said.evidence["before"], said.evidence["after"]) == (120, 131072, 65536)


def test_two_odd_samples_are_nothing():
    tokens = np.full(SIZE, 65536.0)
    tokens[120:122] = 50000
    assert found(a_run(64.0, tokens=tokens)) == []


@settings(max_examples=30, deadline=None)
@example([150, 151, 152, 153, 154])
@given(st.lists(st.integers(0, SIZE), max_size=6).map(sorted))
def test_slices_of_whole_steps_or_of_half_ones_say_the_same(cuts):
    run = a_run(RAMP, tokens=np.where(STEP < 150, RAMP * 1024, 60000.0))
    state, said = {}, []
    for low, high in zip([0, *cuts], [*cuts, SIZE], strict=True):
        state = json.loads(json.dumps(state, default=encode), object_hook=decode)
        # the count stands in front of the sizes of its step: a cut between them comes one row early
        late = {n: int(n != "total_tokens") for n in run}
        part = {n: rows[low and low - late[n] : high - late[n] * (high < SIZE)] for n, rows in run.items()}
        answers, state = scan({n: each for n, each in part.items() if len(each)}, LEAVES, state)
        said += answers
    assert said == scan(run, LEAVES, {})[0]
    assert said


def test_a_restart_counts_anew_and_keeps_what_a_step_adds():
    run = a_run(64.0)
    _, state = scan({name: each[:100] for name, each in run.items()}, LEAVES, {})
    again = {name: each[90:].copy() for name, each in run.items()}
    again["total_tokens"][:, 2] -= 1e6
    said, _ = scan(again, LEAVES, carry(state, 90.0))
    assert said == []
    again["total_tokens"][:, 2] = 60000 * STEP[90:]
    said, _ = scan(again, LEAVES, carry(state, 90.0))
    assert [each.onset_step for each in said if isinstance(each, Finding)] == [91]
