"""Generated runs in which nothing happens, with the noise that real runs have.

A run is one file of ten coupled metrics: loss and cross entropy share their noise, the gradient norm a third of it, MFU
and step time are each other's inverse, with a pause of four steps in every 200. The loss falls as a power law. The
flavour (white, heavy tails, autocorrelation 0.5 or 0.9, as open logs are) goes by the seed. Made series, since only nothing
is asked for.
"""

from pathlib import Path

import numpy as np
import polars as pl
from cases import Case
from numpy.typing import NDArray
from scipy.signal import lfilter
from split import half_of_seed

STEPS, METRICS = 25_000, 10
PAUSE = 4  # of 200 steps: about as many as the evaluations and checkpoints of open logs take
SAMPLES = STEPS * METRICS  # of one run
# name: (autocorrelation and degrees of freedom of the loss, its relative noise), the same of the gradient norm
# the last two are what open logs of large runs look like: their loss is white, a gradient norm has memory
FLAVOURS = {
    "white": ((0.0, None, 0.005), (0.0, None, 0.1)),
    "heavy tails": ((0.0, 4, 0.01), (0.0, 3, 0.1)),
    "AR(1) 0.5": ((0.5, None, 0.01), (0.8, None, 0.1)),
    "AR(1) 0.9": ((0.9, None, 0.01), (0.95, None, 0.1)),
    "open log": ((0.0, None, 0.006), (0.8, None, 0.1)),
    "large batch": ((0.0, None, 0.0018), (0.8, None, 0.05)),
}


def noise(rng: np.random.Generator, size: int, phi: float = 0.0, degrees: int | None = None) -> NDArray[np.float64]:
    """Stationary noise of unit scale: normal or Student shocks, filtered to the autocorrelation `phi`."""
    shocks = rng.standard_normal(size) if degrees is None else rng.standard_t(degrees, size)
    shocks[1:] *= np.sqrt(1 - phi * phi)
    return np.asarray(lfilter([1.0], [1.0, -phi], shocks))


def flavour_of(seed: int) -> str:
    """Both halves go through all flavours."""
    return list(FLAVOURS)[(seed + 1) // 2 % len(FLAVOURS)]


def run(seed: int, steps: int = STEPS) -> pl.DataFrame:
    """A wide log of `steps` rows and eight metrics."""
    rng = np.random.default_rng([seed, 20_000])
    (phi, degrees, scale), (norm_phi, norm_degrees, norm_scale) = FLAVOURS[flavour_of(seed)]
    step = np.arange(1.0, steps + 1)
    hard = noise(rng, steps, phi, degrees)  # how hard a batch is
    loss = (1.7 + 8 * step**-0.35) * np.exp(scale * hard)
    norm = 0.3 * hard + np.sqrt(1 - 0.09) * noise(rng, steps, norm_phi, norm_degrees)
    speed = np.exp(0.009 * noise(rng, steps)) * np.where(step % 200 < PAUSE, 0.67, 1.0)
    entropy, layer = noise(rng, steps, 0.5), noise(rng, steps, 0.5)
    seconds = 2.0 / speed
    return pl.DataFrame(
        {
            "global_step": np.arange(steps),
            "_timestamp": 1.7e9 + np.cumsum(seconds),
            "train/loss": loss,
            "train/cross_entropy_loss": loss - 0.004 * np.exp(0.02 * noise(rng, steps)),
            "grad/norm/total": 2.0 * np.exp(norm_scale * norm),
            "params/norm/total": 100.0 + np.log1p(step / 500),
            "optim/learning_rate": 3e-4 * np.minimum(1.0, step / 500),
            "throughput/mfu": 40.0 * speed,
            "throughput/duration": seconds,
            "moe/drop_fraction": 0.03 * np.exp(0.05 * noise(rng, steps, 0.5)),
            "train/router/routing_entropy_mean": 2.0 * np.exp(0.0003 * entropy),
            "train/router/layer_0/routing_entropy": 2.0 * np.exp(0.0003 * (0.7 * entropy + 0.7 * layer)),
        }
    )


def write(seed: int, folder: Path, steps: int = STEPS) -> Case:
    """The run as a Parquet file, and as a case without a truth."""
    log = folder / f"null-{seed}.parquet"
    run(seed, steps).write_parquet(log, compression="lz4")
    return Case(f"null/{flavour_of(seed)}/{seed}", "null", half_of_seed(seed), log, ())
