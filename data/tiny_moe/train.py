"""Trains the tiny Mixture-of-Experts model and records what a trainer logs, healthy or with one real fault.

    python data/tiny_moe/train.py --recipe healthy --out data/runs/healthy.parquet

A recipe is a list of launches. Each launch after the first starts from the checkpoint of an earlier one with its own
settings: that is how each fault comes in, as in practice. Nothing in the log is made up; see data/README.md.
"""

import argparse
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import corpus
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from model import Params, Routing, Shape, forward, has_constant_norm, init

SHAPE = Shape()
BATCH = 8
EVAL_BATCHES = 16
NORMS_EVERY = 10
EVAL_EVERY = 100
DATA_SEED = 8435  # the same in all recipes: the same batch at the same step, so that runs can be paired
Z_LOSS = 1e-4
BETA1, BETA2, EPSILON = 0.9, 0.98, 1e-8
# The constant-norm leaves turn by this many times the rate of the Adam leaves.
ADAM_SHARE = 0.2
NOMINAL_PEAK_FLOPS = 1e11  # a stated constant, not this machine's: it only makes the MFU a plausible percentage

Row = dict[str, float | int]


@dataclass(frozen=True)
class Launch:
    """One start of the trainer: from which checkpoint to which step, with which settings."""

    first: int
    stop: int
    peak_learning_rate: float = 0.01
    warmup: int = 200
    horizon: int = 3600
    final_share: float = 0.05
    capacity_factor: float = 1.25
    balance_rate: float = 2e-3  # how far the router bias moves per step towards the emptier experts

    def learning_rate(self, step: int) -> float:
        """Linear warmup, then linear decay to a share of the peak."""
        if step < self.warmup:
            return self.peak_learning_rate * (step + 1) / self.warmup
        left = max(0.0, (self.horizon - step) / (self.horizon - self.warmup))
        return self.peak_learning_rate * (self.final_share + (1 - self.final_share) * left)


@dataclass(frozen=True)
class Recipe:
    """A run from start to end."""

    seed: int
    launches: tuple[Launch, ...]


RECIPES = {
    "healthy": Recipe(1, (Launch(0, 3600),)),
    # The run was to be extended to twice its length: the horizon doubled, and the peak slipped a decimal place.
    "lr_hot_resume": Recipe(2, (Launch(0, 1800), Launch(1700, 3600, peak_learning_rate=0.1, horizon=7200))),
    # A smaller expert buffer to save memory: less room than a perfectly balanced batch needs.
    "capacity_cut": Recipe(3, (Launch(0, 2000), Launch(2000, 3600, capacity_factor=0.9))),
    # The balance rate was to be halved, and lost its sign: the fuller an expert, the more it is preferred.
    "router_collapse": Recipe(4, (Launch(0, 1800), Launch(1800, 3600, balance_rate=-1e-3))),
}


class State(NamedTuple):
    """All that a checkpoint holds."""

    params: Params
    mean: Params
    square: Params
    bias: jax.Array  # [layers, experts]


class Measured(NamedTuple):
    """What one step reports besides the new state."""

    loss: jax.Array
    cross_entropy: jax.Array
    load: jax.Array  # [layers, experts]
    dropped: jax.Array  # [layers]
    grad_norms: Params
    param_norms: Params


Step = Callable[[State, jax.Array, jax.Array, jax.Array], tuple[State, Measured]]
Evaluate = Callable[[State, jax.Array], jax.Array]


def losses(
    params: Params, bias: jax.Array, tokens: jax.Array, capacity_factor: float
) -> tuple[jax.Array, tuple[jax.Array, list[Routing]]]:
    """The optimised loss (with z-loss), the cross entropy alone, and each layer's routing."""
    logits, routings = forward(params, bias, tokens[:, :-1], SHAPE, capacity_factor)
    log_sum = jax.nn.logsumexp(logits, axis=-1)
    hit = jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1)[..., 0]
    cross_entropy = jnp.mean(log_sum - hit)
    return cross_entropy + Z_LOSS * jnp.mean(log_sum**2), (cross_entropy, routings)


