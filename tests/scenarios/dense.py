"""What the dense Marin runs of 8B and 32B log: gradient and update norms every step, evaluations every 1,000."""

from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np
import polars as pl
from curves import Array, power_law
from levanter import eval_noise, train, watched
from scenario import Assumed, Derived, Published

CONTEXT = 4_096
BIG = SimpleNamespace(  # 32B
    tokens_per_step=Published(33.6e6),
    sequences=Derived(8_192),  # of 4,096 tokens
    loss=Published(1.96),
    grad=Published(0.2),
    rate=Assumed(7e-4),
    seconds=Assumed(17.5),
    update=Assumed(0.5),
    loss_exponent=Assumed(0.03),
)
SMALL = SimpleNamespace(  # 8B
    sequences=Assumed(1_024),
    later_sequences=Derived(3_072),  # three times as many
    loss=Assumed(2.3),
    grad=Assumed(0.15),
    seconds=Assumed(6),
    update=Assumed(0.3),
    loss_exponent=Assumed(0.03),
)
EVALS_EVERY, EVAL_SPREAD, MFU = Assumed(1_000), Assumed(0.0005), Assumed(45)
EVAL_LEVELS = {  # of the training loss
    "paloma/macro_loss": 1.12,
    "paloma/c4_en/loss": 1.15,
    "paloma/twitterAAE_HELM_fixed/loss": 1.5,
    "paloma/4chan/loss": 1.3,
    "uncheatable_eval/macro_loss": 1.02,
}


def pass_over(
    rng: np.random.Generator,
    steps: Array,
    started: float,
    luck: Array,
    size: SimpleNamespace,
    *,
    loss: Array,
    rate: Array | float,
    sequences: Array | float | None = None,
    grad_factor: Array | float = 1.0,
    update_factor: Array | float = 1.0,
    params: Mapping[str, Array | float] | None = None,
    evals: Mapping[str, Array] | None = None,
    evals_every: float = EVALS_EVERY,
    extra: Mapping[str, Array | pl.Series] | None = None,
    seconds: Array | float | None = None,
    fresh: bool = False,
) -> pl.DataFrame:
    """One process of a dense run: gradient and update norms every step, parameter norms every 10."""
    batch = size.sequences if sequences is None else sequences
    ones = np.ones(len(steps))
    return train(
        rng,
        steps,
        started,
        loss=loss,
        luck=luck,
        sequences=batch,
        tokens=batch * CONTEXT,
        rates={"optim/learning_rate": rate * ones},
        seconds=size.seconds if seconds is None else seconds,
        mfu=MFU,
        grads={"total": size.grad * grad_factor},
        params={},
        evals={f"eval/{name}": level for name, level in (evals or {}).items()},
        watch_every=1,
        watch_at=0,
        evals_every=int(evals_every),
        extra={
            **watched(rng, steps, "updates/norm/", {"total": size.update * update_factor * ones}, 1, 0),
            **watched(None, steps, "params/norm/", params or {}, 10, 9),
            **(extra or {}),
        },
        total_steps=400_000,
        fresh=fresh,
    )


def course(steps: Array, size: SimpleNamespace, at: float) -> Array:
    """The loss without incident: its published or assumed level at step `at`."""
    return power_law(steps, size.loss, at, size.loss_exponent)


def fixed_sets(rng: np.random.Generator, loss: Array, factors: Mapping[str, Array] | None = None) -> dict[str, Array]:
    """Evaluations that follow the loss without its incident, times what is told of single sets."""
    told = factors or {}
    steps = np.arange(len(loss))
    return {
        name: share * loss * eval_noise(rng, steps, EVAL_SPREAD) * told.get(name, 1.0)
        for name, share in EVAL_LEVELS.items()
    }
