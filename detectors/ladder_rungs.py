"""The rungs of a ladder on one axis: which share of the schedule a step is, and what of a rung may be compared. No verdicts.

Rungs are aligned on the share of the schedule or on tokens per active parameter, never on the step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from detectors.series import Array

START = 0.08  # share of the schedule before which nothing is expected: warm-up and first steps differ
BINS = 46  # of what follows
GRID: Array = np.linspace(START, 1, BINS + 1)
CENTRES: Array = (GRID[1:] + GRID[:-1]) / 2
ENDED = 0.985  # a rung that came this far has run its schedule
MAD = 1.4826 / np.sqrt(2)  # noise of one sample over the median of its moves
Z90 = 1.6449
BEND = np.sqrt(1.5)  # noise of a sample less the mean of its neighbours, over its own

# what another setting than that of the large run touches
TOUCHES: Mapping[str, frozenset[str]] = {
    "backend": frozenset({"token_drop", "grad_norm", "router_entropy"}),
    "batch": frozenset({"grad_norm", "loss", "eval_loss", "eval_score"}),
    "mix": frozenset({"loss", "eval_loss", "eval_score", "router_entropy", "token_drop"}),
}


@dataclass(frozen=True)
class Line:
    """One metric of a rung: its role, the share of the schedule of each sample (rising), and the value."""

    role: str
    at: Array
    value: Array


@dataclass(frozen=True)
class Rung:
    """A smaller run: active parameters, its lines by metric, its learning rate by share (in parts of the peak).

    `settings` name what it ran with (backend, batch, mix); `tokens` are those of its whole schedule, where they are known.
    """

    name: str
    parameters: float
    lines: Mapping[str, Line]
    settings: Mapping[str, str] = field(default_factory=dict)
    tokens: float | None = None

    @property
    def size(self) -> float:
        """Logarithm of the active parameters."""
        return float(np.log(self.parameters))

    @property
    def ended(self) -> float:
        """The share of its schedule at which its last sample lies."""
        return max((float(line.at[-1]) for line in self.lines.values() if len(line.at)), default=0.0)

    @property
    def is_censored(self) -> bool:
        """Whether it ended early: what would have followed is unknown, not absent."""
        return self.ended < ENDED

    def rate(self) -> Line | None:
        """Its learning rate, in parts of the peak."""
        found = next((line for _, line in sorted(self.lines.items()) if line.role == "learning_rate"), None)
        if found is None or not (found.value > 0).any():
            return None
        return Line(found.role, found.at, found.value / found.value.max())


def refused(rung: Rung, settings: Mapping[str, str]) -> dict[str, str]:
    """Role -> why this rung says nothing about it for a run with these settings."""
    out: dict[str, str] = {}
    for key, roles in TOUCHES.items():
        mine, theirs = rung.settings.get(key, ""), settings.get(key, "")
        if mine != theirs and mine and theirs:
            out |= dict.fromkeys(sorted(roles), f"{rung.name} ran with {key} {mine}, the large run with {theirs}")
    return out


@dataclass(frozen=True)
class Binned:
    """Means of a transformed line in BINS equal parts of the schedule: NaN where there is none; samples, noise of one."""

    mean: Array
    count: Array
    noise: float

    @property
    def weight(self) -> Array:
        """Root of samples over noise; 0 in an empty bin."""
        return np.sqrt(self.count) / max(self.noise, 1e-9)


def binned(at: Array, value: Array) -> Binned:
    """Of finite values; the mean is that of the middle nine tenths of a bin.

    The noise is by the 90 % quantile, as the bands are, of what a sample lies off its two neighbours: a slope is none.
    """
    good = np.isfinite(value) & (at >= START) & (at <= 1)
    at, value = at[good], value[good]
    place = np.minimum(np.searchsorted(GRID, at, side="right") - 1, BINS - 1)
    mean, count = np.full(BINS, np.nan), np.zeros(BINS)
    for each in np.unique(place):
        inside = np.sort(value[place == each])
        cut = len(inside) // 20
        mean[each], count[each] = inside[cut : len(inside) - cut].mean(), len(inside)
    off = np.abs(value[1:-1] - (value[:-2] + value[2:]) / 2)
    noise = float(np.quantile(off, 0.9)) / BEND / Z90 if len(off) else 0.0
    return Binned(mean, count, noise)


def trend(sizes: Sequence[float], values: Sequence[float], size: float) -> float:
    """A straight line in the size, at another size; the mean where all sizes are one."""
    x, y = np.asarray(sizes), np.asarray(values)
    spread = x - x.mean()
    slope = float((spread * y).sum() / (spread**2).sum()) if (spread**2).sum() > 1e-6 else 0.0
    return float(y.mean() + slope * (size - x.mean()))
