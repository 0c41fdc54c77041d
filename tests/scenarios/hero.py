"""The 535B-A23B hero run: 11,264 sequences a step, 390,251 steps, norms every 10, evaluations every 3,000."""

from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np
import polars as pl
from cases import Truth
from curves import ar1, linear_decay, power_law
from levanter import eval_noise, train
from scenario import DROPS, LOSS, SPEED, Assumed, Derived, Published, truth

Array = np.ndarray

RUN = SimpleNamespace(
    sequences=Published(11_264),
    tokens_per_step=Published(46_137_344),
    steps=Published(390_251),
    watch_every=Published(10),
    evals_every=Published(3_000),
    peak_rate=Published(0.00305),
    peak_adam_rate=Published(0.000704),
    loss_at_100k=Published(1.25651),
    z_loss=Derived(1.25651 - 1.25614),
    macro_at_48k=Published(2.0875),
    grad_at_58k=Published(0.28),
    output_share=Published(0.95),  # of the squared gradient norm
    norm_q=Published(268),
    norm_expert=Published(2_624),
    norm_output=Published(177),
    norm_embed=Published(182.4),
    norm_router=Published(102),
    drop_burst=Published(0.05),  # healthy runs show drops of 5 % now and then
    entropy_uniform=Derived(np.log(384)),
    loss_exponent=Assumed(0.03),
    eval_exponent=Assumed(0.02),
    eval_spread=Assumed(0.0003),
    entropy_deficit=Assumed(0.003),
    drop_spread=Assumed(0.05),
    drop_burst_rate=Assumed(1 / 2_000),
    norm_creep=Assumed(0.02),
    norm_wobble=Assumed(0.001),
    peak_gib=Assumed(160),
)
# seconds a step, MFU in percent, dropped share of the assignments, what the transport does to the loss
POOLED = SimpleNamespace(seconds=Published(18.5), mfu=Published(20.5), drops=Published(3.4e-2), loss=Published(0))
RAGGED = SimpleNamespace(seconds=Published(16.8), mfu=Published(23.3), drops=Assumed(5e-5), loss=Published(-0.006))
STARTED = 1_788_220_800.0  # 2026-09-01, UTC; only differences count
HISTORY, AFTER = 6_000, 2_000  # steps around an incident
MIXTURE_SHIFT, ANNOUNCED = Assumed(-0.02), Assumed(107_000)  # of the boundary at step 108,000
CONSTANT_NORMS = {  # the optimizer holds them
    "total": np.sqrt(144 * RUN.norm_expert**2 + 3 * RUN.norm_q**2 + RUN.norm_output**2 + RUN.norm_embed**2),
    "output_proj": RUN.norm_output,
    "stacked_blocks.0.attn.w_q": RUN.norm_q,
    "stacked_blocks.0.mlp.expert_mlp.w_up": RUN.norm_expert,
}


def pass_over(
    rng: np.random.Generator,
    luck: Array,
    first: int,
    start: int,
    stop: int,
    started: float,
    way: SimpleNamespace,
    *,
    loss_factor: Array | float = 1.0,
    seconds_factor: Array | float = 1.0,
    grads: Mapping[str, Array] | None = None,
    params: Mapping[str, Array] | None = None,
    fresh: bool = False,
) -> pl.DataFrame:
    """Steps `start` to `stop - 1` in one process on the transport `way`; `luck` holds the batches from step `first` on."""
    steps = np.arange(start, stop)
    level = power_law(steps, RUN.loss_at_100k, 100_000, RUN.loss_exponent) * loss_factor + way.loss
    seen = train(
        rng,
        steps,
        started,
        loss=level,
        luck=luck[steps - first],
        sequences=RUN.sequences,
        tokens=RUN.tokens_per_step,
        rates={
            "optim/learning_rate": linear_decay(steps, RUN.steps, RUN.peak_rate),
            "optim/adam_lr": linear_decay(steps, RUN.steps, RUN.peak_adam_rate),
        },
        seconds=way.seconds * seconds_factor,
        mfu=way.mfu,
        grads=grads or {"total": RUN.grad_at_58k, "output_proj": RUN.grad_at_58k * np.sqrt(RUN.output_share)},
        params={**CONSTANT_NORMS, **_free_norms(rng, steps), **(params or {})},
        evals=_evals(rng, steps),
        watch_every=int(RUN.watch_every),
        watch_at=0,
        evals_every=int(RUN.evals_every),
        extra=_router(rng, len(steps), way.drops),
        total_steps=RUN.steps,
        fresh=fresh,
    )
    return seen.with_columns((pl.col("train/loss") - float(RUN.z_loss)).alias("train/cross_entropy_loss"))


def adam_norm(rng: np.random.Generator, steps: Array, level: float, at: float) -> Array:
    """A norm that nothing holds: it creeps as a power of the step, and wobbles."""
    return power_law(steps, level, at, -RUN.norm_creep) * np.exp(ar1(rng, len(steps), 0.95, RUN.norm_wobble))


def _free_norms(rng: np.random.Generator, steps: Array) -> dict[str, Array]:
    return {
        "token_embed": adam_norm(rng, steps, RUN.norm_embed, 60_000),
        "stacked_blocks.0.mlp.router": adam_norm(rng, steps, RUN.norm_router, 60_000),
    }


def _evals(rng: np.random.Generator, steps: Array) -> dict[str, Array]:
    """Dropless evaluations, levels relative to the published macro average."""
    parts = {
        "macro_loss": 1.0,
        "paloma/macro_loss": 1.03,
        "uncheatable_eval/macro_loss": 0.96,
        "paloma/c4_en/loss": 1.1,
    }
    curve = power_law(steps, RUN.macro_at_48k, 48_000, RUN.eval_exponent)
    return {
        f"eval_dropless/{name}": share * curve * eval_noise(rng, steps, RUN.eval_spread)
        for name, share in parts.items()
    }


def _router(rng: np.random.Generator, size: int, drops: float) -> dict[str, Array]:
    """Drops (most at the sender, on this run), the routing's entropy and the memory."""
    dropped = drops * np.exp(ar1(rng, size, 0.5, RUN.drop_spread))
    dropped = np.where(rng.random(size) < RUN.drop_burst_rate, np.maximum(dropped, RUN.drop_burst), dropped)
    deficit = RUN.entropy_deficit * np.exp(ar1(rng, size, 0.5, 0.05))
    return {
        "moe/drop_fraction": dropped,
        "moe/sender_drop_fraction": 0.8 * dropped,
        "moe/receiver_drop_fraction": 0.2 * dropped,
        "train/router/routing_entropy_mean": RUN.entropy_uniform - deficit,
        "memory/peak_gib": RUN.peak_gib + 0.05 * rng.standard_normal(size),
    }


def swap_is_no_page(swapped: float, end: float) -> tuple[Truth, ...]:
    """The levels that the swap was meant to move."""
    return (
        truth("transport_swap", "level", DROPS, swapped, end, 1, ("transport_backend_switch",), benign=True),
        truth("transport_swap", "level", SPEED, swapped, end, 1, ("transport_backend_switch",), benign=True),
        truth("transport_swap", "level", LOSS, swapped, end, 1, ("transport_backend_switch",), benign=True),
    )
