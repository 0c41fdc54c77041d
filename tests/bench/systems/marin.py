"""Marin's Grafana rules for its hero run, with its constants and (`marin_scaled`) with the same levels relative to
the run.

Source: marin-community/marin, infra/grafana/src/hero_health.py and loss_spikes.py (commit 0068b36c), docs/ops/
hero-run-health-alerts.md, training-loss-spike-alert.md and training-stall-alert-contract.md. Evaluated every 60 s; a
check that is true pends for 5 min and then alerts; one alert per run and reason until a check is false (the latch).

| reason | condition | says |
|---|---|---|
| spiking | lowest loss of 5 min > mean + max(0.05, 6 sigma) of the 55 min before; 20 and 5 samples at least | 3 |
| not_finite | mean or peak loss of the 5 min is not finite | 3 |
| loss_jump | lowest loss of 5 min > 1.0 above the lowest of the 55 min before, in one attempt, and neither of the two above | 3 |
| grad_norm_high | newest > 2.0 | 3 |
| steps_skipped | 3 or more in 15 min | 3 |
| telemetry_gone | nothing logged for more than 10 min | 3 |
| progress_stalled | no loss for 15 min | 3 |
| token_drops | newest > 0.07 | 2 |
| router_entropy | newest < 5.92 | 2 |
| router_bias | newest bound > 400 from zero | 2 |
| throughput_low, mfu_low | more than half of 15 min below 2.0M tokens/s, 15 (percent); 10 samples at least | 2 |
| eval_regressed | newest, within 30 min, > the one before it, within 24 h | 2 |

Pages (hero-run route) have severity 3, the Slack route 2. Newest values count for 15 min. All but spiking, not_finite
and the two silences look at the newest attempt only and need a row within 10 min. sigma is the sample's. Everything
ends with the last row: a finished run pages for nothing. Not in a log, so not here: the scheduler's states and
retries, the 45 min without a first step. A log's rows stand for the `phase` heartbeat. Every row is read, not every
tenth step only, as Marin's exporter sends most metrics.

The levels are those of the hero run (384 experts: uniform entropy 5.951; about 2.7M tokens/s; MFU 20.5; gradient norm
0.28), so `marin` means something on runs of its scale only. `marin_scaled` takes the same shares of the run's own
level: entropy 5.92/5.951 of its highest value in the first hour (the number of experts is not in a log); throughput
2.0/2.7 and MFU 15/20.5 of the median of the first hour; gradient norm 2.0/0.28 times the median of the first hour.
These four say nothing within that hour. The other levels are the same.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import polars as pl
from cases import INVESTIGATE, PAGE, Alarm, Case

from systems.samples import Line, in_order, main_line, samples

EVERY, PENDING = 60.0, 300.0
RECENT, BASELINE, HEALTH, GONE, STALLED, HOUR, DAY = 300.0, 3600.0, 900.0, 600.0, 900.0, 3600.0, 86_400.0
EVAL_FRESH = 1800.0
SIGMAS, LEAST_RISE, JUMP = 6.0, 0.05, 1.0
DROPS, BIAS, SKIPPED = 0.07, 400.0, 3
LEVELS = {"grad_norm": 2.0, "router_entropy": 5.92, "throughput": 2.0e6, "mfu": 15.0}
HERO = {"grad_norm": 0.28, "router_entropy": 5.951, "throughput": 2.7e6, "mfu": 20.5}

Level = Callable[[Line], tuple[float, float]]  # the level, and the moment from which it is known


class Check(NamedTuple):
    """One reason of one rule at every evaluation."""

    line: Line
    severity: int
    kind: str
    hot: np.ndarray


class Clock(NamedTuple):
    """The evaluations, and the newest row before each: its moment, attempt and step."""

    now: np.ndarray
    heard: np.ndarray
    attempt: np.ndarray
    step: np.ndarray


def marin(case: Case) -> list[Alarm]:
    """The rules with the hero run's levels."""

    def level(line: Line) -> tuple[float, float]:
        if line.role == "throughput" and line.unit != "tokens/s":
            return np.nan, np.inf
        share = 0.01 if line.role == "mfu" and line.unit != "percent" else 1.0  # a fraction, where Marin logs percent
        return share * LEVELS[line.role], -np.inf

    return _alarms(samples(case), level)


