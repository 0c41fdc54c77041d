"""One suite over every detector: pure, causal, and the same however the samples are cut."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_series import AGAINST, Kept, faulty, kept

from detectors.finding import Finding
from detectors.noise import CHUNK
from detectors.suite import (
    BY_ROLE,
    EVERY,
    JOINT,
    LEAF,
    POINTS,
    TOGETHER,
    advance,
    carried,
    detectors_of,
    load,
    load_joint,
)
from detectors.window import Known
from flows.stages.memory import Memory, decode, encode

NAMES = sorted({*EVERY, *(name for names in (*BY_ROLE.values(), *LEAF.values()) for name in names)})
ROLES = sorted(role for role, names in BY_ROLE.items() if names)


def judged_in(
    cuts: list[int], series: tuple[np.ndarray, np.ndarray, np.ndarray], role: str, late: int | None = None
) -> list[str]:
    """What is said when the samples arrive up to each cut, through the memory's bytes; other data began midway.

    With `late` that is only known from this sample on, and whoever judges those before does not hear of it.
    """
    memory, out, before = Memory(), [], 0
    since = -math.inf if late is None else float(series[0][late])
    told = [
        Known(float(series[0][len(series[0]) // 2]), "data_mix", since),
        Known(float(series[0][len(series[0]) // 3]), "batch_size", since),
    ]
    for cut in [*cuts, len(series[0])]:
        events = [each for each in told if late is None or cut > late]
        memory = Memory.load(memory.dump())
        memory.take(*(part[before:cut] for part in series))
        said, memory.states, memory.start = advance(
            memory.step, memory.value, memory.seconds, memory.first, memory.start, memory.states, name="m", role=role,
            events=events,
        )  # fmt: skip
        out += [repr(pair) for pair in sorted(said, key=lambda pair: pair[0]) if pair[0] >= memory.judged]
        memory.judged, before = memory.end, cut
        memory.forget()
    return sorted(out)


@pytest.mark.parametrize("role", ROLES)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 1400), data=st.data())
def test_any_slices_say_the_same_to_the_bit(role, seed, size, data):
    series = faulty(role, seed, size)
    cuts = sorted(data.draw(st.lists(st.integers(0, size), max_size=8)))
    assert judged_in(cuts, series, role) == judged_in([], series, role)


@pytest.mark.parametrize("role", sorted({"loss", "grad_norm", "router_entropy", "param_norm"} & set(ROLES)))
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(300, 1400), data=st.data())
def test_what_is_known_late_changes_nothing_that_was_said_before(role, seed, size, data):
    series, late = faulty(role, seed, size), data.draw(st.integers(0, size - 1))
    cuts = sorted({late, *data.draw(st.lists(st.integers(0, size), max_size=3))})
    assert judged_in(cuts, series, role, late) == judged_in([], series, role, late)


@pytest.mark.parametrize("role", ROLES)
def test_sample_by_sample_says_the_same_as_at_once(role):
    series = faulty(role, seed=7, size=420)
    assert judged_in(list(range(1, 420)), series, role) == judged_in([], series, role)


@pytest.mark.parametrize("role", ROLES)
def test_many_chunks_at_once_say_the_same_as_one_by_one(role):
    series = faulty(role, seed=3, size=20 * CHUNK + 17)
    assert judged_in([CHUNK * k for k in range(1, 21)], series, role) == judged_in([], series, role)


@pytest.mark.parametrize("role", ROLES)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(2, 1200), data=st.data())
def test_what_is_said_up_to_a_step_uses_nothing_later(role, seed, size, data):
    series = faulty(role, seed, size)
    cut = data.draw(st.integers(1, size - 1))
    whole = advance(*series, 0, 0, {}, name="m", role=role)[0]
    part = advance(*(each[:cut] for each in series), 0, 0, {}, name="m", role=role)[0]
    assert sorted(map(repr, part)) == sorted(repr(pair) for pair in whole if pair[0] < cut)


@pytest.mark.parametrize("role", ROLES)
def test_the_arrays_are_not_written_to(role):
    series = faulty(role, seed=1, size=900)
    kept = [part.copy() for part in series]
    for part in series:
        part.flags.writeable = False
    advance(*series, 0, 0, {}, name="m", role=role)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(series, kept, strict=True))


@pytest.mark.parametrize("name", [*NAMES, *sorted({*JOINT, *TOGETHER, *POINTS, *AGAINST})])
def test_a_detector_names_itself_and_tells_when_it_is_fooled(name):
    module = load(name) if name in NAMES else load_joint(name)
    assert module.DETECTOR[0] == name
    assert module.DETECTOR[1] >= 1
    for promise in ("Sees:", "Silent:", "Fooled by:", "False alarms:", "Units:"):
        assert promise in module.__doc__, f"{name}: the docstring lacks {promise!r}"


@pytest.mark.parametrize("role", ROLES)
def test_states_survive_their_bytes_and_a_restart(role):
    series = faulty(role, seed=5, size=4 * CHUNK)
    _, states, start = advance(*series, 0, 0, {}, name="m", role=role)
    memory = Memory(0, start, start, *series, states)
    again = Memory.load(memory.dump())
    assert again.dump() == memory.dump()
    assert set(carried(again.states, 10.0)) == set(detectors_of(role))


ALIKE = {**JOINT, "siblings": POINTS["siblings"]}  # many of one kind; accounts are of few that differ
FAMILIES = [(name, role) for name, roles in sorted(ALIKE.items()) for role in sorted(roles)]
KEPT = [*FAMILIES, *((name, role) for name, roles in AGAINST.items() for role in roles)]


def in_slices(of: Kept, cuts: list[int]) -> list[str]:
    """What is said of the samples in slices, through the state's bytes."""
    state, said = {}, []
    for low, high in zip([0, *cuts], [*cuts, len(of.steps)], strict=True):
        found, state = of.scan(slice(low, high), json.loads(json.dumps(state, default=encode), object_hook=decode))
        said += found
    return [repr(answer) for answer in said]


