"""The 1e23 MoE run and the bring-ups around it: explosions at step 0, evaluations that only one transport spoils, NaN."""

from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np
import polars as pl
from curves import batch_luck, linear_decay, power_law
from hero import STARTED
from levanter import eval_noise, train
from runlog import ended, in_log_order
from scenario import ANY, EVALS, GRAD, LOSS, Assumed, Published, Scenario, event, truth

Array = np.ndarray

RUN = SimpleNamespace(
    sequences=Assumed(2_048),
    context=Assumed(4_096),
    steps=Assumed(120_000),
    evals_every=Assumed(1_000),
    rate=Assumed(0.004),
    seconds=Assumed(17.5),
    mfu=Assumed(20),
    macro_final=Published(2.234),
    loss_final=Assumed(1.9),
    grad=Assumed(0.3),
    output_grad=Published(0.6),
    exponent=Assumed(0.05),
    eval_spread=Assumed(0.0005),
)
EXPLOSION = SimpleNamespace(
    output_grad_first=Published(8_000),
    output_grad_second=Published(330_000),
    first_loss=Assumed(11.8),
    rows=Assumed(300),
)
EVAL_BIAS = SimpleNamespace(
    domain_ordered=Published(0.1102), shuffled=Published(0.0497), switched=Assumed(30_000), github_factor=Assumed(2)
)
ROLLBACK = SimpleNamespace(
    resumed=Published(58_049), permanent=Published(50_000), first_save=Assumed(200), pause=Assumed(5_400)
)
REPEATED = SimpleNamespace(
    steps=[Published(93), Published(114), Published(314), Published(952)], sequences=Published(256), pause=Assumed(300)
)
BRING_UP = SimpleNamespace(first_loss=Published(11.804), nan_step=Published(2), final_norm_grad=Assumed(0.05))


def pass_over(
    rng: np.random.Generator,
    steps: Array,
    started: float,
    luck: Array,
    *,
    loss: Array | None = None,
    sequences: float = RUN.sequences,
    grads: Mapping[str, Array] | None = None,
    eval_shift: Mapping[str, Array] | None = None,
    watch_every: int = 10,
    evals: bool = True,
    seconds: float = RUN.seconds,
    total_steps: float = RUN.steps,
    fresh: bool = False,
) -> pl.DataFrame:
    """One process; `eval_shift` is added to the evaluations of its names."""
    curve = power_law(steps, RUN.macro_final, RUN.steps, RUN.exponent)
    names = {
        "paloma/macro_loss": 1.0,
        "uncheatable_eval/macro_loss": 0.93,
        "paloma/c4_en/loss": 1.08,
        "uncheatable_eval/github/loss": 0.5,
    }
    shift = eval_shift or {}
    return train(
        rng,
        steps,
        started,
        loss=power_law(steps, RUN.loss_final, RUN.steps, RUN.exponent) if loss is None else loss,
        luck=luck,
        sequences=sequences,
        tokens=sequences * RUN.context,
        rates={"optim/learning_rate": linear_decay(steps, total_steps, RUN.rate)},
        seconds=seconds,
        mfu=RUN.mfu,
        grads=grads or {"total": np.hypot(RUN.grad, RUN.output_grad), "output_proj": RUN.output_grad},
        params={"output_proj": 177.0},
        evals={
            f"eval/{name}": share * curve * eval_noise(rng, steps, RUN.eval_spread) + shift.get(name, 0.0)
            for name, share in names.items()
            if evals
        },
        watch_every=watch_every,
        watch_at=0 if watch_every == 1 else 9,
        evals_every=int(RUN.evals_every),
        extra={"moe/drop_fraction": 0.01 * rng.lognormal(0, 0.1, len(steps))},
        total_steps=total_steps,
        fresh=fresh,
    )


def early_loss(steps: Array, first: float) -> Array:
    """The usual beginning: from near ln(vocabulary) down to about 4 in a thousand steps."""
    return 2.5 + (first - 2.5) * (1 + steps / 30) ** -0.5


