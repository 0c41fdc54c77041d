"""The 8B run's cooldowns, formats and re-warm-ups, and a small study of shuffles."""

from types import SimpleNamespace

import numpy as np
import polars as pl
from curves import Array, batch_luck, fading, first_visible, loss_sigma, power_law, rising, since
from dense import CONTEXT, EVAL_LEVELS, EVAL_SPREAD, EVALS_EVERY, SMALL, course, fixed_sets, pass_over
from hero import STARTED
from runlog import logged
from scenario import EVALS, GRAD, LOSS, NORM, RATE, SPEED, Assumed, Derived, Figure, Published, Scenario, event, truth

COOLDOWN = SimpleNamespace(
    peak=Published(1.7e-4), floor=Published(1.7e-5), creeps_below=Published(3e-5), steps=Assumed(10_000), creep=Assumed(0.01),
    head_growth=Assumed(1.0), head_norm=Assumed(150), other_norm=Assumed(900),
)  # fmt: skip
FORMAT = SimpleNamespace(shifted=Published(200_000), worse=Assumed(0.03), better=Assumed(0.01))
OCELOT = SimpleNamespace(
    tokens=Published(2.77e12),
    changed=Derived(2.77e12 / (1_024 * CONTEXT)),
    batch_factor=Published(3),
    rate_before=Published(1e-3),
    rate_after=Published(1.7e-3),
    height=Assumed(0.02),
    tau=Assumed(20),
    ema_gain=Assumed(0.01),
)
JELLYFISH = SimpleNamespace(starts=Assumed(6_000), steps=Assumed(6_000), worse=Assumed(0.08), gain=Assumed(0.06))
REWARM = SimpleNamespace(
    tokens=Published(4.7e12), rate_before=Published(1.7e-4), rate_after=Published(1.7e-3), ramp=Published(2_000),
    changed=Assumed(500_000), jump=Assumed(0.04), settles=Assumed(-0.003), tau=Assumed(3_000),
)  # fmt: skip
ERA = SimpleNamespace(
    train_loss=Published(3.696), sound_train_loss=Published(3.693),
    uncheatable_worse=Published(0.145), eval_worse=Published(0.083),
    steps=Assumed(8_000), evals_every=Assumed(250), sequences=Assumed(256), loss_exponent=Assumed(0.12),
)  # fmt: skip


def cooldown_rate(steps: Array, start: float) -> Array:
    """From the published peak to a tenth of it."""
    return COOLDOWN.peak + (COOLDOWN.floor - COOLDOWN.peak) * rising(steps, start, start + COOLDOWN.steps)


COOLDOWN_FIRST, COOLDOWN_START = 200_000, 6_000  # the branch's own steps are not published
COOLDOWN_STEPS = np.arange(COOLDOWN_START + int(COOLDOWN.steps) + 2_000)
CREEP_FROM = int(np.argmax(cooldown_rate(COOLDOWN_STEPS, COOLDOWN_START) < COOLDOWN.creeps_below))
CREEP = rising(COOLDOWN_STEPS, CREEP_FROM, len(COOLDOWN_STEPS))


