"""The shapes of faults, on the scale of a metric's own noise, so that what was recorded stays real.

A shape takes a base run, the row `at` where it begins, an amplitude in its own unit and a source of chance. It answers with what
it changed: whole columns as float64, equal to the base before `at`. With amplitude 0 it changes nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from base import LOOK, Array, Base, is_log, residuals, sigma
from numpy.typing import NDArray
from scipy.signal import lfilter


@dataclass(frozen=True)
class Change:
    """New columns, and the rows of the base in their new order where a restart repeats some (None: as they are)."""

    columns: Mapping[str, Array] = field(default_factory=dict)
    rows: NDArray[np.int64] | None = None
    lead: int = 0  # rows before `at` at which the first metric moved; negative: after it


Shape = Callable[[Base, int, float, np.random.Generator], Change]


def since(base: Base, at: int) -> Array:
    """Rows since the onset, negative before it."""
    return np.arange(len(base.frame), dtype=float) - at


def moved(base: Base, names: list[str], effect: Array, *, in_sigma_at: int | None = None) -> dict[str, Array]:
    """Columns with an additive effect on their own scale (log where positive), in sigmas of a row where one is named."""
    out = {}
    for name in names:
        values = base.values(name)
        size = effect if in_sigma_at is None else effect * sigma(values, in_sigma_at)
        out[name] = values * np.exp(size) if is_log(values) else values + size
    return out


def _after(t: Array, shape: Array) -> Array:
    return np.where(t >= 0, shape, 0.0)


def spike(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
    """A loss spike with a tail of 3 to 50 rows; the gradient norm climbs to it by steps of up to x4 over 1 to 8 rows."""
    tau, lead = float(rng.integers(3, 51)), int(rng.integers(1, 9))
    t = since(base, at)
    tail = np.exp(-np.maximum(t, 0) / tau)
    climb = np.where(t >= -lead, np.clip((t + lead + 1) / (lead + 1), 0, 1), 0.0) * tail
    height = min(lead + 1, 5) * np.log(4) * min(amplitude / 25, 1.0)
    loss = moved(base, base.named("loss"), _after(t, amplitude * tail), in_sigma_at=at - lead)
    return Change({**loss, **moved(base, base.named("grad_norm"), height * climb)}, lead=lead)


def partial_recovery(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
    """A spike eight times as high as what stays of it, the gradient norm normal after it."""
    tau = float(rng.integers(3, 20))
    t = since(base, at)
    tail = _after(t, np.exp(-np.maximum(t, 0) / tau))
    loss = moved(base, base.named("loss"), amplitude * (7 * tail + (t >= 0)), in_sigma_at=at)
    evals = moved(base, base.named("eval_loss"), amplitude * (t >= 0), in_sigma_at=at)
    return Change({**loss, **evals, **moved(base, base.named("grad_norm"), min(amplitude, 2.0) * tail)})


def divergence(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
    """A false dip of 20 rows, growth by `amplitude` percent in 10 rows up to where the run began; the norm twice as fast."""
    del rng
    t = since(base, at)
    grown = np.log1p(amplitude / 100) / 10 * np.maximum(t - 20, 0)
    dip = 0.5 * min(amplitude, 1.0) * np.sin(np.pi * np.clip(t, 0, 20) / 20)
    out: dict[str, Array] = {}
    for name in base.named("loss", "eval_loss"):
        values = base.values(name)
        seen = values[np.isfinite(values)]
        room = np.log(max(float(seen[0] / np.median(seen[-LOOK:])), 1.5))
        out[name] = values * np.exp(np.minimum(grown, room) - dip * sigma(values, at))
    return Change({**out, **moved(base, base.named("grad_norm"), np.minimum(2 * grown, np.log(50.0)))})


def level(*roles: str, length: int | None = None, sign: float = 1.0) -> Shape:
    """A step of `amplitude` sigmas, for good or for `length` rows."""

    def shape(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
        del rng
        t = since(base, at)
        on = (t >= 0) & (t < (length or np.inf))
        return Change(moved(base, base.named(*roles), sign * amplitude * on, in_sigma_at=at))

    return shape


def drift_gradient(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
    """The total gradient norm and its leaves climb by `amplitude` sigmas in 1,000 rows."""
    del rng
    ramp = np.maximum(since(base, at), 0) / 1_000
    return Change(moved(base, base.named("grad_norm"), amplitude * ramp, in_sigma_at=at))


def drift_slow(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
    """The total gradient norm and its leaves climb by `amplitude` percent in 10,000 rows."""
    del rng
    ramp = np.log1p(amplitude / 100) * np.maximum(since(base, at), 0) / 10_000
    return Change(moved(base, base.named("grad_norm"), ramp))


def drift_parameters(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
    """One group of parameters grows by `amplitude` percent in 10,000 rows."""
    leaves = [name for name in base.named("param_norm") if base.roles[name].group] or base.named("param_norm")
    name = leaves[int(rng.integers(len(leaves)))]
    ramp = np.log1p(amplitude / 100) * np.maximum(since(base, at), 0) / 10_000
    return Change(moved(base, [name], ramp))


def slope(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
    """The total parameter norm grows by `amplitude` more of its own slope in the rows before."""
    del rng
    t, out = since(base, at), {}
    for name in [n for n in base.named("param_norm") if not base.roles[n].group]:
        values = base.values(name)
        rows = np.flatnonzero(np.isfinite(values[:at]))[-LOOK:]
        own = np.polyfit(rows, np.log(values[rows]), 1)[0] if len(rows) > 2 else 0.0
        out[name] = values * np.exp(amplitude * own * np.maximum(t, 0))
    return Change(out)


def spread(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
    """The residuals of loss and gradient norm become 1 + `amplitude` times as wide (less with a negative one)."""
    del rng
    return Change(_residual(base, at, lambda rest: amplitude * rest))


def memory(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
    """The residuals of loss and gradient norm follow each other with autocorrelation `amplitude`, as wide as before."""
    del rng
    share = np.sqrt(1 - amplitude * amplitude)
    return Change(_residual(base, at, lambda rest: lfilter([share], [1.0, -amplitude], rest) - rest))


def _residual(base: Base, at: int, effect: Callable[[Array], Array]) -> dict[str, Array]:
    out = {}
    for name in base.named("loss", "grad_norm"):
        values = base.values(name)
        log = is_log(values)
        rows, rest = residuals(values, log)
        later = rows >= at
        change = np.zeros(len(values))
        change[rows[later]] = effect(rest[later])
        out[name] = values * np.exp(change) if log else values + change
    return out


def nan_burst(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
    """`amplitude` rows of NaN in loss and gradient norm."""
    del rng
    t = since(base, at)
    burst = (t >= 0) & (t < amplitude)
    return Change({name: np.where(burst, np.nan, base.values(name)) for name in base.named("loss", "grad_norm")})


def stall(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
    """One step takes `amplitude` minutes more, and the clock with it."""
    del rng
    t, seconds = since(base, at), base.values(base.clock)
    own = np.diff(seconds, prepend=seconds[0])
    lost = np.where((t == 0) & (own > 0), own / np.maximum(own + 60 * amplitude, 1e-9), 1.0)
    return Change(slowed(base, lost))


def slowed(base: Base, speed: Array) -> dict[str, Array]:
    """Step times, throughput, MFU and clock of a run at `speed` (1: as it was)."""
    seconds = base.values(base.clock)
    extra = np.diff(seconds, prepend=seconds[0]) * (1 / speed - 1)
    out = {base.clock: seconds + np.cumsum(extra)}
    out |= {name: base.values(name) / speed for name in base.named("step_time")}
    return out | {name: base.values(name) * speed for name in base.named("throughput", "mfu")}


def slower(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
    """A lower level for good: `amplitude` of the speed is lost."""
    del rng
    return Change(slowed(base, np.where(since(base, at) >= 0, 1 - amplitude, 1.0)))


def slow_for(length: int) -> Shape:
    """`amplitude` of the speed is lost for `length` rows."""

    def shape(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
        del rng
        t = since(base, at)
        return Change(slowed(base, np.where((t >= 0) & (t < length), 1 - amplitude, 1.0)))

    return shape


def bimodal(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
    """The speed flips between its own and 1 - `amplitude` of it, every 20 rows with even chance."""
    t = since(base, at)
    slow = np.repeat(rng.random(len(t) // 20 + 2) < 0.5, 20)
    slow[:20] = True
    flips = slow[np.maximum(t, 0).astype(int)]
    return Change(slowed(base, np.where((t >= 0) & flips, 1 - amplitude, 1.0)))


def slowing(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
    """`amplitude` of the speed is lost in every 1,000 rows."""
    del rng
    return Change(slowed(base, np.maximum(1 - amplitude * np.maximum(since(base, at), 0) / 1_000, 0.05)))


def periodic(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
    """Five rows of every fifty lose `amplitude` of the speed."""
    del rng
    t = since(base, at)
    return Change(slowed(base, np.where((t >= 0) & (t % 50 < 5), 1 - amplitude, 1.0)))


def router(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
    """The entropy's distance from its best grows by `amplitude` of itself in 1,000 rows; the drops' logit follows its log."""
    del rng
    grown = amplitude * np.maximum(since(base, at), 0) / 1_000
    out: dict[str, Array] = {}
    for name in base.named("router_entropy"):
        values = base.values(name)
        best = float(np.nanmax(values))
        usual = max(best - float(np.nanmedian(values[max(0, at - LOOK) : at + 1])), 1e-6)
        out[name] = np.maximum(values - usual * grown, np.minimum(values, 0.0))
    for name in base.named("token_drop"):
        values = base.values(name)
        logit = np.log(np.clip(values, 1e-3, 0.999) / (1 - np.clip(values, 1e-3, 0.999)))
        more = 1 / (1 + np.exp(-logit - np.log1p(grown))) - 1 / (1 + np.exp(-logit))
        out[name] = np.minimum(values + more, np.maximum(values, 1.0))
    return Change(out)


def sdc(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
    """One logged gradient norm is 10 to the `amplitude` times too high, and nothing else ever shows."""
    del rng
    norms = [name for name in base.named("grad_norm") if not base.roles[name].group]
    logged = np.flatnonzero(np.isfinite(base.values(norms[0])))
    row = int(logged[min(np.searchsorted(logged, at), len(logged) - 1)])
    return Change(moved(base, norms, np.where(since(base, row) == 0, amplitude * np.log(10), 0.0)), lead=at - row)


def replayed(base: Base, at: int, back: int, rng: np.random.Generator) -> Change:
    """The run goes back by `back` rows after row `at` and does them again, with noise of up to 0.002 and a minute's pause."""
    back = min(back, at)
    rows = np.concatenate([np.arange(at + 1), np.arange(at + 1 - back, len(base.frame))])
    again = np.arange(len(rows)) > at
    seconds = base.values(base.clock)[rows]
    pause = seconds[at] - base.values(base.clock)[at - back] + 60.0
    out = {base.clock: seconds + again * pause} if back else {}
    twice = again & (np.arange(len(rows)) <= at + back)
    for name in base.named("loss", "grad_norm"):
        small = min(
            0.002, 0.25 * sigma(base.values(name), at)
        )  # open replays differ by 0.002, or little in a large batch
        out[name] = base.values(name)[rows] * np.exp(small * twice * rng.standard_normal(len(rows)))
    return Change(out, rows)