def marin_scaled(case: Case) -> list[Alarm]:
    """The rules with levels relative to the run's own first hour."""

    def level(line: Line) -> tuple[float, float]:
        hour = line.value[(line.seconds < HOUR) & np.isfinite(line.value)]
        own = np.nan if not len(hour) else hour.max() if line.role == "router_entropy" else np.median(hour)
        return LEVELS[line.role] / HERO[line.role] * own, HOUR

    return _alarms(samples(case), level)


def _alarms(frame: pl.DataFrame, level: Level) -> list[Alarm]:
    clock = _evaluations(frame)
    if not len(clock.now):
        return []
    out = []
    for check in _checks(frame, clock, level):
        for at in _fires(check.hot):
            step = int(clock.step[at])
            out.append(Alarm(step, step, check.line.name, check.line.role, check.severity, check.kind))
    return in_order(out)


def _evaluations(frame: pl.DataFrame) -> Clock:
    rows = frame.select("seconds", "attempt", "step").unique(maintain_order=True)
    seconds, attempt, step = (rows[key].to_numpy() for key in ("seconds", "attempt", "step"))
    now = np.arange(EVERY, seconds[-1] + EVERY, EVERY) if len(rows) else np.empty(0)
    now = now[now <= seconds[-1]] if len(rows) else now
    newest = np.searchsorted(seconds, now, side="left") - 1
    return Clock(now, seconds[newest], attempt[newest], step[newest])


def _fires(hot: np.ndarray) -> np.ndarray:
    """Evaluations at which a check has been true for 5 min, once until it is false."""
    index = np.arange(len(hot))
    since = np.maximum.accumulate(np.where(hot, -1, index))
    return np.flatnonzero(hot & (index - since - 1 == round(PENDING / EVERY)))


def _checks(frame: pl.DataFrame, clock: Clock, level: Level) -> Iterator[Check]:
    training = clock.now - clock.heard <= GONE
    if loss := main_line(frame, "loss", "loss"):
        yield from _loss_checks(loss, clock, training)
    if norm := main_line(frame, "grad_norm", "total"):
        most, known = level(norm)
        newest = _newest(norm, clock)
        yield Check(norm, PAGE, "level", training & (clock.now >= known) & (newest > most))
    if skipped := main_line(frame, "skipped_steps"):
        low, high = _window(skipped, clock, HEALTH, 0, same_attempt=True)
        yield Check(skipped, PAGE, "level", training & (_sums(skipped.value, low, high) >= SKIPPED))
    if drops := main_line(frame, "token_drop"):
        yield Check(drops, INVESTIGATE, "level", training & (_newest(drops, clock) > DROPS))
    if entropy := main_line(frame, "router_entropy"):
        least, known = level(entropy)
        newest = _newest(entropy, clock)
        yield Check(entropy, INVESTIGATE, "level", training & (clock.now >= known) & (newest < least))
    bounds = [main_line(frame, "router_bias", like) for like in ("bias_max", "bias_min")]
    if bounds[0] and bounds[1]:
        far = [np.abs(np.nan_to_num(_newest(line, clock))) > BIAS for line in bounds if line]
        yield Check(bounds[0], INVESTIGATE, "level", training & (far[0] | far[1]))
    for speed in (main_line(frame, "throughput", "token"), main_line(frame, "mfu")):
        if speed:
            least, known = level(speed)
            yield Check(
                speed, INVESTIGATE, "level", training & (clock.now >= known) & _mostly_below(speed, clock, least)
            )
    if evals := main_line(frame, "eval_loss", "macro_loss"):
        yield Check(evals, INVESTIGATE, "level", training & _regressed(evals, clock))


