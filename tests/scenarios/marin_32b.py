"""The 32B run: spikes without QK-norm, what was tried against them, a shuffle that showed, a contaminated set."""

from types import SimpleNamespace

import numpy as np
import polars as pl
from curves import Array, batch_luck, fading, loss_sigma, rising, since
from dense import BIG, course, fixed_sets, pass_over
from hero import STARTED
from runlog import ended, in_log_order, logged
from scenario import EVALS, GRAD, LOSS, RATE, SCORES, UPDATE, Assumed, Derived, Published, Scenario, event, truth

SPIKES = SimpleNamespace(
    first_spiky=Derived(53_900),  # the 2,500 steps before clipping was tightened
    clip_tightened=Published(56_400),
    steps_in_spikes=Published(130),
    of_steps=Published(2_500),
    update_factor=Published(2),
    spikes=Assumed(5),
    height=Assumed(0.03),
    grad_factor=Assumed(5),
    update_lead=Assumed(2),
    grad_lead=Assumed(1),
)
OFFSET = SimpleNamespace(
    clip_off=Published(74_000),
    spike=Published(80_000),
    before=Published(1.96),
    top=Published(2.02),
    settled=Published(1.975),
    update_factor=Published(2),
    grad_factor=Assumed(5),
    tau=Assumed(15),
)
MUON = SimpleNamespace(
    restart=Published(77_096),
    rate=Published(2e-3),
    lower_by=Assumed(0.01),
    first_spike=Assumed(78_600),
    spikes=Assumed(4),
    diverges=Assumed(80_000),
    doubles_in=Assumed(600),
)
WARM_START = SimpleNamespace(
    switched=Published(80_000),
    recovered_in=Published(300),
    rewarm=Published(1_000),
    jump=Assumed(0.15),
    pause=Assumed(1_200),
)
SHUFFLE = SimpleNamespace(shifted=Published(190_000), shift=Assumed(0.01))
CONTAMINATED = SimpleNamespace(
    restart=Published(160_000), last=Published(192_000), final=Published(54.7), sound_final=Published(69.1), start=Assumed(60),
    evals_every=Assumed(2_000), spread=Assumed(0.6),
)  # fmt: skip


def spike_starts(first: float, number: int, apart: float) -> list[int]:
    return [int(first + apart * (0.5 + i)) for i in range(number)]


def spiky(steps: Array, starts: list[int], height: float, tau: float) -> tuple[Array, Array, Array]:
    """Factors of loss, gradient and update norm: the update leads, then the gradient, then the loss."""
    loss, grad, update = (np.ones(len(steps)) for _ in range(3))
    for start in starts:
        loss *= np.exp(height * fading(steps, start, tau))
        grad *= np.exp(np.log(SPIKES.grad_factor) * fading(steps, start - SPIKES.grad_lead, tau / 3))
        update *= np.exp(np.log(SPIKES.update_factor) * fading(steps, start - SPIKES.update_lead, tau / 3))
    return loss, grad, update


SPIKE_STEPS = SPIKES.steps_in_spikes / SPIKES.spikes  # each of them above its noise
SPIKE_TAU = SPIKE_STEPS / np.log(SPIKES.height / loss_sigma(BIG.sequences))
SPIKE_STARTS = spike_starts(SPIKES.first_spiky, int(SPIKES.spikes), SPIKES.of_steps / SPIKES.spikes)
MUON_STARTS = spike_starts(MUON.first_spike, int(MUON.spikes), 300)


