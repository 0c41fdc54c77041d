"""Thousands of metrics at once: which of them have nothing to say. No verdicts.

Most metrics of a large run are one leaf or layer of many, and only `nonfinite` and `invariants` look at them. Both
go sample by sample and keep little, so they may begin anywhere, behind HISTORY older samples. This screen takes all
such metrics side by side and leaves to the detectors only those in which something is not as it should be; for the
others it does to their states exactly what the detectors would.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detectors.invariants import LOOSE, NEVER_ZERO, SEEN, TIGHT
from detectors.noise import BLOCK
from detectors.nonfinite import OF
from detectors.series import Array
from detectors.suite import detectors_of
from detectors.window import State

HISTORY = BLOCK  # samples before a new one that these detectors and the block medians look at
LEVEL_AT, LEVEL_KNOWN = 2, 4  # the sample that is a norm's level, and the samples after which it is known

assert HISTORY >= OF

Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]


@cache
def screened(role: str, group: str) -> bool:
    """Whether only detectors that go sample by sample look at a metric."""
    return set(detectors_of(role, group)) <= {"nonfinite", "invariants"}


@dataclass(frozen=True)
class Calm:
    """What the two detectors know of metrics without an open episode, a row a metric.

    `samples` were seen, `finite` says that one of them was, `seen` counts those that were not zero, `zeros` the zeros
    since; a norm that is held has its `level` (NaN: none), one that `moves` has none to hold.
    """

    samples: Counts
    finite: Flags
    seen: Counts
    zeros: Counts
    level: Array
    moves: Flags

    def take(self, rows: Any) -> "Calm":
        """Some of the rows."""
        return Calm(*(getattr(self, each.name)[rows] for each in fields(self)))

    def put(self, rows: Any, other: "Calm") -> None:
        """Overwrite some of the rows."""
        for each in fields(self):
            getattr(self, each.name)[rows] = getattr(other, each.name)

    @staticmethod
    def fresh(size: int) -> "Calm":
        """Metrics of which nothing was seen."""
        none, no = np.zeros(size, np.int64), np.zeros(size, bool)
        return Calm(none, no, none.copy(), none.copy(), np.full(size, np.nan), no.copy())


def screen(
    calm: Calm, roles: list[str], groups: list[str], last: Array, new: Array, starts: Counts
) -> tuple[Flags, Calm]:
    """Which metrics are quiet, and what is known of those afterwards (of the others the rows mean nothing).

    `last` (metrics,) is the newest sample before; `new` holds the new ones of all metrics one after the other, those of
    metric k from starts[k] to starts[k + 1]; each has one at least.
    """
    begin, count = starts[:-1], np.diff(starts)
    held = np.array(
        [role == "param_norm" and _has_invariants(role, group) for role, group in zip(roles, groups, strict=True)]
    )
    alive = np.array(
        [role in NEVER_ZERO and _has_invariants(role, group) for role, group in zip(roles, groups, strict=True)]
    )
    zero = new == 0
    no_zeros = ~_some(zero, begin) & (calm.zeros == 0)
    all_zero = _every(zero, begin) & (calm.seen == 0)
    level = _levels(calm, held, last, new, begin, count)
    steady, moves = _held(calm, level, new, begin, count)
    quiet = _every(np.isfinite(new), begin) & (no_zeros | all_zero | ~alive) & (steady | moves | ~held)
    after = Calm(
        calm.samples + count,
        np.ones(len(count), bool),
        calm.seen + np.where(alive & no_zeros, count, 0),
        calm.zeros + np.where(alive & ~no_zeros, count, 0),
        level,
        moves,
    )
    return quiet, after


def _every(flags: Flags, begin: Counts) -> Flags:
    return np.asarray(np.logical_and.reduceat(flags, begin))


def _some(flags: Flags, begin: Counts) -> Flags:
    return np.asarray(np.logical_or.reduceat(flags, begin))


@cache
def _has_invariants(role: str, group: str) -> bool:
    return "invariants" in detectors_of(role, group)


def _levels(calm: Calm, held: Flags, last: Array, new: Array, begin: Counts, count: Counts) -> Array:
    """The level of a norm is its third sample, once there is a fourth."""
    due = held & (calm.samples < LEVEL_KNOWN) & (calm.samples + count >= LEVEL_KNOWN)
    here = new[np.minimum(begin + np.maximum(LEVEL_AT - calm.samples, 0), len(new) - 1)]
    return np.where(due, np.where(calm.samples > LEVEL_AT, last, here), calm.level)


def _held(calm: Calm, level: Array, new: Array, begin: Counts, count: Counts) -> tuple[Flags, Flags]:
    """Which norms stay within LOOSE of their level, and which have left it while it was not yet an invariant."""
    usable = np.where(np.isfinite(level) & (level > 0) & ~calm.moves, level, np.nan)
    with np.errstate(invalid="ignore"):
        off = np.abs(new / np.repeat(usable, count) - 1)
    index = np.arange(len(new)) + np.repeat(calm.samples - begin, count)
    early = index < SEEN
    moves = calm.moves | _some(early & (index >= LEVEL_AT) & (off > TIGHT), begin)
    return ~_some(~early & (off > LOOSE), begin), moves


def states_of(calm: Calm, row: int, role: str, group: str) -> dict[str, State]:
    """The states of the detectors of one metric."""
    states: dict[str, State] = {"nonfinite": {"seen": bool(calm.finite[row])}}
    if _has_invariants(role, group):
        known = role != "param_norm" or calm.samples[row] >= LEVEL_KNOWN
        level = float(calm.level[row]) if known and role == "param_norm" else None
        states["invariants"] = {"seen": int(calm.seen[row]), "zeros": int(calm.zeros[row]), "level": level}
        if calm.moves[row]:
            states["invariants"] = {**states["invariants"], "moves": True}
    return states


def calm_of(states: Mapping[str, State], samples: int) -> Calm | None:
    """The inverse, one row; None while an episode is open or an earlier sample still counts."""
    nonfinite, invariants = states["nonfinite"], states.get("invariants", {})
    recent = any(index > samples - OF for index in nonfinite.get("recent", []))
    if nonfinite.get("episode") is not None or recent or invariants.get("constant") or invariants.get("zero"):
        return None
    level = invariants.get("level")
    return Calm(
        np.array([samples]),
        np.array([bool(nonfinite.get("seen", False))]),
        np.array([invariants.get("seen", 0)]),
        np.array([invariants.get("zeros", 0)]),
        np.array([np.nan if level is None else level]),
        np.array([bool(invariants.get("moves", False))]),
    )
