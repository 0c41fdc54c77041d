"""BLOOM-176B by its public chronicle: the cascade of 2022-04-12, one slow GPU, a hang, and restarts that show nothing."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import polars as pl
from curves import ar1, batch_luck, durations, loss_noise, power_law
from runlog import ended, in_log_order, stretch
from scenario import ANY, GRAD, LOSS, SPEED, Assumed, Derived, Published, Scenario, event, truth

Array = np.ndarray

RUN = SimpleNamespace(
    sequences=Assumed(2_048),
    loss_at_31k=Published(2.199),
    grad=Published(0.242),
    tflops=Published(149.1),
    seconds=Derived(108),  # 100 steps take about 3 hours
    exponent=Assumed(0.06),
    rate=Assumed(6e-5),
)
CASCADE = SimpleNamespace(
    first=Published(31_214),
    peak=Published(31_219),
    recovered=Published(31_250),
    grad=[*map(Published, (0.242, 0.947, 2.39, 15.9, 145, 960, 353, 379, 650))],
    loss=[*map(Published, (2.199, 2.220, 2.595, 2.242, 2.345, 5.098, 3.49, 3.21, 2.80))],
    tau=Assumed(8),
)
SLOW = SimpleNamespace(first=Published(42_783), tflops=[*map(Published, (149.1, 147.6, 142.3, 141.1))])
HANG = SimpleNamespace(step=Published(45_000), seconds=Derived(10_800))  # hangs of 3 hours at night are told, not which
RESYNC = SimpleNamespace(restarts=[*map(Published, (17_235, 20_448, 21_680))], pause=Assumed(1_800))
STARTED = 1_649_000_000.0  # April 2022
LOSS_KEY, GRAD_KEY, SPEED_KEY = "lm-loss-training/lm loss", "grad-norm/grad-norm", "TFLOPs"
TIME_KEY = "iteration-time/iteration-time"


def pass_over(
    rng: np.random.Generator, steps: Array, started: float, luck: Array, tflops: Array | float
) -> pl.DataFrame:
    """Rows of one process under Megatron-DeepSpeed's names, every step."""
    size = len(steps)
    seconds = durations(rng, size, RUN.seconds * RUN.tflops / tflops)
    curve = power_law(steps, RUN.loss_at_31k, CASCADE.first, RUN.exponent)
    columns = {
        LOSS_KEY: curve * np.exp(loss_noise(rng, luck, RUN.sequences)),
        GRAD_KEY: RUN.grad * np.exp(ar1(rng, size)),
        "learning-rate/learning-rate": 1e-6 + (RUN.rate - 1e-6) * 0.5 * (1 + np.cos(np.pi * steps / 200_000)),
        "batch-size/batch-size": np.full(size, float(RUN.sequences)),
        TIME_KEY: seconds,
        SPEED_KEY: RUN.seconds * RUN.tflops / seconds,
    }
    return stretch(steps, started, seconds, columns)


def _around(rng: np.random.Generator, step: float, before: int, after: int, tflops: float = RUN.tflops) -> pl.DataFrame:
    steps = np.arange(int(step) - before, int(step) + after)
    return pass_over(rng, steps, STARTED, batch_luck(rng, len(steps)), tflops)


