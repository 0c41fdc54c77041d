"""Metrics that are screened together say what their detectors say one by one, however the samples are cut."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.screen import screened
from flows.stages.crowd import TAIL, Crowd
from flows.stages.fresh import Flat, Samples, flat, fresh
from flows.stages.memory import Memory
from flows.stages.metric import judge_metric

ROLES = {
    "other": ("other", ""), "entropy": ("router_entropy", "layer_1"), "grad": ("grad_norm", "a.w"), "held": ("param_norm", "a.w"),
    "free": ("param_norm", "b.w"), "dead": ("grad_norm", "b.w"), "broken": ("other", ""),
}  # fmt: skip


def faulty(name: str, rng: np.random.Generator, size: int) -> np.ndarray:
    """A line with what the two detectors look for at places that chance picks."""
    value = {
        "held": np.full(size, 268.0), "dead": np.zeros(size), "broken": np.full(size, np.nan),
        "free": 60 * np.exp(1e-3 * np.arange(size)),
    }.get(name, 1 + 0.1 * rng.standard_normal(size))  # fmt: skip
    value = value * (1 + 1e-6 * rng.standard_normal(size))
    for _ in range(int(rng.integers(0, 4))):
        at, length = int(rng.integers(0, size)), int(rng.choice([1, 2, 3, 5, 30, 90]))
        with np.errstate(invalid="ignore"):
            value[at : at + length] *= rng.choice([np.nan, np.inf, 0.0, 1.002, 0.9, -1.0])
    if rng.random() < 0.3:
        with np.errstate(invalid="ignore"):
            value[: int(rng.integers(1, 30))] *= rng.choice([np.nan, 0.0, 1.01])
    return value


def lines(seed: int, size: int) -> dict[str, Samples]:
    rng = np.random.default_rng(seed)
    out = {}
    for name in ROLES:
        step = np.cumsum(rng.integers(1, 4, size)).astype(float)
        out[name] = Samples(step, faulty(name, rng, size), 2.0 * step)
    return out


def sliced(series: dict[str, Samples], cuts: list[dict[str, int]]) -> tuple[list[str], dict[str, list]]:
    """What the crowd says when each metric arrives up to its own places, through the bytes; and its blocks."""
    crowd, said, blocks, done = Crowd(), [], {name: [] for name in series}, dict.fromkeys(series, 0)
    for cut in [*cuts, {name: len(each.step) for name, each in series.items()}]:
        parts = {name: each.at(slice(done[name], max(cut[name], done[name]))) for name, each in series.items()}
        parts = {name: part for name, part in parts.items() if len(part.step)}
        done = {name: max(cut[name], done[name]) for name in series}
        crowd = Crowd.load(crowd.dump())
        if parts:
            starts = np.cumsum([0, *(len(part.step) for part in parts.values())])
            new = Flat(
                list(parts), starts, Samples(*(np.concatenate(each) for each in zip(*parts.values(), strict=True)))
            )
            found, completed = crowd.advance(new, ROLES)
            said += found
            for name, rows in completed.items():
                blocks[name] += rows.tolist()
    assert Crowd.load(crowd.dump()).dump() == crowd.dump()
    return sorted(map(repr, said)), blocks


def one_by_one(series: dict[str, Samples]) -> tuple[list[str], dict[str, list]]:
    said, blocks = [], {}
    for name, each in series.items():
        role, group = ROLES[name]
        found, done = judge_metric(Memory(), each, name=name, role=role, group=group)
        said += found
        blocks[name] = done.tolist()
    return sorted(map(repr, said)), blocks


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 700), data=st.data())
def test_any_slices_of_a_crowd_say_what_its_metrics_say_at_once(seed, size, data):
    series = lines(seed, size)
    places = st.fixed_dictionaries({name: st.integers(0, size) for name in series})
    cuts = data.draw(st.lists(places, max_size=5))
    said, blocks = sliced(series, cuts)
    whole, whole_blocks = one_by_one(series)
    assert said == whole
    assert str(blocks) == str(whole_blocks)


def test_sample_by_sample_says_the_same_as_at_once():
    series = lines(11, 300)
    assert sliced(series, [dict.fromkeys(series, k) for k in range(1, 300)])[0] == one_by_one(series)[0]


def test_the_made_lines_break_every_rule():
    kinds = {
        text.partition("episode='")[2].partition(":")[0]
        for seed in range(20)
        for text in one_by_one(lines(seed, 700))[0]
    }
    assert {"constant", "zero"} <= kinds
    assert any(kind.isdigit() or "'" in kind for kind in kinds)  # the episodes of nonfinite are numbers


def shown(crowd: Crowd, name: str, value: list[float], first: float = 0.0) -> list:
    step = first + np.arange(len(value))
    samples = Samples(step, np.array(value, dtype=float), np.full(len(value), np.nan))
    return crowd.advance(Flat([name], np.array([0, len(value)]), samples), ROLES)[0]


def forked(parent: Crowd, name: str, value: list[float]) -> Crowd:
    crowd = Crowd()
    samples = Samples(np.arange(len(value)), np.array(value, dtype=float), np.full(len(value), np.nan))
    crowd.seed(parent, Flat([name], np.array([0, len(value)]), samples), ROLES)
    return crowd


def test_a_norm_that_was_held_must_hold_after_a_restart():
    parent = Crowd()
    assert shown(parent, "held", [268.0] * 500) == []
    (found,) = shown(forked(parent, "held", [268.0] * TAIL), "held", [269.0], TAIL)
    assert (found.kind, found.severity, found.evidence["before"]) == ("invariant", 3, 268.0)


def test_what_was_said_before_the_fork_is_not_said_again():
    parent = Crowd()
    (found, crowd) = shown(parent, "other", [1.0] * 100 + [np.nan] * 20)
    assert (found.severity, crowd.severity) == (1, 2)
    again = forked(parent, "other", [1.0] * (TAIL - 20) + [np.nan] * 20)
    assert shown(again, "other", [np.nan], TAIL) == []
    (ended,) = shown(again, "other", [1.0] * 64, TAIL + 1)
    assert ended.step == TAIL + 64


def test_a_metric_that_the_parent_never_had_starts_cold():
    crowd = forked(Crowd(), "held", [268.0] * 10)
    assert crowd.calm.samples.tolist() == [10]
    assert shown(crowd, "held", [268.0] * 3 + [300.0]) == []


def test_another_version_of_the_bytes_is_not_read():
    data = Crowd().dump()
    assert Crowd.load(data.replace(b"crowd 1", b"crowd 0")) is None


@pytest.mark.parametrize(
    ("role", "group", "together"),
    [
        ("other", "", True),
        ("grad_norm", "leaf", True),
        ("grad_norm", "", False),
        ("eval_loss", "set", False),
        ("loss", "", False),
    ],
)
def test_what_more_than_two_detectors_look_at_is_judged_alone(role, group, together):
    assert screened(role, group) is together


def test_rows_are_sorted_by_attempt_and_metric_and_keep_their_order():
    names = pl.Enum(["b", "a", "c"])
    rows = pl.DataFrame(
        {
            "name": pl.Series(["a", "b", "a", "b", "c", "a"], dtype=names), "attempt": [0, 0, 0, 1, 0, 0],
            "step": [3.0, 1.0, 1.0, 0.0, 5.0, 2.0], "value": [1.0, 2.0, None, 4.0, 5.0, 6.0], "seconds": [0.0] * 6,
        }
    )  # fmt: skip
    found = fresh(rows, lambda name: name != "a")
    assert found.attempts == [0, 1]
    assert list(found.alone) == [(0, "a")]
    assert found.alone[0, "a"].step.tolist() == [3.0, 1.0, 2.0]
    assert str(found.alone[0, "a"].value.tolist()) == "[1.0, nan, 6.0]"
    assert {name: part.value.tolist() for name, part in found.together[0].each().items()} == {"b": [2.0], "c": [5.0]}
    assert {name: part.value.tolist() for name, part in found.together[1].each().items()} == {"b": [4.0]}
    assert flat(rows.filter(pl.col("attempt") == 2)).names == []


def test_an_attempt_that_nothing_stands_before_is_seeded_with_nothing():
    crowd = Crowd()
    crowd.seed(Crowd(), Flat([], np.array([0]), Samples(*(np.empty(0) for _ in Samples._fields))), ROLES)
    assert crowd.calm.samples.tolist() == []
