"""One suite over every detector: pure, causal, and the same however the samples are cut."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.finding import Finding
from detectors.noise import BLOCK, CHUNK
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
from flows.stages.memory import Memory, decode, encode

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
    return step, counted(role, rng, step, a, b, value), seconds


def counted(role, rng, step, a, b, value):
    """What counts instead of measuring: flags that come more often from `a` to `b`, counters, the step of a checkpoint."""
    often = np.where((np.arange(len(step)) >= a) & (np.arange(len(step)) < b), 0.4, 0.01)
    flags = (rng.random(len(step)) < often).astype(float)
    saved = step // 30 * 30
    saved[a:b] = saved[a]
    return {
        "skipped_steps": flags,
        "clipped": flags * (np.arange(len(step)) % 2) + (often > 0.1) * 0.4,
        "link_errors": np.cumsum(flags * (often > 0.1) * rng.integers(0, 20, len(step))),
        "checkpoint": saved,
        "tokens": 512 * step - 512 * 40 * (step > step[a]) + 512 * np.maximum(step - step[b], 0),
    }.get(role, value)


def judged_in(cuts: list[int], series: tuple[np.ndarray, np.ndarray, np.ndarray], role: str) -> list[str]:
    """What is said when the samples arrive up to each cut, through the memory's bytes; other data began midway."""
    memory, out, before = Memory(), [], 0
    events = [
        (float(series[0][len(series[0]) // 2]), "data_mix"),
        (float(series[0][len(series[0]) // 3]), "batch_size"),
    ]
    for cut in [*cuts, len(series[0])]:
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


@pytest.mark.parametrize("name", [*NAMES, *sorted({*JOINT, *TOGETHER, *POINTS})])
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
LEAVES, BLOCKS = 12, 180


def family(role: str, seed: int) -> dict[str, np.ndarray]:
    """Block medians of twelve leaves: one jumps, one drifts, all move at last, one has gaps; places go by the seed."""
    rng = np.random.default_rng(seed)
    value = np.exp(0.01 * rng.standard_normal((LEAVES, BLOCKS)) + 0.2 * rng.standard_normal((LEAVES, 1)))
    jump, drift, together = rng.integers(20, BLOCKS - 10, 3)
    up = -1 if role in ("router_entropy", "throughput", "mfu") else 1
    value[3, jump : jump + int(rng.integers(1, 60))] *= 3.0**up
    value[5, drift:] *= np.exp(0.03 * up * np.arange(BLOCKS - drift))
    value[:, together:] *= 2.0**up
    value[7, rng.integers(0, BLOCKS, 9)] = np.nan
    at = np.arange(BLOCKS)
    return {f"rank_{k}/layer_{k}/x": np.column_stack([at, at * 16.0 + 15, row]) for k, row in enumerate(value, 1)}


def alike(name: str, role: str, seed: int) -> dict[str, np.ndarray]:
    """A family that a detector has something to say of; of experts, three of which go idle."""
    new = family(role, seed)
    if name != "idle":
        return new
    for k, (metric, begun) in enumerate(zip(sorted(new), np.random.default_rng(seed).integers(5, 60, 3), strict=False)):
        new[metric][begun + 20 * k :, 2] *= 0.01
    return {metric.replace("rank_", "expert_").partition("/")[0] + "/load": rows for metric, rows in new.items()}


def jointly(module, leaves, new, cuts):
    """What is said of the family in slices, through the state's bytes."""
    state, said = {}, []
    for low, high in zip([0, *cuts], [*cuts, BLOCKS], strict=True):
        part = {name: rows[low:high] for name, rows in new.items() if high > low}
        text = json.dumps(state, default=encode)
        found, state = module.scan(part, leaves, json.loads(text, object_hook=decode))
        said += found
    return [repr(answer) for answer in said]


@pytest.mark.parametrize(("name", "role"), FAMILIES)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(0, BLOCKS), max_size=6).map(sorted))
def test_a_family_judged_in_slices_says_the_same_to_the_bit(name, role, seed, cuts):
    new = alike(name, role, seed)
    leaves = {metric: (role, metric.rpartition("/")[0]) for metric in new}
    assert jointly(load_joint(name), leaves, new, cuts) == jointly(load_joint(name), leaves, new, [])


@pytest.mark.parametrize(("name", "role"), FAMILIES)
def test_what_is_said_of_a_family_uses_nothing_later(name, role):
    new = alike(name, role, 4)
    leaves = {metric: (role, metric.rpartition("/")[0]) for metric in new}
    whole, _ = load_joint(name).scan(new, leaves, {})
    part, _ = load_joint(name).scan({metric: rows[:140] for metric, rows in new.items()}, leaves, {})
    assert any(isinstance(answer, Finding) for answer in whole)
    until = 140 * BLOCK
    assert part == [a for a in whole if (a.detected_step if isinstance(a, Finding) else a.step) < until]


@pytest.mark.parametrize(("name", "role"), FAMILIES)
def test_a_family_s_state_is_not_written_to_and_survives_a_restart(name, role):
    module, new = load_joint(name), family(role, 2)
    leaves = {metric: (role, metric.rpartition("/")[0]) for metric in new}
    _, state = module.scan({metric: rows[:150] for metric, rows in new.items()}, leaves, {})
    kept = json.dumps(state, default=encode)
    module.scan({metric: rows[150:] for metric, rows in new.items()}, leaves, state)
    assert json.dumps(state, default=encode) == kept
    carried_on = module.carry(state, 149 * 16.0)
    assert json.dumps(state, default=encode) == kept
    again, _ = module.scan({metric: rows[150:] - [20, 0, 0] for metric, rows in new.items()}, leaves, carried_on)
    assert all(answer.metric in new for answer in again)