def take_step(
    state: State, tokens: jax.Array, step: jax.Array, rate: jax.Array, *, launch: Launch
) -> tuple[State, Measured]:
    """Gradient, optimizer, router bias. The norms are those before the update, as the gradient saw them."""
    (loss, (cross_entropy, routings)), grads = jax.value_and_grad(losses, has_aux=True)(
        state.params, state.bias, tokens, launch.capacity_factor
    )
    load = jnp.stack([r.load for r in routings])
    dropped = jnp.stack([r.dropped for r in routings])
    measured = Measured(loss, cross_entropy, load, dropped, norms(grads), norms(state.params))
    bias = state.bias + launch.balance_rate * jnp.sign(1 / SHAPE.experts - load)
    return update(state, grads, step, rate)._replace(bias=bias), measured


def update(state: State, grads: Params, step: jax.Array, rate: jax.Array) -> State:
    """Adam; the large matrices move along Adam's direction on the sphere of their first norm ("hyperball")."""
    params, mean, square = {}, {}, {}
    for leaf, grad in grads.items():
        mean[leaf] = BETA1 * state.mean[leaf] + (1 - BETA1) * grad
        square[leaf] = BETA2 * state.square[leaf] + (1 - BETA2) * grad**2
        unbiased = square[leaf] / (1 - BETA2 ** (step + 1))
        direction = mean[leaf] / (1 - BETA1 ** (step + 1)) / (jnp.sqrt(unbiased) + EPSILON)
        old = state.params[leaf]
        if has_constant_norm(leaf):
            radius = jnp.linalg.norm(old)
            moved = old - rate * radius * direction / (jnp.linalg.norm(direction) + EPSILON)
            params[leaf] = moved * radius / jnp.linalg.norm(moved)
        else:
            params[leaf] = old - ADAM_SHARE * rate * direction
    return State(params, mean, square, state.bias)


def norms(tree: Params) -> Params:
    """The L2 norm of each leaf and of all of them together."""
    leaves = {leaf: jnp.sqrt(jnp.sum(value**2)) for leaf, value in tree.items()}
    return leaves | {"total": jnp.sqrt(sum(norm**2 for norm in leaves.values()))}


def compiled(launch: Launch) -> tuple[Step, Evaluate]:
    """The two functions of a launch, traced anew each time: a restarted trainer compiles again."""
    step = jax.jit(partial(take_step, launch=launch), donate_argnums=0)

    def evaluate(state: State, tokens: jax.Array) -> jax.Array:
        return losses(state.params, state.bias, tokens, launch.capacity_factor)[1][0]

    return step, jax.jit(evaluate)


def fresh(seed: int) -> State:
    """The state before the first step: random weights, an optimizer and a router without history."""
    params = init(SHAPE, seed)
    zeros = {leaf: jnp.zeros_like(value) for leaf, value in params.items()}
    return State(
        params, zeros, {leaf: jnp.zeros_like(v) for leaf, v in zeros.items()}, jnp.zeros((SHAPE.layers, SHAPE.experts))
    )


def save(state: State, path: Path) -> None:
    """Writes a checkpoint."""
    np.savez(path, *[np.asarray(leaf) for leaf in jax.tree.leaves(state)])


def restore(like: State, path: Path) -> State:
    """Reads a checkpoint; `like` only lends its structure."""
    with np.load(path) as stored:
        leaves = [jnp.asarray(stored[name]) for name in stored.files]
    state: State = jax.tree.unflatten(jax.tree.structure(like), leaves)
    return state


def run(recipe: Recipe, text: corpus.Corpus, folder: Path) -> Iterator[Row]:
    """All rows of a run in the order they were logged; a later launch may log a step again."""
    wanted = {launch.first for launch in recipe.launches}
    state = fresh(recipe.seed)
    for number, launch in enumerate(recipe.launches):
        if number:
            state = restore(state, folder / f"step-{launch.first}.npz")
        yield from run_launch(launch, state, text, folder, wanted)


