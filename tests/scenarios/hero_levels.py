"""What moved in the hero run without stopping it: two norms that grew unseen, a mixture boundary, faster steps."""

from types import SimpleNamespace

import numpy as np
import polars as pl
from curves import batch_luck, first_visible, rising, since
from hero import (
    AFTER,
    ANNOUNCED,
    HISTORY,
    MIXTURE_SHIFT,
    POOLED,
    RAGGED,
    STARTED,
    adam_norm,
    pass_over,
    swap_is_no_page,
)
from runlog import ended, in_log_order
from scenario import GRAD, LOSS, NORM, SPEED, Assumed, Derived, Published, Scenario, event, truth

GATE = SimpleNamespace(
    leaves_ladder=Derived(3_902),  # 1 % of the run
    measured=Published(42_000),
    norm_measured=Published(229.9),
    shallow_measured=Derived(9),  # layers 1 to 5: 8 to 10
    deep_measured=Derived(1.75),  # 1.5 to 2
    norm_start=Assumed(10),
    first=Assumed(2_000),
)
RISE = SimpleNamespace(
    first=Published(58_014),
    switch=Published(81_716),
    last=Published(100_000),
    total_first=Published(0.28),
    total_last=Published(0.59),
    slope_ratio=Published(2.0),
    output_share_last=Published(0.95),
    history=Assumed(4_000),
)
MIXTURE = SimpleNamespace(boundary=Published(108_000), shift=MIXTURE_SHIFT, announced=ANNOUNCED)
GC = SimpleNamespace(saved=Published(0.0246), deployed=Assumed(60_000))


def _gate(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    first, stop = int(GATE.first), int(GATE.measured) + 10
    steps = np.arange(first, stop)
    grown = rising(steps, GATE.leaves_ladder, GATE.measured) if faulty else np.zeros(len(steps))
    layers = [GATE.shallow_measured] * 6 + [GATE.deep_measured] * 6  # 12 of the 48, the first six and six deep ones
    names = [*range(6), *range(12, 48, 6)]
    levels = dict(zip((f"stacked_blocks.{name}.attn.attn_gate" for name in names), layers, strict=True))
    levels["stacked_blocks.stacked.attn.attn_gate"] = float(GATE.norm_measured)
    params = {}
    for name, last in levels.items():
        start = GATE.norm_start / (1 if "stacked.attn" in name else np.sqrt(48))
        path = adam_norm(rng, steps, min(start, last), first)  # the ladder's; a deep layer stays on it
        params[name] = path + (last - min(start, last)) * grown
    luck = batch_luck(rng, len(steps))
    return pass_over(rng, luck, first, first, stop, STARTED, POOLED, params=params)


def rise(steps: np.ndarray) -> np.ndarray:
    """The total gradient norm: two straight lines, the second `slope_ratio` times as steep."""
    before, after = RISE.switch - RISE.first, RISE.last - RISE.switch
    slope = (RISE.total_last - RISE.total_first) / (before + RISE.slope_ratio * after)
    at_switch = RISE.total_first + slope * before
    return np.interp(steps, [RISE.first, RISE.switch, RISE.last], [RISE.total_first, at_switch, RISE.total_last])


def _rise(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    first, switch, stop = int(RISE.first - RISE.history), int(RISE.switch), int(RISE.last) + 10
    luck = batch_luck(rng, stop - first)
    rest = RISE.total_last * np.sqrt(1 - RISE.output_share_last)  # "the rest is flat"

    def part(start: int, end: int, started: float, way: SimpleNamespace, fresh: bool) -> pl.DataFrame:
        steps = np.arange(start, end)
        total = rise(steps) if faulty else np.full(len(steps), RISE.total_first)
        grads = {"total": total, "output_proj": np.sqrt(total**2 - rest**2)}
        return pass_over(rng, luck, first, start, end, started, way, grads=grads, fresh=fresh)

    if not faulty:
        return part(first, stop, STARTED, POOLED, False)
    old = part(first, switch, STARTED, POOLED, False)
    return in_log_order(old, part(switch, stop, ended(old) + 600, RAGGED, True))


def _mixture(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    boundary = int(MIXTURE.boundary)
    first, stop = boundary - HISTORY, boundary + 3 * AFTER
    luck = batch_luck(rng, stop - first)
    shift = MIXTURE.shift * since(np.arange(first, stop), boundary) if faulty else 0.0
    return pass_over(rng, luck, first, first, stop, STARTED, RAGGED, loss_factor=1 + shift)


def _gc(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    deployed = int(GC.deployed)
    first, stop = deployed - HISTORY, deployed + AFTER
    factor = 1 - GC.saved * since(np.arange(first, stop), deployed) if faulty else 1.0
    return pass_over(rng, batch_luck(rng, stop - first), first, first, stop, STARTED, POOLED, seconds_factor=factor)


_gate_steps = np.arange(int(GATE.first), int(GATE.measured))
_gate_growth = (GATE.norm_measured / GATE.norm_start - 1) * rising(_gate_steps, GATE.leaves_ladder, GATE.measured)
_rise_steps = np.arange(int(RISE.first), int(RISE.last))

SCENARIOS = (
    Scenario(
        "hero-attn-gate-growth",
        "incident 16: #8818, PR #8833, #8820",
        "attention gates outgrow the ladder from 1 % of the run; hidden in the total norm, loss normal",
        GATE,
        _gate,
        (
            truth(
                "norm_group_growth",
                "trend",
                NORM,
                GATE.leaves_ladder,
                GATE.measured,
                2,
                ("norm_group_runaway",),
                visible=first_visible(_gate_steps, _gate_growth, 0.02),
            ),
        ),
    ),
    Scenario(
        "hero-grad-norm-rise",
        "incident 17: #9148, #9149",
        "gradient norm doubles in 42,000 steps, twice as fast from the transport switch on; all of it in the output layer",
        RISE,
        _rise,
        (
            truth(
                "grad_norm_rise",
                "trend",
                GRAD,
                RISE.first,
                RISE.last,
                2,
                ("grad_norm_slow_rise",),
                visible=first_visible(_rise_steps, rise(_rise_steps) / RISE.total_first - 1, 0.07),
            ),
            truth("grad_norm_slope", "trend", GRAD, RISE.switch, RISE.last, 2, ("grad_norm_slow_rise",)),
            *swap_is_no_page(RISE.switch, RISE.switch + 2_000),
        ),
        (event("deploy", RISE.switch, "ragged expert transport"),),
    ),
    Scenario(
        "hero-mixture-108k",
        "incident 23: #9126, PR #9162",
        "the planned mixture boundary: the training loss steps, evaluations go on",
        MIXTURE,
        _mixture,
        (
            truth(
                "mixture",
                "level",
                LOSS,
                MIXTURE.boundary,
                MIXTURE.boundary + 2_000,
                1,
                ("data_mix_switch",),
                benign=True,
            ),
        ),
        (event("data_mix", MIXTURE.boundary, "planned mixture boundary", known_at=MIXTURE.announced),),
    ),
    Scenario(
        "hero-coordinated-gc",
        "incident 28: README of the hero experiment, #9205",
        "coordinated garbage collection is switched on and saves 2.46 % of the step time",
        GC,
        _gc,
        (truth("faster_steps", "level", SPEED, GC.deployed, GC.deployed + 2_000 - 1, 1, benign=True),),
        (event("deploy", GC.deployed, "coordinated garbage collection"),),
    ),
)
