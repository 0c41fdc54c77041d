"""Healthy stretches of recorded runs: what faults are injected into."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import null
import numpy as np
import polars as pl
from cases import Case
from numpy.typing import NDArray
from scipy.ndimage import median_filter
from score import is_healthy
from split import HALVES

from flows.records import Role
from flows.sources.roles import role_of

Array = NDArray[np.float64]
STEPS, TIMES = ("global_step", "_step", "step"), ("_timestamp", "timestamp", "time")
CORE = (
    "loss", "eval_loss", "grad_norm", "param_norm", "learning_rate", "mfu", "throughput", "step_time",
    "token_drop", "router_entropy",
)  # fmt: skip
SPEED = frozenset({"mfu", "throughput", "step_time"})
# recorded beside other work: their slow spells are real (the block medians of runs/healthy wander by 11 %), and no ground
# to inject slow-downs into
SHARED = frozenset({"runs/capacity_cut", "runs/healthy", "runs/lr_hot_resume", "runs/router_collapse"})
OPEN = ("open log", "large batch")
MADE_STEPS = 13_000  # of a made base: room for a drift in 10,000 steps
LEAVES = 3  # of each role: layers and leaves that are kept beside the whole-run metrics
LEAST_ROWS = 1_200
LOOK = 512  # samples before a place from which the noise there is taken
LEAST_SIGMA = 1e-7  # of a constant
SMOOTH = 65  # samples of the running median that stands for the trend


@dataclass(frozen=True)
class Base:
    """The core metrics of a healthy stretch, a row a step, null where nothing was logged."""

    name: str
    half: str
    frame: pl.DataFrame
    step: str
    clock: str
    roles: Mapping[str, Role]
    seconds_per_step: float | None = None

    def values(self, name: str) -> Array:
        """A column as float64, NaN where it is null."""
        return self.frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy().astype(float)

    def named(self, *roles: str) -> list[str]:
        """The metrics of some roles, whole-run ones first."""
        return sorted((n for n, r in self.roles.items() if r.role in roles), key=lambda n: self.roles[n].group != "")


def choose(cases: Sequence[Case], names: Sequence[str] = (), per_half: int = 16, least: int = 4) -> list[Case]:
    """The cases to be used as bases: those named, else the healthy recordings, filled up with stretches before a fault."""
    if names:
        known = {case.name: case for case in cases}
        return [known[name] for name in names]
    out: list[Case] = []
    for half in sorted({case.half for case in cases}):
        mine = [case for case in cases if case.half == half]
        healthy = [case for case in mine if is_healthy(case.truths)][:per_half]
        others = [case for case in mine if not is_healthy(case.truths)]
        out += [*healthy, *others[: max(0, least - len(healthy))]]
    return out


@lru_cache(maxsize=32)
def load(log: Path, name: str, half: str, until: int | None, pace: float | None = None) -> Base | None:
    """The core of a wide Parquet log up to a step, without its speed where that is no ground; None with too few rows."""
    frame = pl.read_parquet(log)
    step = next(c for c in STEPS if c in frame.columns)
    clock = next(c for c in TIMES if c in frame.columns)
    steps = frame[step].to_numpy()
    back = np.flatnonzero(np.diff(steps) <= 0)
    frame = frame[: int(back[0]) + 1] if len(back) else frame
    frame = frame if until is None else frame.filter(pl.col(step) < until)
    roles = {c: role_of(c) for c in frame.columns if c not in (step, clock) and frame[c].dtype.is_numeric()}
    kept = [c for c in roles if roles[c].role in CORE and frame[c].count() > 0]
    kept = [c for c in kept if name not in SHARED or roles[c].role not in SPEED]
    leaves = {role: [c for c in kept if roles[c].group and roles[c].role == role] for role in CORE}
    spread = {c for each in leaves.values() for c in each[:: max(1, len(each) // LEAVES)][:LEAVES]}
    chosen = [c for c in kept if not roles[c].group or c in spread]
    if len(frame) < LEAST_ROWS:
        return None
    return Base(name, half, frame.select(step, clock, *chosen), step, clock, {c: roles[c] for c in chosen}, pace)


def made_cases(per_half: int = 4) -> list[Case]:
    """Bases for what no short recording can hold: long runs with the noise and the pauses of open logs."""
    out: list[Case] = []
    for half in HALVES:
        seeds = [seed for seed in range(1, 100) if null.half_of_seed(seed) == half and null.flavour_of(seed) in OPEN]
        out += [Case(f"made/{null.flavour_of(s)}/{s}", "made", half, Path(str(s)), ()) for s in seeds[:per_half]]
    return out


@lru_cache(maxsize=4)
def _made(name: str, half: str, seed: int) -> Base:
    frame = null.run(seed, MADE_STEPS)
    step, clock = frame.columns[:2]
    return Base(name, half, frame, step, clock, {c: role_of(c) for c in frame.columns[2:]})


def base_of(case: Case) -> Base | None:
    """The stretch of a recorded case before anything happens in it; of a made one the whole."""
    if case.family == "made":
        return _made(case.name, case.half, int(case.log.name))
    shown = [truth.onset for truth in case.truths if case.name not in SHARED or not truth.roles <= SPEED]
    until = min(shown, default=None)
    return load(case.log, case.name, case.half, until, case.seconds_per_step)


def is_log(values: Array) -> bool:
    """Whether a metric lives on a logarithmic scale: all that was logged is positive."""
    seen = values[np.isfinite(values)]
    return bool(len(seen) and (seen > 0).all())


def residuals(values: Array, log: bool) -> tuple[NDArray[np.int64], Array]:
    """Indices of the finite samples, and what is left of them (of their logs) without their running median."""
    at = np.flatnonzero(np.isfinite(values))
    y = np.log(values[at]) if log else values[at]
    return at, y - median_filter(y, size=SMOOTH, mode="nearest")


def sigma(values: Array, row: int) -> float:
    """The noise of a metric in the LOOK samples before a row: 1.4826 median deviations of the residuals (log or own unit)."""
    at = np.flatnonzero(np.isfinite(values))
    near = at[at < row][-LOOK - SMOOTH :]
    near = near if len(near) >= 16 else at[: LOOK + SMOOTH]
    if not len(near):
        return LEAST_SIGMA
    _, rest = residuals(values[near], is_log(values))
    rest = rest[-LOOK:]
    return max(float(1.4826 * np.median(np.abs(rest - np.median(rest)))), LEAST_SIGMA)