def _cooldown(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    steps = COOLDOWN_FIRST + COOLDOWN_STEPS
    luck = batch_luck(rng, len(steps))
    base = course(steps, SMALL, 200_000) * (1 - 0.02 * rising(COOLDOWN_STEPS, COOLDOWN_START, CREEP_FROM))
    creep = CREEP if faulty else np.zeros(len(steps))
    loss = base * (1 + COOLDOWN.creep * creep)
    head = COOLDOWN.head_norm * (1 + COOLDOWN.head_growth * creep)
    params = {
        "lm_head": head,
        "embeddings": np.full(len(steps), 300.0),
        "transformer.layers": np.full(len(steps), float(COOLDOWN.other_norm)),
        "total": np.sqrt(head**2 + 300.0**2 + COOLDOWN.other_norm**2),
    }
    params = {name: level * np.exp(1e-4 * rng.standard_normal(len(steps))) for name, level in params.items()}
    return pass_over(
        rng, steps, STARTED, luck, SMALL, sequences=SMALL.later_sequences, loss=loss,
        rate=cooldown_rate(COOLDOWN_STEPS, COOLDOWN_START), params=params, evals=fixed_sets(rng, loss),
    )  # fmt: skip


def _format(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    shifted = int(FORMAT.shifted)
    steps = np.arange(shifted - 12_000, shifted + 8_000)
    base, luck = course(steps, SMALL, 200_000), batch_luck(rng, len(steps))
    moved = since(steps, shifted) if faulty else np.zeros(len(steps))
    factors = dict.fromkeys(("paloma/c4_en/loss", "uncheatable_eval/macro_loss"), 1 - FORMAT.better * moved)
    factors |= {f"paloma/{name}/loss": 1 + FORMAT.worse * moved for name in ("twitterAAE_HELM_fixed", "4chan")}
    return pass_over(
        rng, steps, STARTED, luck, SMALL, loss=base, rate=1.7e-3, evals=fixed_sets(rng, base, factors)
    )  # fmt: skip


def _ocelot(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    changed = int(OCELOT.changed)
    steps = np.arange(changed - 6_000, changed + 4_000)
    base, luck = course(steps, SMALL, 200_000), batch_luck(rng, len(steps))
    ema_where = ((steps + 1) % int(EVALS_EVERY) == 0) & (steps >= changed)
    hot = fixed_sets(rng, base)
    gain = 0.0 if faulty else OCELOT.ema_gain  # with the direction wrong the average is the hot model
    ema = {"eval/ema/paloma/macro_loss": logged(hot["paloma/macro_loss"] * (1 - gain), ema_where)}
    if not faulty:
        return pass_over(rng, steps, STARTED, luck, SMALL, loss=base, rate=OCELOT.rate_before, evals=hot, extra=ema)
    after = since(steps, changed)
    batch = SMALL.sequences * (1 + (OCELOT.batch_factor - 1) * after)
    return pass_over(
        rng, steps, STARTED, luck, SMALL, sequences=batch, loss=base * np.exp(OCELOT.height * fading(steps, changed, OCELOT.tau)),
        rate=OCELOT.rate_before + (OCELOT.rate_after - OCELOT.rate_before) * after,
        grad_factor=np.sqrt(SMALL.sequences / batch), seconds=SMALL.seconds * batch / SMALL.sequences, evals=hot, extra=ema,
    )  # fmt: skip


def _jellyfish(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    start = int(JELLYFISH.starts)
    own = np.arange(start + int(JELLYFISH.steps))
    steps = 660_000 + own
    done = rising(own, start, len(own))
    base, luck = course(steps, SMALL, 200_000) * (1 - JELLYFISH.gain * done), batch_luck(rng, len(steps))
    factors = {"paloma/c4_en/loss": (1 + JELLYFISH.worse * done) / (1 - JELLYFISH.gain * done)} if faulty else {}
    where = (own + 1) % int(EVALS_EVERY) == 0
    score = logged(0.62 + 0.04 * done + 0.003 * rng.standard_normal(len(own)), where)
    return pass_over(
        rng, steps, STARTED, luck, SMALL, sequences=SMALL.later_sequences, loss=base, rate=OCELOT.rate_after * (1 - 0.9 * done),
        evals=fixed_sets(rng, base, factors), extra={"lm_eval/averages/macro_avg_acc": score},
    )  # fmt: skip


def _rewarm(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    changed = int(REWARM.changed)
    steps = np.arange(changed - 6_000, changed + 14_000)
    base, luck = course(steps, SMALL, 200_000), batch_luck(rng, len(steps))
    if not faulty:
        return pass_over(
            rng, steps, STARTED, luck, SMALL, loss=base, rate=REWARM.rate_before, evals=fixed_sets(rng, base)
        )
    ramp = rising(steps, changed, changed + REWARM.ramp)
    back = fading(steps, changed + REWARM.ramp, REWARM.tau) + since(-steps, -(changed + REWARM.ramp - 1))
    factor = 1 + (REWARM.jump - REWARM.settles) * ramp * back + REWARM.settles * ramp
    rate = REWARM.rate_before + (REWARM.rate_after - REWARM.rate_before) * ramp
    return pass_over(
        rng, steps, STARTED, luck, SMALL, sequences=SMALL.later_sequences, loss=base * factor, rate=rate,
        evals=fixed_sets(rng, base * factor),
    )  # fmt: skip


ERA_STEPS = np.arange(int(ERA.steps))
ERA_GAP = rising(ERA_STEPS, 0, ERA.steps)  # grows with the run, to its published end


def _era(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    end: Figure = ERA.train_loss if faulty else ERA.sound_train_loss
    loss = np.minimum(power_law(ERA_STEPS, end, ERA.steps, ERA.loss_exponent), 11.0)
    luck = batch_luck(rng, len(ERA_STEPS))
    gap = ERA_GAP if faulty else np.zeros(len(ERA_STEPS))
    factors = dict.fromkeys(EVAL_LEVELS, 1 + ERA.eval_worse * gap)
    factors["uncheatable_eval/macro_loss"] = 1 + ERA.uncheatable_worse * gap
    rate = 3e-3 * (1 - 0.9 * rising(ERA_STEPS, 0, ERA.steps))
    return pass_over(
        rng, ERA_STEPS, STARTED, luck, SMALL, sequences=ERA.sequences, loss=loss, rate=rate,
        evals=fixed_sets(rng, loss, factors), evals_every=ERA.evals_every, fresh=True,
    )  # fmt: skip


SCENARIOS = (
    Scenario(
        "8b-cooldown-creep",
        "incident 7: #898, #916, Marin 8B retrospective",
        "the loss creeps up as the learning rate falls below 3e-5, and the output layer's norm grows alone",
        COOLDOWN,
        _cooldown,
        (
            truth(
                "loss_creep",
                "trend",
                LOSS,
                COOLDOWN_FIRST + CREEP_FROM,
                COOLDOWN_FIRST + len(COOLDOWN_STEPS) - 1,
                2,
                ("output_logit_drift",),
                visible=COOLDOWN_FIRST
                + first_visible(COOLDOWN_STEPS, COOLDOWN.creep * CREEP, loss_sigma(SMALL.later_sequences)),
            ),
            truth(
                "norm_group_growth",
                "trend",
                NORM,
                COOLDOWN_FIRST + CREEP_FROM,
                COOLDOWN_FIRST + len(COOLDOWN_STEPS) - 1,
                2,
                ("norm_group_runaway", "output_logit_drift"),
            ),
        ),
        (event("lr_decay", COOLDOWN_FIRST + COOLDOWN_START, "cooldown from 1.7e-4 to 1.7e-5"),),
    ),
    Scenario(
        "8b-format-of-evals",
        "incident 8: Marin 8B retrospective, #826",
        "some Paloma sets go up at once while others go down: a matter of trailing spaces",
        FORMAT,
        _format,
        (
            truth(
                "eval_shift",
                "level",
                EVALS,
                FORMAT.shifted,
                FORMAT.shifted + 7_999,
                2,
                ("eval_regression",),
                visible=FORMAT.shifted + EVALS_EVERY - 1,
            ),
        ),
    ),
    Scenario(
        "8b-batch-x3",
        "incident 9: Marin 8B retrospective",
        "small spike as batch, learning rate and position encoding change at once; the average of weights is the hot model",
        OCELOT,
        _ocelot,
        (
            truth(
                "config_change",
                "spike",
                LOSS | GRAD,
                OCELOT.changed,
                OCELOT.changed + 200,
                1,
                ("batch_size_change",),
                benign=True,
            ),
            truth(
                "config_change",
                "level",
                GRAD | SPEED,
                OCELOT.changed,
                OCELOT.changed + 2_000,
                1,
                ("batch_size_change",),
                benign=True,
            ),
            truth(
                "config_change",
                "schedule",
                RATE,
                OCELOT.changed,
                OCELOT.changed + 200,
                1,
                ("planned_lr_change",),
                benign=True,
            ),
            truth("ema_is_hot_model", "invariant", EVALS, OCELOT.changed, OCELOT.changed + 3_999, 1),
        ),
        (
            event("batch_size", OCELOT.changed, "batch x3"),
            event("lr_schedule", OCELOT.changed, "learning rate 1e-3 to 1.7e-3"),
            event("deploy", OCELOT.changed, "position encoding changed"),
        ),
    ),
    Scenario(
        "8b-eval-format-cooldown",
        "incident 10: Marin 8B retrospective",
        "in a cooldown one evaluation set rises a lot while the tasks improve",
        JELLYFISH,
        _jellyfish,
        (
            truth(
                "eval_rises",
                "trend",
                EVALS,
                660_000 + JELLYFISH.starts,
                660_000 + JELLYFISH.starts + JELLYFISH.steps - 1,
                2,
                ("eval_regression", "eval_domain_split_at_decay"),
                visible=660_000 + JELLYFISH.starts + EVALS_EVERY - 1,
            ),
        ),
        (event("lr_decay", 660_000 + JELLYFISH.starts, "cooldown"),),
    ),
    Scenario(
        "8b-rewarm",
        "incident 11: Marin 8B retrospective",
        "announced re-warm-up to 1.7e-3 in 2,000 steps with a new mixture: the loss jumps and returns slightly lower",
        REWARM,
        _rewarm,
        (
            truth(
                "rewarm",
                "level",
                LOSS | GRAD,
                REWARM.changed,
                REWARM.changed + 13_999,
                1,
                ("planned_lr_change", "data_mix_switch"),
                benign=True,
            ),
            truth(
                "rewarm",
                "schedule",
                RATE,
                REWARM.changed,
                REWARM.changed + REWARM.ramp + 100,
                1,
                ("planned_lr_change",),
                benign=True,
            ),
        ),
        (
            event(
                "lr_schedule",
                REWARM.changed,
                "re-warm-up from 1.7e-4 to 1.7e-3 over 2,000 steps",
                until=REWARM.changed + REWARM.ramp,
            ),
            event("data_mix", REWARM.changed, "new mixture"),
        ),
    ),
    Scenario(
        "150m-weak-shuffle",
        "incident 27: analysis of exp2917",
        "the training loss is as it should be, evaluations drift 8.3 % and 14.5 % away",
        ERA,
        _era,
        (
            truth(
                "eval_gap",
                "trend",
                EVALS,
                0,
                ERA.steps - 1,
                2,
                ("overfit", "shuffle_quality"),
                visible=max(
                    first_visible(ERA_STEPS, ERA.uncheatable_worse * ERA_GAP, EVAL_SPREAD), int(ERA.evals_every) - 1
                ),
            ),
        ),
    ),
)
