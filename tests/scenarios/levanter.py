"""What Levanter logs, under its own key names and cadences."""

from collections.abc import Mapping

import numpy as np
import polars as pl
from curves import ar1, durations, loss_noise
from runlog import logged, stretch
from scenario import Assumed

Array = np.ndarray

COMPILE_SECONDS = Assumed(120)  # the first step of a process contains it
EVAL_SECONDS = Assumed(240)
LOADING_SECONDS = Assumed(0.02)


def train(
    rng: np.random.Generator,
    steps: Array,
    started: float,
    *,
    loss: Array,
    luck: Array,
    sequences: Array | float,
    tokens: float,
    rates: Mapping[str, Array],
    seconds: Array | float,
    mfu: Array | float,
    grads: Mapping[str, Array | float],
    params: Mapping[str, Array | float],
    evals: Mapping[str, Array | float],
    watch_every: int,
    watch_at: int,
    evals_every: int,
    extra: Mapping[str, Array | pl.Series],
    total_steps: float,
    fresh: bool = False,
) -> pl.DataFrame:
    """Rows of one process. Levels come in without noise; `fresh` is a process that begins with its first row.

    Norms are logged at every `watch_every`-th step: the ones that leave `watch_at` (classic hooks 9, the Grug loop 0).
    """
    size = len(steps)
    # a slow step is slow for all that is computed from it
    duration = durations(rng, size, seconds)
    if fresh:
        duration[0] += COMPILE_SECONDS
    loading = LOADING_SECONDS * rng.lognormal(0, 0.3, size)
    evaluated = (steps + 1) % evals_every == 0
    iteration = duration + loading + np.where(evaluated, EVAL_SECONDS, 0)
    noisy = loss * np.exp(loss_noise(rng, luck, sequences))
    per_second = tokens / duration
    columns: dict[str, Array | pl.Series] = {
        "train/loss": noisy,
        **rates,
        "run_progress": steps / total_steps,
        "throughput/duration": duration,
        "throughput/iteration_time": iteration,
        "throughput/loading_time": loading,
        "throughput/tokens_per_second": per_second,
        "throughput/mfu": mfu * seconds / duration,
        **extra,
        **watched(rng, steps, "grad/norm/", grads, watch_every, watch_at),
        **watched(None, steps, "params/norm/", params, watch_every, watch_at),
        **{name: logged(level * np.ones(size), evaluated) for name, level in evals.items()},
    }
    return stretch(steps, started, iteration, columns)


def watched(
    rng: np.random.Generator | None, steps: Array, prefix: str, norms: Mapping[str, Array | float], every: int, at: int
) -> dict[str, pl.Series]:
    """Norms at their cadence. With chance they move together, as gradient norms do."""
    wobble = np.exp(ar1(rng, len(steps))) if rng is not None else 1.0
    where = steps % every == at % every
    return {f"{prefix}{leaf}": logged(level * wobble * np.ones(len(steps)), where) for leaf, level in norms.items()}


def eval_noise(rng: np.random.Generator, steps: Array, spread: float) -> Array:
    """Relative noise of evaluations on a fixed set."""
    return np.exp(spread * rng.standard_normal(len(steps)))
