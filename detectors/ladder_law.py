"""The loss of a ladder by a law that knows the learning rate, with its asymptote profiled. No verdicts.

L(u, N) = E + A(N) ((S1(u) + s)^-a(N) - C S2(u)), with log A and a straight lines in log N. S1 is the integral of the learning
rate in parts of its peak over the share u of the schedule, S2 how far the rate has come down from its peak; s stands for
the first steps. All of them are shared between the rungs, so the end of a rung that stopped early is that of the others.
Source: the annealing law of arXiv:2408.11029, with a size trend in place of a fit a run. Which E is right cannot be told
by a ladder of few rungs and decides what a larger run will do: every E from 0 to nearly the smallest loss is fitted, and
each counts by its likelihood.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from detectors.ladder_rungs import CENTRES, Binned, Line
from detectors.series import Array

ASYMPTOTES, ROUGHLY = 9, 5  # tried, and where only the distance to a rung is wanted
REACH = 0.9  # of the smallest loss: the highest asymptote that is tried
EXACT = 0.003  # log: no law is better than that, however many samples a bin has
FINE: Array = np.linspace(0, 1, 1001)


@dataclass(frozen=True)
class Schedule:
    """S1 and S2 at the centres of the bins."""

    done: Array
    fallen: Array


def schedule_of(rate: Line | None, others: Sequence[Line]) -> Schedule:
    """From a logged rate; behind its end (or without one) the mean of the others, without any a constant one."""
    known = [np.interp(FINE, each.at, each.value) for each in others]
    usual = np.mean(known, axis=0) if known else np.ones(len(FINE))
    if rate is None or not len(rate.at):
        path = usual
    else:
        path = np.interp(FINE, rate.at, rate.value)
        behind = rate.at[-1] < FINE
        path = np.where(behind, np.minimum(usual, path), path)
    done = np.concatenate([[0.0], np.cumsum((path[1:] + path[:-1]) / 2) * (FINE[1] - FINE[0])])
    top = np.maximum.accumulate(path)
    return Schedule(np.interp(CENTRES, FINE, done), np.interp(CENTRES, FINE, top - path))


@dataclass(frozen=True)
class Law:
    """A fit for each asymptote tried: parameters (asymptotes, 6) and how much each counts."""

    asymptotes: Array
    parameters: Array
    counts: Array
    middle: float  # size at which the parameters stand

    def predict(self, size: float, schedule: Schedule) -> tuple[Array, Array]:
        """Log loss at the centres of the bins, and its standard deviation over the asymptotes."""
        done, fallen = schedule.done, schedule.fallen
        pairs = zip(self.parameters, self.asymptotes, strict=True)
        each = np.stack([_curve(p, e, np.array(size - self.middle), done, fallen) for p, e in pairs])
        mean = self.counts @ each
        return mean, np.sqrt(np.maximum(self.counts @ (each - mean) ** 2, 0))


def fit(sizes: Sequence[float], lines: Sequence[Binned], schedules: Sequence[Schedule], tried: int = ASYMPTOTES) -> Law:
    """Of at least two rungs' log losses. Raises ValueError on fewer."""
    from scipy.optimize import least_squares

    if len(sizes) < 2:
        raise ValueError("a law needs at least two rungs")
    middle = float(np.mean(sizes))
    one_size = float(np.ptp(sizes)) < 0.01
    target = np.stack([line.mean for line in lines])
    seen = np.isfinite(target)
    target, weight = target[seen], np.minimum(np.stack([line.weight for line in lines])[seen], 1 / EXACT)
    # of every bin that has samples, one after the other: the size, S1 and S2
    away = np.repeat(np.array(sizes)[:, None] - middle, len(CENTRES), axis=1)[seen]
    done, fallen = (np.stack([getattr(each, part) for each in schedules])[seen] for part in ("done", "fallen"))
    lowest = float(np.exp(target.min()))

    def misses(p: Array, asymptote: float) -> Array:
        held = [
            p[2] - np.log(0.3),
            (p[4] + 3) / 2,
            p[5] / 0.5,
            *([p[1] / 0.01, p[3] / 0.01] if one_size else [p[3] / 0.2]),
        ]
        return np.concatenate([(target - _curve(p, asymptote, away, done, fallen)) * weight, held])

    asymptotes = np.linspace(0, REACH * lowest, tried)
    begin = np.array([np.log(lowest), -0.2, np.log(0.3), 0.0, -3.0, 0.1])
    # from afar the outliers are not known yet
    begin = least_squares(misses, begin, args=(asymptotes[0],), x_scale="jac", ftol=1e-3, max_nfev=60).x
    parameters, costs = [], []
    for asymptote in asymptotes:  # each begins where the one before ended
        found = least_squares(misses, begin, args=(asymptote,), loss="soft_l1", x_scale="jac", ftol=1e-5, max_nfev=60)
        begin = found.x
        parameters.append(found.x)
        costs.append(2 * float(found.cost))
    # a law is never exact: what it misses in the best fit counts as noise of every fit
    spare = max(len(target) - 6, 1)
    scale = max(1.0, min(costs) / spare)
    counts = np.exp(-(np.array(costs) - min(costs)) / (2 * scale))
    return Law(asymptotes, np.array(parameters), counts / counts.sum(), middle)


def _curve(p: Array, asymptote: float, size: Array, done: Array, fallen: Array) -> Array:
    level, by_size, power, power_by_size, first, annealing = p
    falls = np.exp(np.clip(power, -4, 1.5)) + power_by_size * size
    shape = (done + np.exp(first)) ** -falls - annealing * fallen
    return np.asarray(np.log(asymptote + np.exp(level + by_size * size) * np.maximum(shape, 0.01)))
