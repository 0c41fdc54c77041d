"""Faults put into recorded runs (the table FAULTS), and the cases that come of it.

    frame, truth, events = inject(base, "level_shift", 2.0, seed=3)

Where a fault lies and what shape it takes goes by fault and seed; its amplitude changes the size only, so the rungs of a ladder
are the same fault, larger. Rows before the onset equal the base run to the bit.

Amplitudes are in sigmas of the metric's own noise where the table says so: 0.1 to 2 % of the loss of a large run, whose
noise is about 0.5 %, are 0.2 to 4 sigmas.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from zlib import crc32

import numpy as np
import polars as pl
import shapes
from base import Array, Base, is_log, sigma
from cases import Case, Truth
from numpy.typing import NDArray

SLACK = 100  # steps after the effect is over at which an alarm is still an answer
STAYS = 512  # steps after a lasting change became visible at which one is
PLACES = (0.1, 0.95)
SPEED = ("step_time", "throughput", "mfu")


@dataclass(frozen=True)
class Fault:
    """A row of the table. `lasts`: passes, stays (at a new level) or goes_on (grows, comes back). An event makes a twin."""

    kind: str
    roles: tuple[str, ...]  # those of an answer
    unit: str  # of the amplitude
    ladder: tuple[float, ...]
    shape: shapes.Shape
    lasts: str
    severity: int
    patterns: tuple[str, ...] = ()
    event: str = ""
    history: int = 0  # rows before it, and behind it, without which nothing can be known of it
    room: int = 0


_level = partial(Fault, kind="level", unit="sigma", lasts="stays", severity=2)
_speed = partial(Fault, kind="level", roles=SPEED, unit="part of the speed", lasts="stays", severity=2)
LOSS = ("loss", "grad_norm")

FAULTS: dict[str, Fault] = {
    "spike": Fault("spike", LOSS, "sigma", (3, 6, 8, 12, 25), shapes.spike, "passes", 2, ("loss_spike_fast",)),
    "partial_recovery": Fault(
        "level", (*LOSS, "eval_loss"), "sigma", (0.5, 1, 2), shapes.partial_recovery, "stays", 2, ("loss_spike_partial",)
    ),
    "divergence": Fault(
        "divergence", (*LOSS, "eval_loss"), "% in 10 steps", (0.5, 2, 5), shapes.divergence, "goes_on", 3, ("loss_divergence",)
    ),
    "level_shift": _level(
        roles=("loss",), ladder=(0.5, 1, 1.5, 2, 4), shape=shapes.level("loss"), history=1_024,
        patterns=("loss_level_shift", "train_only_phase_shift"),
    ),
    "level_held": _level(
        roles=("loss",), ladder=(1.5, 2, 4), lasts="passes", severity=1, shape=shapes.level("loss", length=30), history=1_024
    ),
    "drift_gradient": Fault(
        "trend", ("grad_norm",), "sigma in 1,000 steps", (1, 2, 4), shapes.drift_gradient, "goes_on", 1, ("grad_norm_slow_rise",)
    ),
    "drift_slow": Fault(
        "trend", ("grad_norm",), "% in 10,000 steps", (10, 20, 50), shapes.drift_slow, "goes_on", 1, ("grad_norm_slow_rise",),
        history=1_024, room=10_000,
    ),
    "drift_parameters": Fault(
        "trend", ("param_norm",), "% in 10,000 steps", (2, 10, 50), shapes.drift_parameters, "goes_on", 1,
        ("norm_group_runaway", "norm_invariant_broken"),
    ),
    "slope_change": Fault(
        "trend", ("param_norm",), "more of the slope", (0.5, 1, 2), shapes.slope, "goes_on", 1, ("norm_group_runaway",)
    ),
    "variance": Fault(
        "variance", LOSS, "more of the spread", (0.25, 0.5, 1, 2), shapes.spread, "goes_on", 1, history=1_536, room=1_024
    ),
    "autocorrelation": Fault("variance", LOSS, "autocorrelation", (0.3, 0.6, 0.9), shapes.memory, "goes_on", 1),
    "nan_burst": Fault("nonfinite", LOSS, "steps", (1, 5, 50), shapes.nan_burst, "passes", 3, ("nan_burst",)),
    "stall": Fault(
        "stall", (*SPEED, "loss", "other"), "minutes", (5, 20, 60), shapes.stall, "passes", 2,
        ("hang", "step_pause", "data_stall", "hang_and_restart"),
    ),
    "rewind": Fault("rewind", ("other",), "steps", (50, 200, 500), shapes.rewind, "passes", 0, ("step_rewind_replay",)),
    "resume_hot_rate": Fault(
        "schedule", ("learning_rate", "loss"), "doublings of the rate", (1, 2, 4),
        shapes.resumed(shapes.hot_rate, "learning_rate", "loss"), "stays", 2, ("lr_schedule_reset",),
    ),
    "resume_lost_state": Fault(
        "spike", ("loss", "update_norm"), "sigma", (2, 4, 8), shapes.resumed(shapes.lost_state, "loss"), "passes", 2,
        ("optimizer_state_lost",),
    ),
    "resume_seen_data": _level(
        roles=("loss",), ladder=(0.5, 1, 2), lasts="passes", shape=shapes.resumed(shapes.seen_data, "loss"),
        patterns=("repeated_data_after_resume",),
    ),
    "duplicate_data": _level(
        roles=("loss",), ladder=(0.5, 1, 2), lasts="passes", shape=shapes.level("loss", length=400, sign=-1.0)
    ),
    "throughput_level": _speed(ladder=(0.05, 0.15, 0.4), shape=shapes.slower, patterns=("throughput_level_shift",)),
    "throughput_held": _speed(ladder=(0.05, 0.15, 0.4), lasts="passes", severity=1, shape=shapes.slow_for(20)),
    "throughput_bimodal": _speed(ladder=(0.15, 0.4), lasts="goes_on", shape=shapes.bimodal),
    "throughput_ramp": _speed(
        kind="trend", unit="part of the speed in 1,000 steps", ladder=(0.05, 0.15, 0.4), lasts="goes_on", shape=shapes.slowing
    ),
    "throughput_periodic": _speed(ladder=(0.15, 0.33, 0.67), lasts="goes_on", shape=shapes.periodic),
    "router": Fault(
        "trend", ("router_entropy", "token_drop"), "deficit grown in 1,000 steps", (10, 30, 100), shapes.router, "goes_on", 3,
        ("router_collapse",),
    ),
    "sdc": Fault("spike", ("grad_norm",), "decades", (1, 2, 3), shapes.sdc, "passes", 1, ("grad_norm_spike",)),
    "twin_data_mix": _level(roles=LOSS, ladder=(1, 2, 4), shape=shapes.level("loss"), event="data_mix"),
    "twin_batch_size": Fault(
        "variance", (*LOSS, *SPEED), "more of the batch", (1, 3), shapes.larger_batch, "stays", 2, event="batch_size"
    ),
    "twin_lr_schedule": Fault(
        "schedule", ("learning_rate",), "doublings of the rate", (-2, -1, 1), shapes.planned_rate, "stays", 2, event="lr_schedule"
    ),
    "twin_context": _speed(ladder=(0.15, 0.4), shape=shapes.slower, event="sequence_length"),
    "twin_deploy": Fault("stall", (*SPEED, "loss", "other"), "minutes", (5, 20), shapes.stall, "passes", 2, event="deploy"),
}  # fmt: skip


def possible(base: Base, fault: str) -> bool:
    """Whether a base run logs something that the fault shows in."""
    what = FAULTS[fault]
    rows = what.history + what.room
    return fault == "rewind" or (
        len(base.frame) >= 1.1 * rows and any(not base.roles[name].group for name in base.named(*what.roles))
    )


def place(base: Base, fault: str, seed: int) -> tuple[int, np.random.Generator]:
    """The row at which a fault begins, and the chance that shapes it; the same at all amplitudes."""
    rng = np.random.default_rng([seed, crc32(fault.encode())])
    size = len(base.frame)
    first, last = max(PLACES[0] * size, FAULTS[fault].history), min(PLACES[1] * size, size - FAULTS[fault].room)
    return int(rng.uniform(first, max(first, last))), rng


def inject(
    base: Base, fault: str, amplitude: float, seed: int
) -> tuple[pl.DataFrame, Truth, tuple[Mapping[str, object], ...]]:
    """The run with the fault in it, what is true of it, and the event that announced it, if one did."""
    what = FAULTS[fault]
    at, rng = place(base, fault, seed)
    change = what.shape(base, at, amplitude, rng)
    frame = _rebuilt(base, change)
    steps = base.frame[base.step].to_numpy()
    back = change.rows is not None
    first = (int(change.rows[at + 1]) if back and at + 1 < len(change.rows) else at) - change.lead
    shown = _shown(base, change, at) if amplitude else np.empty(0, np.int64)
    visible = max(int(shown[0]) if len(shown) else first, first)
    over = int(shown[-1]) if len(shown) else first
    last = len(steps) - 1
    end = {"goes_on": last, "stays": visible + STAYS, "passes": over + SLACK}[what.lasts]
    end = max(end, at + SLACK) if back else end  # a rewind may be told at the step that had been reached
    truth = Truth(
        fault, what.kind, frozenset(what.roles), int(steps[first]), int(steps[visible]), int(steps[min(end, last)]),
        what.severity, what.patterns, bool(what.event), float(amplitude),
    )  # fmt: skip
    events: tuple[dict[str, object], ...] = ()
    if what.event:
        known = int(steps[max(first - 10, 0)])
        events = ({"kind": what.event, "step": truth.onset, "recorded_at_step": known, "note": "planned"},)
    return frame, truth, events


def _shown(base: Base, change: shapes.Change, at: int) -> NDArray[np.int64]:
    """Rows of the base at which a changed metric is more than one sigma from what it was; of an effect that never is
    so large, those at which it has half its size."""
    far = np.zeros(len(base.frame))
    for name, new in change.columns.items():
        if name == base.clock:
            continue
        old = base.values(name)
        where = np.arange(len(old)) if change.rows is None else change.rows
        distance = np.abs(_distance(old[where], new)) / sigma(old, max(at - change.lead, 1))
        np.maximum.at(far, where, np.nan_to_num(distance, posinf=1e9))
    return np.flatnonzero(far > min(1.0, float(far.max()) / 2))


def _distance(old: Array, new: Array) -> Array:
    """On the metric's own scale; infinite where a value was lost, 0 where there was none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.log(new / old) if is_log(old) else new - old
    return np.where(np.isfinite(old), np.where(np.isnan(new), np.inf, far), 0.0)