def _cascade(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    rows = _around(rng, CASCADE.first, 6_000, 2_000)
    if not faulty:
        return rows
    size = len(CASCADE.grad)
    at, end = 6_000, 6_000 + int(CASCADE.recovered - CASCADE.first)
    loss, grad = rows[LOSS_KEY].to_numpy().copy(), rows[GRAD_KEY].to_numpy().copy()
    fade = np.exp(-np.arange(1, end - at - size + 1) / CASCADE.tau)
    loss[at + size : end] *= np.exp(np.log(CASCADE.loss[-1] / RUN.loss_at_31k) * fade)
    grad[at + size : end] *= np.exp(np.log(CASCADE.grad[-1] / RUN.grad) * fade)
    loss[at : at + size], grad[at : at + size] = CASCADE.loss, CASCADE.grad
    return rows.with_columns(pl.Series(LOSS_KEY, loss), pl.Series(GRAD_KEY, grad))


def _slow(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    steps = np.arange(int(SLOW.first) - 6_000, int(SLOW.first) + 1_500)
    tflops = np.full(len(steps), float(RUN.tflops))
    if faulty:
        tflops[6_000:] = SLOW.tflops[-1]
    rows = pass_over(rng, steps, STARTED, batch_luck(rng, len(steps)), tflops)
    if not faulty:
        return rows
    speed, seconds = rows[SPEED_KEY].to_numpy().copy(), rows[TIME_KEY].to_numpy().copy()
    speed[6_000:6_004] = SLOW.tflops
    seconds[6_000:6_004] = RUN.seconds * RUN.tflops / speed[6_000:6_004]
    times = pl.Series("_timestamp", STARTED + np.cumsum(seconds))
    return rows.with_columns(pl.Series(SPEED_KEY, speed), pl.Series(TIME_KEY, seconds), times)


def _hang(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    rows = _around(rng, HANG.step, 6_000, 1_500)
    late = pl.when(pl.col("_step") > int(HANG.step)).then(float(HANG.seconds) if faulty else 0.0).otherwise(0.0)
    return rows.with_columns(pl.col("_timestamp") + late)


def _resync(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    first, stop = int(RESYNC.restarts[0]) - 3_000, int(RESYNC.restarts[-1]) + 1_500
    luck = batch_luck(rng, stop - first)
    cuts = [first, *map(int, RESYNC.restarts), stop] if faulty else [first, stop]
    parts: list[pl.DataFrame] = []
    for start, end in pairwise(cuts):
        steps = np.arange(start, end)
        started = ended(parts[-1]) + RESYNC.pause if parts else STARTED
        parts.append(pass_over(rng, steps, started, luck[steps - first], RUN.tflops))
    return in_log_order(*parts)


SCENARIOS = (
    Scenario(
        "bloom-cascade",
        "BLOOM-176B chronicle, 2022-04-12",
        "gradient norm x4, x10, x66, x600, x4,000 in five steps, the loss doubles for one step, back after 30",
        CASCADE,
        _cascade,
        (
            truth(
                "spike",
                "spike",
                LOSS | GRAD,
                CASCADE.first + 1,
                CASCADE.recovered + 100,
                2,
                ("loss_spike_fast", "grad_norm_spike"),
            ),
        ),
    ),
    Scenario(
        "bloom-slow-gpu",
        "BLOOM-176B chronicle, 2022-04-28",
        "149.1 to 141.1 TFLOPs within three steps for one slow GPU, and stays",
        SLOW,
        _slow,
        (truth("slower", "level", SPEED, SLOW.first + 1, SLOW.first + 1_499, 2, ("throughput_level_shift",)),),
    ),
    Scenario(
        "bloom-hang-45000",
        "BLOOM-176B chronicle, hang at 45,000",
        "no row for three hours, then on from the next step",
        HANG,
        _hang,
        (truth("hang", "stall", ANY, HANG.step, HANG.step + 100, 3, ("hang", "hang_and_restart", "step_pause")),),
    ),
    Scenario(
        "bloom-layernorm-resync",
        "BLOOM-176B chronicle, restarts at 17,235, 20,448 and 21,680",
        "replicas had drifted apart for weeks and no metric shows it: only three announced restarts are there to see",
        RESYNC,
        _resync,
        tuple(
            truth("restart", "stall", ANY, step - 1, step + 100, 1, ("step_pause", "step_rewind_replay"), benign=True)
            for step in RESYNC.restarts
        ),
        tuple(event("restart", step, "layer norms synchronised between replicas") for step in RESYNC.restarts),
    ),
)
