"""What happened to the hero run: hangs and replays, a transport swap, a mixture boundary, two norms that grew unseen."""

from types import SimpleNamespace

import numpy as np
import polars as pl
from curves import batch_luck, first_visible, rising, since
from hero import POOLED, RAGGED, STARTED, adam_norm, pass_over
from runlog import ended, in_log_order
from scenario import ANY, DROPS, GRAD, LOSS, NORM, SPEED, Assumed, Derived, Published, Scenario, event, truth

HISTORY, AFTER = 6_000, 2_000
HANG_PATTERNS = ("hang", "step_rewind_replay")

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
SWAP = SimpleNamespace(
    swapped=Published(54_000),
    first_hang=Published(54_071),
    second_hang=Published(54_001),
    parent_reached=Published(54_262),
    hang_seconds=Published(3_600),  # the watchdog's hour of grace
)
HANG = SimpleNamespace(swapped=Published(81_716), hang=Published(81_759), hang_seconds=Published(3_600))
FABRIC = SimpleNamespace(
    fault=Published(65_069), lost_steps=Published(125), silent_seconds=Published(900), lost_seconds=Published(1_200)
)
LINK = SimpleNamespace(back_to=Published(83_305), reached=Published(83_487), hidden_seconds=Published(3_300))
RACE = SimpleNamespace(
    first_hang=Published(107_501),
    mixture=Published(108_000),
    second_hang=Published(108_711),
    hang_seconds=Published(3_600),
    hourly_steps=Derived(214),  # 3,600 s at 16.8 s a step
    mixture_shift=Assumed(-0.02),
)
MIXTURE = SimpleNamespace(boundary=Published(108_000), shift=Assumed(-0.02), announced=Assumed(107_000))
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


