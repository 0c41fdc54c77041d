"""Made samples for the contracts: one metric with faults, a family of leaves, and a metric beside what it is held against."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from detectors import departure, given_loss, plan, reference
from detectors.finding import Answer
from detectors.ladder_rungs import CENTRES
from detectors.suite import load_joint

LEAVES, BLOCKS, SAMPLES = 12, 180, 900
AGAINST = {
    "plan": sorted(plan.ROLES),
    "reference": sorted(reference.GATES),
    "departure": sorted(departure.GATES),
    "given_loss": ["eval_loss", "eval_score"],
}


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


class Kept(NamedTuple):
    """A detector that keeps a state of its own, on made samples at `steps`; `arrays` are what it sees.

    `scan` takes a slice of the samples and the state, and says what it has to and the state after.
    """

    names: frozenset[str]
    steps: np.ndarray
    arrays: list[np.ndarray]
    scan: Callable[[slice, Mapping[str, Any]], tuple[list[Answer], dict[str, Any]]]


def kept(name: str, role: str, seed: int) -> Kept:
    """Of a family of leaves, or of one metric beside what it is held against."""
    if name in AGAINST:
        step, value, _ = faulty(role, seed, SAMPLES)
        return {"plan": _planned, "reference": _paired, "departure": _expected, "given_loss": _given}[name](
            role, seed, step, value
        )
    new = alike(name, role, seed)
    leaves = {metric: (role, metric.rpartition("/")[0]) for metric in new}

    def scan(part: slice, state: Mapping[str, Any]) -> tuple[list[Answer], dict[str, Any]]:
        return load_joint(name).scan({m: rows[part] for m, rows in new.items() if len(rows[part])}, leaves, state)

    return Kept(frozenset(new), np.arange(BLOCKS) * 16.0 + 15, list(new.values()), scan)


ONE = frozenset({"m"})


def _planned(role: str, seed: int, step: np.ndarray, value: np.ndarray) -> Kept:
    """Of odd seeds the rate is that of a group, which has a factor of its own."""
    stages = {"batch_size": ((0, 1.0),), "sequence_length": ((0, 1.0), (300, 1.3)), "tokens": ((0, 512.0),)}
    wanted = plan.Plan(0.8 * step[-1], plan.Rate(1e-3), stages, checkpoint_interval=30)
    name = "group m" if seed % 2 else "lr"
    return Kept(
        frozenset({name}),
        step,
        [step, value],
        lambda at, state: plan.scan(step[at], value[at], name, role, wanted, state),
    )


def _paired(role: str, seed: int, step: np.ndarray, value: np.ndarray) -> Kept:
    """The other run is lower from the 400th sample on; of odd seeds it saw other data."""
    noise = (0.05 if seed % 2 else 1e-4) * np.random.default_rng(seed).standard_normal(len(step))
    other, gate = value * np.exp(noise) * np.where(step > step[400], 0.7, 1), reference.GATES[role]
    return Kept(
        ONE,
        step,
        [step, other, value],
        lambda at, state: reference.scan(step[at], other[at], value[at], "m", role, gate, state),
    )


def _expected(role: str, seed: int, step: np.ndarray, value: np.ndarray) -> Kept:
    """A ladder that expects no change but for a slow one of the loss."""
    base = 2.3 if role == "router_entropy" else 1.0
    level = {"loss": 3 + 4 * (CENTRES * step[-1]) ** -0.3, "token_drop": 0.03, "router_entropy": 0.23}.get(role, 1.0)
    expected = {
        "role": role, "base": base, "rungs": ["a", "b", "c"], "at": CENTRES, "sd": np.full(len(CENTRES), 0.02),
        "centre": np.broadcast_to(np.log(level), len(CENTRES)).copy(),
        "shape_sd": 0.003, "noise": 0.02, "censored_from": 0.7, "peak": {"at": 0.3, "sd": 0.02},
        "per_step": 1 / step[-1], "parameters": 1e6, "tokens": 1e9,
    }  # fmt: skip
    return Kept(
        ONE,
        step,
        [step, value, expected["centre"], expected["sd"]],
        lambda at, state: departure.scan(step[at], value[at], "m", role, expected, state),
    )


def _given(role: str, seed: int, step: np.ndarray, value: np.ndarray) -> Kept:
    """Evaluations beside a loss that is known up to the last of them; a score is worse where a loss is higher."""
    level = 0.0
    if role == "eval_score":
        with np.errstate(divide="ignore"):
            value, level = 0.1 / value, float(np.log(1 / 9))
    share, line = 1 / step[-1], {"loss": "l", "slope": 1.0, "cut": 0.0, "sd": 0.02}
    blocks = np.stack([step * share, level + 0.02 * np.random.default_rng(seed).standard_normal(len(step))])
    return Kept(
        ONE,
        step,
        [step, value, blocks],
        lambda at, state: given_loss.scan(step[at], value[at], share, blocks[:, : at.stop], "m", role, line, state),
    )
