"""Noise as real logs have it, and the shapes that incidents are made of. Arrays in, arrays out."""

import numpy as np
from scenario import Assumed, Published
from scipy.signal import lfilter

Array = np.ndarray

NOISE_OF_ONE_SEQUENCE = Published(0.178)  # relative loss noise times the root of the sequences a batch, on real logs
REPEATABLE = Published(0.9985)  # correlation of the losses of two passes over the same batches
GRAD_PHI = Assumed(0.8)  # real logs: 0.6 to 0.85
GRAD_SPREAD = Assumed(0.07)  # of the log; with phi this gives the 0.044 between neighbours that real logs have
SPEED_SPREAD = Published(0.009)  # relative, of step times of a healthy run
SLOW_SHARE = Published(0.018)  # of steps that take more than 1/0.9 of the usual time


def loss_sigma(sequences: Array | float) -> Array | float:
    """Relative noise of the loss of a batch of so many sequences."""
    return NOISE_OF_ONE_SEQUENCE / np.sqrt(sequences)


def batch_luck(rng: np.random.Generator, size: int) -> Array:
    """Of unit scale: what the batches themselves do to the loss, the same whenever they are read again."""
    return rng.standard_normal(size)


def loss_noise(rng: np.random.Generator, luck: Array, sequences: Array | float) -> Array:
    """Relative noise of one pass over these batches."""
    own = rng.standard_normal(len(luck))
    return loss_sigma(sequences) * (np.sqrt(REPEATABLE) * luck + np.sqrt(1 - REPEATABLE) * own)


def ar1(rng: np.random.Generator, size: int, phi: float = GRAD_PHI, spread: float = GRAD_SPREAD) -> Array:
    """A stationary AR(1) series of this spread."""
    shocks = rng.standard_normal(size) * np.sqrt(1 - phi * phi)
    shocks[:1] /= np.sqrt(1 - phi * phi)
    return spread * lfilter([1.0], [1.0, -float(phi)], shocks)


def durations(rng: np.random.Generator, size: int, level: Array | float) -> Array:
    """Seconds of steps: tight, with a few slow ones."""
    slow = rng.random(size) < SLOW_SHARE
    return level * np.exp(SPEED_SPREAD * rng.standard_normal(size)) * np.where(slow, rng.uniform(1.12, 1.25, size), 1.0)


def power_law(steps: Array, level: float, at: float, exponent: float) -> Array:
    """`level` at step `at`, falling with this exponent."""
    return level * (np.maximum(steps, 1) / at) ** -float(exponent)


def since(steps: Array, onset: float) -> Array:
    """1 from the onset on, 0 before."""
    return (steps >= onset).astype(float)


def fading(steps: Array, onset: float, tau: float) -> Array:
    """1 at the onset, then down with time constant `tau`; 0 before."""
    return since(steps, onset) * np.exp(-np.maximum(steps - onset, 0) / tau)


def rising(steps: Array, start: float, end: float) -> Array:
    """0 before the start, 1 from the end on, straight between."""
    return np.clip((steps - start) / (end - start), 0, 1)


def linear_decay(steps: Array, total: float, peak: float, warmup: float = 0.01, floor: float = 0.05) -> Array:
    """Warm-up to the peak, then straight down to floor * peak at the end."""
    up = steps / (warmup * total)
    down = 1 - (1 - floor) * (steps - warmup * total) / ((1 - warmup) * total)
    return peak * np.minimum(np.minimum(up, 1), down)


def first_visible(steps: Array, effect: Array, noise: float) -> int:
    """The first step whose effect exceeds one standard deviation."""
    return int(steps[np.argmax(np.abs(effect) > noise)])
