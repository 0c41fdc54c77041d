"""Where the hero run stopped and went back: a transport that hung, broken links, a race in a kernel."""

from types import SimpleNamespace

import numpy as np
import polars as pl
from cases import Truth
from curves import batch_luck, since
from hero import AFTER, ANNOUNCED, HISTORY, MIXTURE_SHIFT, POOLED, RAGGED, STARTED, pass_over, swap_is_no_page
from runlog import ended, in_log_order
from scenario import ANY, LOSS, Assumed, Derived, Published, Scenario, event, truth

HANG_PATTERNS = ("hang_and_restart", "hang", "step_rewind_replay")

SWAP = SimpleNamespace(
    swapped=Published(54_000),
    first_hang=Published(54_071),
    second_hang=Published(54_001),
    parent_reached=Published(54_262),
    hang_seconds=Assumed(3_600),  # the hour of grace that a watchdog has, told of a later hang
)
HANG = SimpleNamespace(swapped=Published(81_716), hang=Published(81_759), hang_seconds=Derived(3_600))
FABRIC = SimpleNamespace(
    fault=Published(65_069), lost_steps=Published(125), silent_seconds=Published(900), lost_seconds=Published(1_200)
)
LINK = SimpleNamespace(back_to=Published(83_305), reached=Published(83_487), hidden_seconds=Published(3_300))
RACE = SimpleNamespace(
    first_hang=Published(107_501),
    mixture=Published(108_000),
    second_hang=Published(108_711),
    hang_seconds=Assumed(3_600),
    hourly_steps=Derived(214),  # 3,600 s at 16.8 s a step
    mixture_shift=MIXTURE_SHIFT,
)


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


def hang(step: float, back_to: float, end: float) -> Truth:
    """Rows stop at `step`. The next row is the one that the run went back to, and who reads rows can speak only there:
    so the steps from `back_to` on, which were lost to it, are the fault's.
    """
    return truth("hang", "stall", ANY, min(step, back_to), end, 3, HANG_PATTERNS, visible=step)


SCENARIOS = (
    Scenario(
        "hero-ragged-swap-54k",
        "incident 18: #8506, #8870",
        "drops, MFU, step time and loss step as announced; then hangs at 54,071 and 54,001 and the old run goes on",
        SWAP,
        _swap,
        (
            *swap_is_no_page(SWAP.swapped, SWAP.first_hang),
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
            hang(SWAP.first_hang, SWAP.swapped, SWAP.parent_reached + 100),
            hang(SWAP.second_hang, SWAP.swapped, SWAP.parent_reached + 100),
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
            *swap_is_no_page(HANG.swapped, HANG.swapped + 2_000),
            hang(HANG.hang, HANG.swapped, HANG.hang + 100),
            truth("rewind", "rewind", ANY, HANG.swapped, HANG.hang + 100, 0, ("step_rewind_replay",)),
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
            hang(FABRIC.fault, FABRIC.fault - FABRIC.lost_steps, FABRIC.fault + 100),
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
            hang(RACE.first_hang, RACE.first_hang - RACE.hourly_steps, RACE.first_hang + 100),
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
            hang(RACE.second_hang, RACE.mixture, RACE.second_hang + 100),
            truth("rewind", "rewind", ANY, RACE.mixture, RACE.second_hang + 100, 0, ("step_rewind_replay",)),
        ),
        (event("data_mix", RACE.mixture, "planned mixture boundary", known_at=ANNOUNCED),),
    ),
)
