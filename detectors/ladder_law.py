"""The loss of a ladder by a law of model, tokens and learning rate, with its asymptote profiled. No verdicts.

L(u, N) = E + B N^-b + A D(N)^-a ((S1(u) + s)^-a - C S2(u)): a part that the model is too small for, and a part that the
tokens so far do not teach, with one exponent for the tokens of a rung and for the share of them. D are the tokens of the
whole schedule, S1 the integral of the learning rate in parts of its peak over the share u, S2 how far the rate has come
down from its peak; s stands for the first steps. All is shared between the rungs, so the end of a rung that stopped early is
that of the others. Source: the two parts of arXiv:2203.15556 with the annealing of arXiv:2408.11029.
Which E is right cannot be told by a ladder of few rungs: several from 0 to nearly the smallest loss are fitted, and each
counts by its likelihood.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from detectors.ladder_rungs import CENTRES, Binned, Line
from detectors.series import Array

ASYMPTOTES = 5  # tried
REACH = 0.9  # of the smallest loss: the highest asymptote that is tried
EXACT = 0.003  # log: no law is better than that, however many samples a bin has
USUAL, WIDE = np.log(0.3), 0.7  # exponents of published laws lie within 0.15 and 0.6
POWERS = -4.0, 1.5  # least and highest logarithm of an exponent
LEAST = 0.01  # of the shape
# how strongly each parameter is held to what is usual: (rows, parameters)
HELD: Array = np.eye(6)[[0, 1, 3, 4, 5]] / np.array([2.0, WIDE, WIDE, 2.0, 0.5])[:, None]
FINE: Array = np.linspace(0, 1, 1001)


@dataclass(frozen=True)
class Schedule:
    """S1 and S2 at the centres of the bins."""

    done: Array
    fallen: Array


@dataclass(frozen=True)
class Place:
    """Where a run stands on the ladder: logarithms of its active parameters and of its tokens, and its schedule."""

    size: float
    tokens: float
    schedule: Schedule


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
    middle: tuple[float, float]  # size and tokens at which the parameters stand

    def predict(self, place: Place) -> tuple[Array, Array]:
        """Log loss at the centres of the bins, and its standard deviation over the asymptotes."""
        size, tokens = np.array([place.size - self.middle[0], place.tokens - self.middle[1]])
        pairs = zip(self.parameters, self.asymptotes, strict=True)
        each = np.stack([_curve(p, e, size, tokens, place.schedule.done, place.schedule.fallen) for p, e in pairs])
        mean = self.counts @ each
        return mean, np.sqrt(np.maximum(self.counts @ (each - mean) ** 2, 0))


def fit(places: Sequence[Place], lines: Sequence[Binned]) -> Law:
    """Of at least two rungs' log losses. Raises ValueError on fewer."""
    from scipy.optimize import least_squares

    if len(places) < 2:
        raise ValueError("a law needs at least two rungs")
    middle = float(np.mean([each.size for each in places])), float(np.mean([each.tokens for each in places]))
    target = np.stack([line.mean for line in lines])
    seen = np.isfinite(target)
    target, weight = target[seen], np.minimum(np.stack([line.weight for line in lines])[seen], 1 / EXACT)
    # of every bin that has samples, one after the other: the size, the tokens, S1 and S2
    at = np.array([[each.size - middle[0], each.tokens - middle[1]] for each in places])
    size, tokens = (np.repeat(column[:, None], len(CENTRES), axis=1)[seen] for column in at.T)
    done, fallen = (np.stack([getattr(p.schedule, part) for p in places])[seen] for part in ("done", "fallen"))
    lowest = float(np.exp(target.min()))
    usual = np.array([np.log(lowest / 2), USUAL, np.log(lowest / 2), USUAL, -3.0, 0.0])

    def misses(p: Array, asymptote: float) -> Array:
        return np.concatenate(
            [(target - _curve(p, asymptote, size, tokens, done, fallen)) * weight, HELD @ (p - usual)]
        )

    def moves(p: Array, asymptote: float) -> Array:
        return np.concatenate([-_slopes(p, asymptote, size, tokens, done, fallen) * weight[:, None], HELD])

    asymptotes = np.linspace(0, REACH * lowest, ASYMPTOTES)
    begin = usual + np.array([0, 0, 0, 0, 0, 0.1])
    # from afar the outliers are not known yet
    begin = least_squares(misses, begin, moves, args=(asymptotes[0],), x_scale="jac", ftol=1e-3, max_nfev=60).x
    parameters, costs = [], []
    for asymptote in asymptotes:  # each begins where the one before ended
        found = least_squares(
            misses, begin, moves, args=(asymptote,), loss="soft_l1", x_scale="jac", ftol=1e-5, max_nfev=60
        )
        begin = found.x
        parameters.append(found.x)
        costs.append(2 * float(found.cost))
    # a law is never exact: what it misses in the best fit counts as noise of every fit
    spare = max(len(target) - 6, 1)
    scale = max(1.0, min(costs) / spare)
    counts = np.exp(-(np.array(costs) - min(costs)) / (2 * scale))
    return Law(asymptotes, np.array(parameters), counts / counts.sum(), middle)


def _curve(p: Array, asymptote: float, size: Array, tokens: Array, done: Array, fallen: Array) -> Array:
    model, data, shape, _ = _parts(p, size, tokens, done, fallen)
    return np.asarray(np.log(asymptote + model + data * shape))


def _parts(p: Array, size: Array, tokens: Array, done: Array, fallen: Array) -> tuple[Array, Array, Array, Array]:
    """What the model is too small for; what the tokens do not teach, and in which shape; what of it is done."""
    small, by_size, little, power, first, annealing = p
    falls, shrinks = np.exp(np.clip(power, *POWERS)), np.exp(np.clip(by_size, *POWERS))
    so_far = done + np.exp(first)
    shape = np.maximum(so_far**-falls - annealing * fallen, LEAST)
    return np.exp(small - shrinks * size), np.exp(little - falls * tokens), shape, so_far


def _slopes(p: Array, asymptote: float, size: Array, tokens: Array, done: Array, fallen: Array) -> Array:
    """(bins, 6): the derivatives of the curve by the parameters."""
    _, by_size, _, power, first, _ = p
    model, data, shape, so_far = _parts(p, size, tokens, done, fallen)
    falls, shrinks = np.exp(power), np.exp(by_size)
    free = shape > LEAST
    by = [
        model,
        -model * size * shrinks * _within(by_size),
        data * shape,
        -data * (tokens * shape + free * np.log(so_far) * so_far**-falls) * falls * _within(power),
        -data * free * falls * so_far ** (-falls - 1) * np.exp(first),
        -data * free * fallen,
    ]
    return np.stack(by, axis=1) / (asymptote + model + data * shape)[:, None]


def _within(power: float) -> bool:
    return POWERS[0] < power < POWERS[1]