def _swap(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    swapped, reached = int(SWAP.swapped), int(SWAP.parent_reached)
    first, stop = swapped - HISTORY, reached + AFTER
    luck = batch_luck(rng, stop - first)
    if not faulty:
        return pass_over(rng, luck, first, first, stop, STARTED, POOLED)
    old = pass_over(rng, luck, first, first, reached, STARTED, POOLED)
    one = pass_over(rng, luck, first, swapped, int(SWAP.first_hang) + 1, ended(old) + 600, RAGGED, fresh=True)
    later = ended(one) + SWAP.hang_seconds
    two = pass_over(rng, luck, first, swapped, int(SWAP.second_hang) + 1, later, RAGGED, fresh=True)
    later = ended(two) + SWAP.hang_seconds
    return in_log_order(old, one, two, pass_over(rng, luck, first, reached, stop, later, POOLED, fresh=True))


def _hang(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    swapped, hang = int(HANG.swapped), int(HANG.hang)
    first, stop = swapped - HISTORY, hang + AFTER
    luck = batch_luck(rng, stop - first)
    if not faulty:
        return pass_over(rng, luck, first, first, stop, STARTED, POOLED)
    old = pass_over(rng, luck, first, first, swapped, STARTED, POOLED)
    hung = pass_over(rng, luck, first, swapped, hang + 1, ended(old) + 600, RAGGED, fresh=True)
    later = ended(hung) + HANG.hang_seconds
    return in_log_order(old, hung, pass_over(rng, luck, first, swapped, stop, later, RAGGED, fresh=True))


def _fabric(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    fault = int(FABRIC.fault)
    first, stop = fault - HISTORY, fault + AFTER
    luck = batch_luck(rng, stop - first)
    if not faulty:
        return pass_over(rng, luck, first, first, stop, STARTED, POOLED)
    lost = pass_over(rng, luck, first, first, fault + 1, STARTED, POOLED)
    again, later = fault - int(FABRIC.lost_steps), ended(lost) + FABRIC.lost_seconds
    return in_log_order(lost, pass_over(rng, luck, first, again, stop, later, POOLED, fresh=True))


def _link(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    reached = int(LINK.reached)
    first, stop = reached - HISTORY, reached + AFTER
    luck = batch_luck(rng, stop - first)
    if not faulty:
        return pass_over(rng, luck, first, first, stop, STARTED, RAGGED)
    old = pass_over(rng, luck, first, first, reached + 1, STARTED, RAGGED)
    # this tracker refuses rows of steps that it has: the replay shows as time only
    later = ended(old) + LINK.hidden_seconds
    return in_log_order(old, pass_over(rng, luck, first, reached + 1, stop, later, RAGGED))


def _race(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    one, two, mixture = int(RACE.first_hang), int(RACE.second_hang), int(RACE.mixture)
    first, stop = one - HISTORY, two + AFTER
    luck = batch_luck(rng, stop - first)

    def part(start: int, end: int, started: float, fresh: bool) -> pl.DataFrame:
        shift = RACE.mixture_shift * since(np.arange(start, end), mixture) if faulty else 0.0
        return pass_over(rng, luck, first, start, end, started, RAGGED, loss_factor=1 + shift, fresh=fresh)

    if not faulty:
        return part(first, stop, STARTED, False)
    a = part(first, one + 1, STARTED, False)
    b = part(one - int(RACE.hourly_steps), two + 1, ended(a) + RACE.hang_seconds, True)
    return in_log_order(a, b, part(mixture, stop, ended(b) + RACE.hang_seconds, True))


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


def _swap_is_no_page(swapped: float, end: float) -> tuple:
    """The levels that the swap was meant to move."""
    return (
        truth("transport_swap", "level", DROPS, swapped, end, 1, ("transport_backend_switch",), benign=True),
        truth("transport_swap", "level", SPEED, swapped, end, 1, ("transport_backend_switch",), benign=True),
        truth("transport_swap", "level", LOSS, swapped, end, 1, ("transport_backend_switch",), benign=True),
    )


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
            *_swap_is_no_page(RISE.switch, RISE.switch + 2_000),
        ),
        (event("deploy", RISE.switch, "ragged expert transport"),),
    ),
    Scenario(
        "hero-ragged-swap-54k",
        "incident 18: #8506, #8870",
        "drops, MFU, step time and loss step as announced; then hangs at 54,071 and 54,001 and the old run goes on",
        SWAP,
        _swap,
        (
            *_swap_is_no_page(SWAP.swapped, SWAP.first_hang),
            truth(
                "planned_rewind",
                "rewind",
                ANY,
                SWAP.swapped,
                SWAP.parent_reached,
                1,
                ("step_rewind_replay",),
                benign=True,
            ),
            truth("hang", "stall", ANY, SWAP.first_hang, SWAP.parent_reached + 100, 3, HANG_PATTERNS),
            truth("hang", "stall", ANY, SWAP.second_hang, SWAP.parent_reached + 100, 3, HANG_PATTERNS),
        ),
        (
            event("deploy", SWAP.swapped, "ragged expert transport, from the checkpoint of step 54,000"),
            event("rollback", SWAP.parent_reached, "back to pooled-wave transport", known_at=SWAP.parent_reached),
        ),
    ),
    Scenario(
        "hero-hang-81759",
        "incident 19: #8506, #8870",
        "announced transport swap at 81,716, rows stop at 81,759 for an hour, relaunch from the checkpoint",
        HANG,
        _hang,
        (
            *_swap_is_no_page(HANG.swapped, HANG.swapped + 2_000),
            truth("hang", "stall", ANY, HANG.hang, HANG.hang + 100, 3, HANG_PATTERNS),
            truth("rewind", "rewind", ANY, HANG.swapped, HANG.hang + 100, 1, ("step_rewind_replay",)),
        ),
        (event("deploy", HANG.swapped, "ragged expert transport, from the forced checkpoint 81,716"),),
    ),
    Scenario(
        "hero-fabric-fault-65069",
        "incident 20: #8934",
        "15 minutes of silence, then a restart from the hourly checkpoint: 125 steps and 20 minutes lost",
        FABRIC,
        _fabric,
        (
            truth("hang", "stall", ANY, FABRIC.fault, FABRIC.fault + 100, 3, HANG_PATTERNS),
            truth(
                "rewind",
                "rewind",
                ANY,
                FABRIC.fault - FABRIC.lost_steps,
                FABRIC.fault + 100,
                1,
                ("step_rewind_replay",),
            ),
        ),
    ),
    Scenario(
        "hero-link-fault-83487",
        "incident 21: #8506, #9086",
        "a node's link dies; the replay of 83,305 to 83,487 is refused by the tracker, so 55 minutes have no rows",
        LINK,
        _link,
        (truth("hidden_replay", "stall", ANY, LINK.reached, LINK.reached + 100, 2, HANG_PATTERNS),),
    ),
    Scenario(
        "hero-kernel-race-hangs",
        "incident 22: PR #9183, PR #8959",
        "hangs at 107,501 and 108,711, on both sides of the planned mixture boundary at 108,000",
        RACE,
        _race,
        (
            truth("hang", "stall", ANY, RACE.first_hang, RACE.first_hang + 100, 3, HANG_PATTERNS),
            truth(
                "rewind",
                "rewind",
                ANY,
                RACE.first_hang - RACE.hourly_steps,
                RACE.first_hang + 100,
                1,
                ("step_rewind_replay",),
            ),
            truth("mixture", "level", LOSS, RACE.mixture, RACE.mixture + 700, 1, ("data_mix_switch",), benign=True),
            truth("hang", "stall", ANY, RACE.second_hang, RACE.second_hang + 100, 3, HANG_PATTERNS),
            truth("rewind", "rewind", ANY, RACE.mixture, RACE.second_hang + 100, 1, ("step_rewind_replay",)),
        ),
        (event("data_mix", RACE.mixture, "planned mixture boundary", known_at=MIXTURE.announced),),
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