def _loss_checks(loss: Line, clock: Clock, training: np.ndarray) -> Iterator[Check]:
    """The loss of all attempts in the hour for the spike rule, of the newest attempt for the jump."""
    spiking, broken, _ = _loss_windows(loss, clock, same_attempt=False)
    yield Check(loss, PAGE, "spike", spiking)
    yield Check(loss, PAGE, "nonfinite", broken)
    spiking, broken, rise = _loss_windows(loss, clock, same_attempt=True)
    yield Check(loss, PAGE, "level", training & ~spiking & ~broken & (rise > JUMP))
    yield Check(loss, PAGE, "stall", clock.now - clock.heard > GONE)
    progress = loss.seconds[np.maximum(np.searchsorted(loss.seconds, clock.now, side="left") - 1, 0)]
    yield Check(loss, PAGE, "stall", clock.now - progress >= STALLED)


def _loss_windows(loss: Line, clock: Clock, *, same_attempt: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Spiking, not finite, and the rise of the floor (NaN where the windows are too small for any verdict)."""
    start, middle = _window(loss, clock, BASELINE, RECENT, same_attempt=same_attempt)
    low, end = _window(loss, clock, RECENT, 0, same_attempt=same_attempt)
    warm = (middle - start >= 20) & (end - low >= 5)
    broken = warm & (_sums(~np.isfinite(loss.value), low, end) > 0)
    size = np.maximum(middle - start, 1)
    with np.errstate(invalid="ignore", over="ignore"):
        finite = loss.value[np.isfinite(loss.value)]
        centred = loss.value - (np.median(finite) if len(finite) else 0.0)
        mean = _sums(centred, start, middle) / size
        variance = (_sums(centred**2, start, middle) - size * mean**2) / np.maximum(size - 1, 1)
        sigma = np.nan_to_num(np.sqrt(np.maximum(variance, 0)), posinf=0)
        floor, before = _least(centred, low, end), _least(centred, start, middle)
        spiking = warm & ~broken & (floor > mean + np.maximum(LEAST_RISE, SIGMAS * sigma))
        rise = np.where(warm & np.isfinite(mean), floor - before, np.nan)
    return spiking, broken, rise


def _window(
    line: Line, clock: Clock, reach: float, until: float, *, same_attempt: bool
) -> tuple[np.ndarray, np.ndarray]:
    """First and end index of the samples in [now - reach, now - until) at every evaluation."""
    low = np.searchsorted(line.seconds, clock.now - reach, side="left")
    high = np.searchsorted(line.seconds, clock.now - until, side="left")
    if same_attempt:
        low = np.maximum(low, np.searchsorted(line.attempt, clock.attempt, side="left"))
    return np.minimum(low, high), high


def _sums(value: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return _reduced(np.add, value, 0.0, low, high)


def _least(value: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The minimum of each window, NaN passed over; infinity for an empty one."""
    return _reduced(np.fmin, value, np.inf, low, high)


def _reduced(how: np.ufunc, value: np.ndarray, empty: float, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    if not len(low):
        return np.empty(0)
    ends = np.column_stack([low, high]).ravel()
    with np.errstate(invalid="ignore", over="ignore"):
        out = how.reduceat(np.append(value.astype(float), empty), ends)[::2]
    return np.where(high > low, out, empty)


def _newest(line: Line, clock: Clock, fresh: float = HEALTH) -> np.ndarray:
    """The newest value of the newest attempt; NaN where there is none within `fresh`, which no level is passed by."""
    low, high = _window(line, clock, fresh, 0, same_attempt=True)
    return np.where(high > low, line.value[np.maximum(high - 1, 0)], np.nan)


def _mostly_below(line: Line, clock: Clock, least: float) -> np.ndarray:
    low, high = _window(line, clock, HEALTH, 0, same_attempt=True)
    return (high - low >= 10) & (2 * _sums(line.value < least, low, high) > high - low)


def _regressed(line: Line, clock: Clock) -> np.ndarray:
    first, high = _window(line, clock, DAY, 0, same_attempt=True)
    before = np.where(high - first >= 2, line.value[np.maximum(high - 2, 0)], np.nan)
    newest = _newest(line, clock, EVAL_FRESH)
    return np.isfinite(newest) & np.isfinite(before) & (newest > before)