def rewind(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
    """The last `amplitude` rows are done again."""
    return replayed(base, at, int(amplitude), rng)


def resumed(effect: Callable[[str, Array, float], Array], *roles: str) -> Shape:
    """A resume 200 rows back, with an `effect` (role, rows since, amplitude) in sigmas, or doublings of a rate."""

    def shape(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
        change = replayed(base, at, 200 if amplitude else 0, rng)
        assert change.rows is not None
        t = np.arange(len(change.rows), dtype=float) - at - 1
        columns = dict(change.columns)
        for name in base.named(*roles):
            role = base.roles[name].role
            unit = np.log(2) if role == "learning_rate" else sigma(base.values(name), at)
            values = columns.get(name, base.values(name)[change.rows])
            columns[name] = values * np.exp(_after(t, effect(role, t, amplitude)) * unit)
        return Change(columns, change.rows)

    return shape


def hot_rate(role: str, t: Array, amplitude: float) -> Array:
    """The learning rate is 2 to the `amplitude` times too high; the loss bumps by half as many sigmas for 100 rows."""
    if role == "learning_rate":
        return np.full(len(t), amplitude)
    return 0.5 * amplitude * np.exp(-np.maximum(t, 0) / 100)


def lost_state(role: str, t: Array, amplitude: float) -> Array:
    """A bump of the loss that the second moments forget in 20 rows (beta2 = 0.95)."""
    del role
    return amplitude * np.exp(-np.maximum(t, 0) / 20)


def seen_data(role: str, t: Array, amplitude: float) -> Array:
    """The loss is lower for 400 rows, on data that it has seen."""
    del role
    return -amplitude * (t < 400)


def planned_rate(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
    """The learning rate steps by a factor of 2 to the `amplitude`, nothing else."""
    del rng
    return Change(moved(base, base.named("learning_rate"), amplitude * np.log(2) * (since(base, at) >= 0)))


def larger_batch(base: Base, at: int, amplitude: float, rng: np.random.Generator) -> Change:
    """A batch 1 + `amplitude` times as large: the loss's spread and the gradient norm fall by its root, steps take longer."""
    less = np.log1p(amplitude) / 2
    calm = spread(base, at, float(np.expm1(-less)), rng).columns
    fall = np.where(since(base, at) >= 0, np.exp(-less), 1.0)
    norms = {name: calm[name] * fall for name in base.named("grad_norm")}
    slow = slowed(base, np.where(since(base, at) >= 0, 1 / (1 + amplitude), 1.0))
    tokens = {name: base.values(name) for name in base.named("throughput", "mfu")}
    return Change({**calm, **norms, **slow, **tokens})