@pytest.mark.parametrize(("name", "role"), KEPT)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), shares=st.lists(st.floats(0, 1), max_size=6).map(sorted))
def test_what_keeps_a_state_says_the_same_in_slices_to_the_bit(name, role, seed, shares):
    of = kept(name, role, seed)
    assert in_slices(of, [int(share * len(of.steps)) for share in shares]) == in_slices(of, [])


@pytest.mark.parametrize(("name", "role"), KEPT)
def test_what_keeps_a_state_uses_nothing_later(name, role):
    of = kept(name, role, 4)
    cut = len(of.steps) * 7 // 9
    whole, _ = of.scan(slice(None), {})
    part, _ = of.scan(slice(0, cut), {})
    assert any(isinstance(answer, Finding) for answer in whole)
    until = of.steps[cut]
    assert part == [a for a in whole if (a.detected_step if isinstance(a, Finding) else a.step) < until]


@pytest.mark.parametrize(("name", "role"), KEPT)
def test_what_keeps_a_state_writes_to_nothing_that_it_is_given_and_survives_a_restart(name, role):
    of, cut = kept(name, role, 2), slice(0, 150)
    before = [part.copy() for part in of.arrays]
    for part in of.arrays:
        part.flags.writeable = False
    _, state = of.scan(cut, {})
    bytes_ = json.dumps(state, default=encode)
    of.scan(slice(150, None), state)
    assert json.dumps(state, default=encode) == bytes_
    carried_on = carry_of(name)(state, of.steps[130])
    assert json.dumps(state, default=encode) == bytes_
    again, _ = of.scan(slice(130, None), json.loads(json.dumps(carried_on, default=encode), object_hook=decode))
    assert all(answer.metric in of.names for answer in again)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(of.arrays, before, strict=True))


def carry_of(name):
    """What a new attempt takes over of a state."""
    if name == "given_loss":
        return lambda state, step: {}
    carry = load_joint(name).carry
    return (lambda state, step: carry(state)) if name in ("plan", "reference") else carry