def _rebuilt(base: Base, change: shapes.Change) -> pl.DataFrame:
    """The frame with the changed columns in their own types, null where the base has null."""
    frame = base.frame if change.rows is None else base.frame[change.rows]
    new = []
    for name, values in change.columns.items():
        old = frame[name]
        column = pl.Series(name, values).cast(old.dtype)
        same = pl.Series(values == old.cast(pl.Float64).fill_null(np.nan).to_numpy()) | old.is_null()
        new.append(old.zip_with(same, column))
    return frame.with_columns(new)


def write(base: Base, fault: str, amplitude: float, seed: int, folder: Path) -> Case:
    """The case with its log as a Parquet file in `folder`."""
    frame, truth, events = inject(base, fault, amplitude, seed)
    name = f"{fault}-{amplitude:g}-{seed}"
    log = folder / f"{name}.parquet"
    frame.write_parquet(log, compression="lz4")
    truths: tuple[Truth, ...] = (truth,)
    if fault.startswith("resume_") and amplitude:
        again = FAULTS["rewind"]
        end = min(truth.onset + 200 + SLACK, int(base.frame[base.step][-1]))
        truths += (replace(truth, fault="rewind", kind="rewind", roles=frozenset(again.roles), visible=truth.onset,
                           end=end, severity=again.severity, patterns=again.patterns, amplitude=200.0),)  # fmt: skip
    return Case(f"{base.name}/{name}", "injected", base.half, log, truths, events, base.seconds_per_step)
