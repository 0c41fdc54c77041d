"""What a fault did to each metric, measured against its healthy twin step by step, or against the time before it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BEFORE = 400  # steps before the onset that give the spread and the level
SUSTAINED = 8  # samples whose median effect must exceed the spread, so that one odd sample is no effect
TIMES = ("throughput/duration", "throughput/tokens_per_second", "throughput/mfu")  # never equal in two runs


@dataclass(frozen=True)
class Effect:
    """One metric: its spread and level before the onset, its level after, the first step of a visible effect."""

    metric: str
    spread: float  # standard deviation around a running median
    before: float
    after: float  # the median of the first 400 steps of the visible effect
    visible: int
    size: float  # median effect in spreads over the same steps


def history(path: Path) -> pl.DataFrame:
    """The run as it stands: of a step that was logged twice, the later row."""
    return pl.read_parquet(path).unique("global_step", keep="last", maintain_order=True).sort("global_step")


def effects(run: pl.DataFrame, twin: pl.DataFrame | None, onset: int, last: int) -> list[Effect]:
    """All metrics with a visible effect from `onset` to `last`, the largest first."""
    found = []
    for metric in run.columns:
        if metric in ("global_step", "_timestamp", "run_progress", "throughput/total_tokens"):
            continue
        seen = run.select("global_step", metric).drop_nulls()
        step, value = seen["global_step"].to_numpy(), seen[metric].cast(pl.Float64).to_numpy()
        paired = twin is not None and metric in twin.columns and metric not in TIMES
        expected = _of_twin(twin, metric, step) if twin is not None and paired else None
        effect = _effect(metric, step, value, expected, onset, last)
        if effect is not None:
            found.append(effect)
    return sorted(found, key=lambda each: -abs(each.size))


def _of_twin(twin: pl.DataFrame, metric: str, step: NDArray[np.int32]) -> Floats:
    other = pl.DataFrame({"global_step": step}).join(twin.select("global_step", metric), on="global_step", how="left")
    return other[metric].cast(pl.Float64).to_numpy()


def _effect(
    metric: str, step: NDArray[np.int32], value: Floats, expected: Floats | None, onset: int, last: int
) -> Effect | None:
    before = (step >= onset - BEFORE) & (step < onset)
    if onset < BEFORE:  # nothing came before it: the spread is that of the end of the run
        before = step >= step[-1] - BEFORE
    after = (step >= onset) & (step <= last)
    if before.sum() < 3 or not after.any():
        return None
    level = float(np.median(value[before]))
    residual = np.diff(value[before])
    # Differences remove the trend; the floor is how constant a constant norm is.
    spread = max(float(np.std(residual)) / np.sqrt(2), 5e-5 * abs(level), 1e-12)
    difference = (value - (level if expected is None else expected))[after]
    few = min(SUSTAINED, max(2, len(difference) // 4))
    odd = ~np.isfinite(difference)
    sized = np.where(odd, np.inf, np.abs(difference)) / spread
    if len(sized) < few:
        return None
    sustained = np.median(np.lib.stride_tricks.sliding_window_view(sized, few), axis=1) > 1
    first = np.flatnonzero(sustained | odd[: len(sustained)])
    if not len(first):
        return None
    start = int(np.flatnonzero(sized[first[0] :] > 1)[0] + first[0])
    reach = step[after] < step[after][start] + BEFORE
    chosen = reach & (np.arange(len(reach)) >= start)
    return Effect(
        metric,
        spread,
        level,
        float(np.median(value[after][chosen])),
        int(step[after][start]),
        float(np.median(difference[chosen]) / spread),
    )