def _spikes(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    steps = np.arange(int(SPIKES.first_spiky) - 6_000, int(SPIKES.clip_tightened))
    base, luck = course(steps, BIG, 80_000), batch_luck(rng, len(steps))
    loss, grad, update = spiky(steps, SPIKE_STARTS if faulty else [], SPIKES.height, SPIKE_TAU)
    return pass_over(
        rng, steps, STARTED, luck, BIG, loss=base * loss, rate=BIG.rate, grad_factor=grad, update_factor=update,
        evals=fixed_sets(rng, base),
    )  # fmt: skip


def _offset(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    spike = int(OFFSET.spike)
    steps = np.arange(int(OFFSET.clip_off), spike + 2_000)
    luck, base = batch_luck(rng, len(steps)), course(steps, BIG, spike)
    if not faulty:
        return pass_over(rng, steps, STARTED, luck, BIG, loss=base, rate=BIG.rate, evals=fixed_sets(rng, base))
    stays = (OFFSET.settled / OFFSET.before - 1) * since(steps, spike)
    passes = (OFFSET.top - OFFSET.settled) / OFFSET.before * fading(steps, spike, OFFSET.tau)
    grad = np.exp(np.log(OFFSET.grad_factor) * fading(steps, spike - SPIKES.grad_lead, OFFSET.tau / 3))
    update = np.exp(np.log(OFFSET.update_factor) * fading(steps, spike - SPIKES.update_lead, OFFSET.tau / 3))
    return pass_over(
        rng, steps, STARTED, luck, BIG, loss=base * (1 + stays + passes), rate=BIG.rate, grad_factor=grad,
        update_factor=update, evals=fixed_sets(rng, base * (1 + stays)),
    )  # fmt: skip


def muon_factor(steps: Array) -> Array:
    """The loss against the old course: lower, then spikes, then away."""
    lower = 1 - MUON.lower_by * rising(steps, MUON.restart, MUON.restart + 300)
    away = 0.01 * (np.exp2(np.clip(steps - MUON.diverges, 0, None) / MUON.doubles_in * 3) - 1)
    return lower * spiky(steps, MUON_STARTS, SPIKES.height, SPIKE_TAU)[0] + away


def _muon(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    restart, stop = int(MUON.restart), int(MUON.diverges) + 1_500
    first = restart - 6_000
    luck = batch_luck(rng, stop - first)
    everything = np.arange(first, stop)
    base = course(everything, BIG, 80_000)
    if not faulty:
        return pass_over(rng, everything, STARTED, luck, BIG, loss=base, rate=BIG.rate, evals=fixed_sets(rng, base))
    cut = restart - first
    old = pass_over(
        rng,
        everything[:cut],
        STARTED,
        luck[:cut],
        BIG,
        loss=base[:cut],
        rate=BIG.rate,
        evals=fixed_sets(rng, base[:cut]),
    )
    steps, factor = everything[cut:], muon_factor(everything[cut:])
    _, grad, update = spiky(steps, MUON_STARTS, SPIKES.height, SPIKE_TAU)
    grad *= np.exp2(np.clip(steps - MUON.diverges, 0, None) / MUON.doubles_in)
    later = ended(old) + 1_200
    return in_log_order(
        old,
        pass_over(
            rng, steps, later, luck[cut:], BIG, loss=base[cut:] * factor, rate=MUON.rate, grad_factor=grad,
            update_factor=update, evals=fixed_sets(rng, base[cut:] * factor), fresh=True,
        ),
    )  # fmt: skip


def _warm_start(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    switched = int(WARM_START.switched)
    first, stop = switched - 6_000, switched + 3_000
    everything, luck = np.arange(first, stop), batch_luck(rng, stop - first)
    base = course(everything, BIG, switched)
    if not faulty:
        return pass_over(rng, everything, STARTED, luck, BIG, loss=base, rate=BIG.rate, evals=fixed_sets(rng, base))
    cut = switched - first
    old = pass_over(
        rng,
        everything[:cut],
        STARTED,
        luck[:cut],
        BIG,
        loss=base[:cut],
        rate=BIG.rate,
        evals=fixed_sets(rng, base[:cut]),
    )
    steps = everything[cut:]
    tau = WARM_START.recovered_in / np.log(WARM_START.jump / loss_sigma(BIG.sequences))  # below its noise by then
    jump = np.exp(WARM_START.jump * fading(steps, switched, tau))
    rate = BIG.rate * rising(steps, switched - 1, switched + WARM_START.rewarm)
    later = ended(old) + WARM_START.pause
    new = pass_over(
        rng, steps, later, luck[cut:], BIG, loss=base[cut:] * jump, rate=rate, grad_factor=np.exp(2 * (jump - 1)),
        evals=fixed_sets(rng, base[cut:]), fresh=True,
    )  # fmt: skip
    return in_log_order(old, new)


def _shuffle(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    shifted = int(SHUFFLE.shifted)
    steps = np.arange(shifted - 6_000, shifted + 3_000)
    base, luck = course(steps, BIG, 80_000), batch_luck(rng, len(steps))
    factor = 1 + SHUFFLE.shift * since(steps, shifted) if faulty else 1.0
    return pass_over(rng, steps, STARTED, luck, BIG, loss=base * factor, rate=BIG.rate, evals=fixed_sets(rng, base))


def _contaminated(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    first, stop = int(CONTAMINATED.restart), int(CONTAMINATED.last)
    steps = np.arange(first, stop)
    base, luck = course(steps, BIG, 80_000), batch_luck(rng, len(steps))
    done = rising(steps, first, stop)
    where = (steps + 1) % int(CONTAMINATED.evals_every) == 0
    end = CONTAMINATED.final if faulty else CONTAMINATED.sound_final
    ends = {
        "gsm8k/exact_match": (CONTAMINATED.start, end),
        "mmlu/acc": (62.0, 66.0),
        "hellaswag/acc_norm": (82.0, 84.0),
    }
    scores = {
        f"lm_eval/{name}": logged(
            (a + (b - a) * done + CONTAMINATED.spread * rng.standard_normal(len(steps))) / 100, where
        )
        for name, (a, b) in ends.items()
    }
    rate = BIG.rate * (1 - 0.9 * done)
    return pass_over(rng, steps, STARTED, luck, BIG, loss=base, rate=rate, evals=fixed_sets(rng, base), extra=scores)


SCENARIOS = (
    Scenario(
        "32b-frequent-spikes",
        "incident 1: #1368, Marin 32B retrospective",
        "5 % of 2,500 steps in a spike or recovering; the update norm doubles first, then the gradient, then the loss",
        SPIKES,
        _spikes,
        tuple(
            truth(
                "spike",
                "spike",
                LOSS | GRAD | UPDATE,
                start - SPIKES.update_lead,
                start + SPIKE_STEPS + 100,
                2,
                ("loss_spike_fast", "update_norm_precursor", "spike_cluster"),
            )
            for start in SPIKE_STARTS
        ),
    ),
    Scenario(
        "32b-spike-with-offset",
        "incident 2: #1390",
        "1.96 to 2.02 with update clipping off by accident, back only to 1.975",
        OFFSET,
        _offset,
        (
            truth(
                "spike",
                "spike",
                LOSS | GRAD | UPDATE,
                OFFSET.spike - SPIKES.update_lead,
                OFFSET.spike + 150,
                2,
                ("loss_spike_partial",),
            ),
            truth(
                "spike_offset", "level", LOSS | EVALS, OFFSET.spike, OFFSET.spike + 1_999, 3, ("loss_spike_partial",)
            ),
        ),
    ),
    Scenario(
        "32b-optimizer-swap",
        "incident 3: #1380, Marin 32B retrospective",
        "announced restart with Muon at 77,096: lower first, spikes later, then without bound",
        MUON,
        _muon,
        (
            truth(
                "optimizer_swap",
                "level",
                LOSS | RATE | GRAD | EVALS,
                MUON.restart,
                MUON.restart + 1_000,
                1,
                benign=True,
            ),
            *(
                truth(
                    "spike",
                    "spike",
                    LOSS | GRAD | UPDATE,
                    start - SPIKES.update_lead,
                    start + SPIKE_STEPS + 100,
                    2,
                    ("loss_spike_fast",),
                )
                for start in MUON_STARTS
            ),
            truth(
                "divergence",
                "divergence",
                LOSS | GRAD,
                MUON.diverges,
                MUON.diverges + 1_499,
                4,
                ("loss_divergence",),
                visible=MUON.diverges + MUON.doubles_in / 3 * np.log2(1 + loss_sigma(BIG.sequences) / 0.01) + 1,
            ),
        ),
        (
            event("restart", MUON.restart, "Muon instead of AdamW"),
            event("lr_schedule", MUON.restart, "learning rate 2e-3 with Muon"),
        ),
    ),
    Scenario(
        "32b-warm-start",
        "incident 4: #1395, Marin 32B retrospective",
        "announced warm start with QK-norm at 80,000: the loss steps up, back after 300 steps, re-warm-up over 1,000",
        WARM_START,
        _warm_start,
        (
            truth("warm_start", "level", LOSS | GRAD, WARM_START.switched, WARM_START.switched + 1_000, 1, benign=True),
            truth(
                "rewarm",
                "schedule",
                RATE,
                WARM_START.switched,
                WARM_START.switched + 1_100,
                1,
                ("planned_lr_change",),
                benign=True,
            ),
        ),
        (
            event("deploy", WARM_START.switched, "warm start of the architecture with QK-norm"),
            event("warmup", WARM_START.switched, "re-warm-up of the learning rate over 1,000 steps"),
        ),
    ),
    Scenario(
        "32b-shuffle-shift",
        "incident 5: Marin 32B retrospective, #1529",
        "the training loss moves at 190,000 and stays, all evaluations flat: a weak shuffle",
        SHUFFLE,
        _shuffle,
        (
            truth(
                "train_only_shift",
                "level",
                LOSS,
                SHUFFLE.shifted,
                SHUFFLE.shifted + 2_999,
                2,
                ("train_only_phase_shift",),
            ),
        ),
    ),
    Scenario(
        "32b-contaminated-eval",
        "incident 6: Marin 32B retrospective",
        "GSM8K ends at 54.7 and not at 69.1 while other evaluations and the loss are fine",
        CONTAMINATED,
        _contaminated,
        (
            truth(
                "eval_falls",
                "trend",
                SCORES,
                CONTAMINATED.restart,
                CONTAMINATED.last - 1,
                2,
                ("eval_regression", "contamination_or_prompt_artifact"),
                visible=CONTAMINATED.restart
                + (CONTAMINATED.last - CONTAMINATED.restart)
                * CONTAMINATED.spread
                / (CONTAMINATED.start - CONTAMINATED.final),
            ),
        ),
    ),
)
