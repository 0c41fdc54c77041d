"""One suite over every detector: pure, causal, and the same however the samples are cut."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.noise import CHUNK
from detectors.suite import BY_ROLE, EVERY, LEAF, advance, carried, detectors_of, load
from flows.stages.memory import Memory

NAMES = sorted({*EVERY, *(name for names in (*BY_ROLE.values(), *LEAF.values()) for name in names)})
ROLES = sorted(role for role, names in BY_ROLE.items() if names)


def faulty(role: str, seed: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A series of the role with spikes, a shift, a slow drift, NaN, zeros and a pause at places that the seed picks."""
    rng = np.random.default_rng(seed)
    step = np.cumsum(rng.integers(1, 4, size)).astype(float)
    base = {"loss": 3 + 4 * step**-0.3, "token_drop": 0.03, "learning_rate": 1e-3, "router_entropy": 2.07}.get(
        role, 1.0
    )
    value = base * np.exp(0.02 * rng.standard_normal(size))
    a, b, c, d = sorted(rng.integers(0, size, 4))
    value[a : a + int(rng.integers(1, 5))] *= rng.choice([1.5, 3.0, 0.3])
    value[b:c] *= rng.choice([1.0, 1.3, 0.7])
    value[c:] *= np.exp(rng.choice([0.0, 1e-3]) * np.arange(size - c))
    value[d : d + 2] = rng.choice([np.nan, np.inf, 0.0, 1.0])
    seconds = np.cumsum(np.full(size, 2.0)) + 4000.0 * (np.arange(size) > d)
    return step, value, seconds


def judged_in(cuts: list[int], series: tuple[np.ndarray, np.ndarray, np.ndarray], role: str) -> list[str]:
    """What is said when the samples arrive up to each cut, through the memory's bytes."""
    memory, out, before = Memory(), [], 0
    for cut in [*cuts, len(series[0])]:
        memory = Memory.load(memory.dump())
        memory.take(*(part[before:cut] for part in series))
        said, memory.states, memory.start = advance(
            memory.step, memory.value, memory.seconds, memory.first, memory.start, memory.states, name="m", role=role
        )
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


@pytest.mark.parametrize("name", NAMES)
def test_a_detector_names_itself_and_tells_when_it_is_fooled(name):
    module = load(name)
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