def _explosion(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    steps = np.arange(int(EXPLOSION.rows))
    output = np.full(len(steps), float(RUN.output_grad))
    loss = early_loss(steps, EXPLOSION.first_loss)
    if faulty:
        low, high = np.log([EXPLOSION.output_grad_first, EXPLOSION.output_grad_second])
        output = np.exp(rng.uniform(low, high, len(steps)))
        output[:2] = EXPLOSION.output_grad_first, EXPLOSION.output_grad_second
        loss = np.full(len(steps), float(EXPLOSION.first_loss))
    grads = {"total": np.hypot(RUN.grad, output), "output_proj": output}
    luck = batch_luck(rng, len(steps))
    return pass_over(rng, steps, STARTED, luck, loss=loss, grads=grads, watch_every=1, evals=False, fresh=True)


def _eval_bias(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    first, switched = int(EVAL_BIAS.switched) - 8_000, int(EVAL_BIAS.switched)
    stop = switched + 8_000
    luck = batch_luck(rng, stop - first)

    def part(start: int, end: int, started: float, bias: float, fresh: bool) -> pl.DataFrame:
        names = {"paloma/macro_loss": 1, "uncheatable_eval/macro_loss": 1, "paloma/c4_en/loss": 1}
        shift = {name: np.full(end - start, bias * share) for name, share in names.items()}
        shift["uncheatable_eval/github/loss"] = np.full(end - start, bias * EVAL_BIAS.github_factor)
        steps = np.arange(start, end)
        return pass_over(rng, steps, started, luck[steps - first], eval_shift=shift, fresh=fresh)

    if not faulty:
        return part(first, stop, STARTED, 0.0, False)
    ring = part(first, switched, STARTED, 0.0, False)
    return in_log_order(ring, part(switched, stop, ended(ring) + 600, float(EVAL_BIAS.domain_ordered), True))


def _rollback(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    resumed, permanent = int(ROLLBACK.resumed), int(ROLLBACK.permanent)
    crashed = resumed + int(ROLLBACK.first_save)
    first, stop = permanent - 4_000, crashed + 2_000
    luck = batch_luck(rng, stop - first)

    def part(start: int, end: int, started: float, fresh: bool) -> pl.DataFrame:
        steps = np.arange(start, end)
        return pass_over(rng, steps, started, luck[steps - first], fresh=fresh)

    if not faulty:
        return part(first, stop, STARTED, False)
    old = part(first, resumed, STARTED, False)
    crash = part(resumed, crashed, ended(old) + ROLLBACK.pause, True)
    return in_log_order(old, crash, part(permanent, stop, ended(crash) + ROLLBACK.pause, True))


def _repeated(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    lengths = [int(step) for step in REPEATED.steps] if faulty else [1_200]
    luck = batch_luck(rng, max(lengths) + 1)
    parts: list[pl.DataFrame] = []
    for length in lengths:
        steps = np.arange(length + 1)
        loss = early_loss(steps, 11.8)
        if faulty:
            loss[-1] = np.nan  # this trainer stops at the first non-finite loss
        started = ended(parts[-1]) + REPEATED.pause if parts else STARTED
        part = pass_over(
            rng, steps, started, luck[: length + 1], loss=loss, sequences=REPEATED.sequences, evals=False, seconds=0.9,
            total_steps=3_930, fresh=True,
        )  # fmt: skip
        parts.append(part)
    return in_log_order(*parts)


def _bring_up(rng: np.random.Generator, faulty: bool) -> pl.DataFrame:
    steps = np.arange(int(BRING_UP.nan_step) + 1 if faulty else 300)
    loss = early_loss(steps, BRING_UP.first_loss)
    total = np.full(len(steps), float(RUN.grad))
    if faulty:
        loss[int(BRING_UP.nan_step) :] = np.nan
        total[:] = np.nan
    grads = {
        "total": total,
        "output_proj": np.full(len(steps), 0.2),
        "final_norm.weight": np.full(len(steps), float(BRING_UP.final_norm_grad)),
    }
    luck = batch_luck(rng, len(steps))
    # the published loss of step 0 is what was logged, noise and all
    rows = pass_over(rng, steps, STARTED, luck, loss=loss, grads=grads, watch_every=1, evals=False, fresh=True)
    if not faulty:
        return rows
    first = pl.when(pl.col("_step") == 0).then(float(BRING_UP.first_loss)).otherwise(pl.col("train/loss"))
    return rows.with_columns(first.alias("train/loss"), pl.lit(0.0).alias("moe/drop_fraction"))


SCENARIOS = (
    Scenario(
        "moe-step0-explosion",
        "incident 12: #4746, PR #4867",
        "the output layer's gradient norm is 8,000 to 330,000 from the first step on instead of 0.6",
        EXPLOSION,
        _explosion,
        (truth("step0_explosion", "spike", GRAD | LOSS, 0, int(EXPLOSION.rows) - 1, 3),),
    ),
    Scenario(
        "moe-eval-overflow",
        "incident 13: week of 04-13, #8134",
        "after a change of transport evaluations are 0.11 worse, code worst; the training loss matches step by step",
        EVAL_BIAS,
        _eval_bias,
        (
            truth(
                "eval_shift",
                "level",
                EVALS,
                EVAL_BIAS.switched,
                EVAL_BIAS.switched + 7_999,
                2,
                ("eval_regression", "train_eval_routing_mismatch"),  # #8134 is where capacity in evaluations was found
                visible=EVAL_BIAS.switched + RUN.evals_every - 1,
            ),
        ),
        (event("deploy", EVAL_BIAS.switched, "ragged expert transport"),),
    ),
    Scenario(
        "moe-rollback-58049",
        "incident 14: #5319, #5386",
        "crash at the first save after the resume at 58,049; the run goes back to step 50,000",
        ROLLBACK,
        _rollback,
        (
            truth(
                "rewind",
                "rewind",
                ANY,
                ROLLBACK.permanent,
                ROLLBACK.resumed + ROLLBACK.first_save + 100,
                2,
                ("step_rewind_replay",),
            ),
        ),
    ),
    Scenario(
        "moe-repeated-nan",
        "incident 24: PR #8672",
        "four attempts from step 0 end in NaN at steps 93, 114, 314 and 952",
        REPEATED,
        _repeated,
        tuple(
            truth("nan", "nonfinite", LOSS, step, min(step + 8, REPEATED.steps[-1]), 3, ("nan_burst",))
            for step in REPEATED.steps
        ),
    ),
    Scenario(
        "moe-bring-up-nan",
        "incident 25: #8077",
        "total gradient norm NaN from step 0 while those of the last layers are finite; loss 11.804, then NaN at step 2",
        BRING_UP,
        _bring_up,
        (truth("nan", "nonfinite", GRAD | LOSS, 0, BRING_UP.nan_step, 3, ("nan_burst",)),),
    ),
)