def run_launch(launch: Launch, state: State, text: corpus.Corpus, folder: Path, wanted: set[int]) -> Iterator[Row]:
    """One launch. A checkpoint "step-N" holds N updates, and the row after it is N, as in Levanter."""
    step_function, evaluate = compiled(launch)
    held_out = [corpus.batch(text.held_out, 0, i, BATCH, SHAPE.context + 1) for i in range(EVAL_BATCHES)]
    for step in range(launch.first, launch.stop):
        tokens = jnp.asarray(corpus.batch(text.train, DATA_SEED, step, BATCH, SHAPE.context + 1))
        rate = launch.learning_rate(step)
        started = time.perf_counter()
        state, measured = step_function(state, tokens, jnp.float32(step), jnp.float32(rate))
        measured.loss.block_until_ready()
        row = core_row(step, launch, measured, np.asarray(state.bias), time.perf_counter() - started)
        if step % NORMS_EVERY == 0:
            row |= {f"grad/norm/{leaf}": float(norm) for leaf, norm in measured.grad_norms.items()}
            row |= {f"params/norm/{leaf}": float(norm) for leaf, norm in measured.param_norms.items()}
        if step % EVAL_EVERY == 0:
            row["eval/loss"] = float(np.mean([evaluate(state, jnp.asarray(b)) for b in held_out]))
        yield row
        if step + 1 in wanted:
            save(state, folder / f"step-{step + 1}.npz")


def core_row(step: int, launch: Launch, measured: Measured, bias: np.ndarray, seconds: float) -> Row:
    """What is logged at every step."""
    tokens = BATCH * SHAPE.context
    # The entropy of the assignment shares, as the hero run defines it; ln(experts) is a perfect balance.
    load = np.asarray(measured.load)
    entropy = -np.sum(load * np.log(load + 1e-6), axis=1)
    row: Row = {
        "global_step": step,
        "_timestamp": time.time(),
        "run_progress": step / launch.horizon,
        "train/loss": float(measured.loss),
        "train/cross_entropy_loss": float(measured.cross_entropy),
        "optim/learning_rate": launch.learning_rate(step),
        "optim/adam_lr": ADAM_SHARE * launch.learning_rate(step),
        "throughput/duration": seconds,
        "throughput/tokens_per_second": tokens / seconds,
        "throughput/mfu": 100 * tokens * SHAPE.flops_per_token / seconds / NOMINAL_PEAK_FLOPS,
        "throughput/total_tokens": tokens * (step + 1),
        "moe/drop_fraction": float(np.mean(measured.dropped)),
        "train/router/routing_entropy_mean": float(np.mean(entropy)),
        "train/router/bias_min": float(bias.min()),
        "train/router/bias_max": float(bias.max()),
    }
    return row | {f"train/router/layer_{i}/routing_entropy": float(value) for i, value in enumerate(entropy)}


def write(rows: list[Row], path: Path, metadata: dict[str, str]) -> None:
    """A wide table in log order: a column per metric, null where the metric was not logged."""
    exact: dict[str, Any] = {
        "global_step": pa.int32(),
        "_timestamp": pa.float64(),
        "throughput/total_tokens": pa.int64(),
    }
    names = dict.fromkeys(name for row in rows for name in row)
    schema = pa.schema([(name, exact.get(name, pa.float32())) for name in names], metadata=metadata)
    table = pa.table({name: [row.get(name) for row in rows] for name in names}, schema=schema)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Noise does not repeat, so a dictionary only costs; splitting the bytes of the floats is what helps.
    floats = [name for name in names if name not in exact]
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=19,
        use_dictionary=False,
        column_encoding=dict.fromkeys(floats, "BYTE_STREAM_SPLIT"),
    )


def main() -> None:
    """Trains one recipe and writes its log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=RECIPES, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    text = corpus.load()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for row in run(RECIPES[arguments.recipe], text, Path(folder)):
            rows.append(row)
            if int(row["global_step"]) % EVAL_EVERY == 0:
                print(
                    f"step {row['global_step']:5d}  loss {row['train/loss']:.3f}  eval {row['eval/loss']:.3f}  "
                    f"drop {row['moe/drop_fraction']:.4f}  entropy {row['train/router/routing_entropy_mean']:.4f}  "
                    f"{1000 * row['throughput/duration']:.0f} ms",
                    flush=True,
                )
    versions = {"python": platform.python_version(), "jax": jax.__version__, "numpy": np.__version__}
    write(rows, arguments.out, versions | {"recipe": arguments.recipe, "corpus_sha256": text.digest})


if __name__ == "__main__":
    main()
