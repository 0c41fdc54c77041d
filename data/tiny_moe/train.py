"""Trains the tiny Mixture-of-Experts model and records what a trainer logs, healthy or with one real fault.

    python data/tiny_moe/train.py --recipe healthy --out data/runs/healthy.parquet

The recipes stand in recipes.py. Nothing in the log is made up; see data/README.md.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import corpus
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from model import Params, Routing, forward, has_constant_norm, init
from recipes import ADAM_SHARE, RECIPES, Launch, Recipe
from shape import Shape

EVAL_BATCHES = 16
BETA1, BETA2, EPSILON = 0.9, 0.98, 1e-8
NOMINAL_PEAK_FLOPS = 1e11  # a stated constant, not this machine's: it only makes the MFU a plausible percentage
SHARD = 64  # batches
LOSS_SCALE, DOUBLED_EVERY = 2.0**10, 30  # of a launch in half precision

BUSY = """
import sys, time
while True:
    until = time.perf_counter() + 0.005
    while time.perf_counter() < until:
        pass
    time.sleep(0.005 / float(sys.argv[1]) - 0.005)
"""

TIMES = {"throughput/duration", "throughput/tokens_per_second", "throughput/mfu"}

Row = dict[str, float | int]


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


Step = Callable[[State, jax.Array, jax.Array, jax.Array, jax.Array], tuple[State, Measured]]
Evaluate = Callable[[State, jax.Array], jax.Array]


def losses(
    params: Params, bias: jax.Array, tokens: jax.Array, targets: jax.Array, launch: Launch, shape: Shape
) -> tuple[jax.Array, tuple[jax.Array, list[Routing]]]:
    """The optimised loss (with z-loss), the cross entropy alone, and each layer's routing."""
    logits, routings = forward(params, bias, tokens, shape, launch.capacity_factor)
    log_sum = jax.nn.logsumexp(logits, axis=-1)
    hit = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    cross_entropy = jnp.mean(log_sum - hit)
    return cross_entropy + launch.z_loss * jnp.mean(log_sum**2), (cross_entropy, routings)


def take_step(
    state: State,
    tokens: jax.Array,
    targets: jax.Array,
    step: jax.Array,
    rate: jax.Array,
    *,
    launch: Launch,
    shape: Shape,
) -> tuple[State, Measured]:
    """Gradient, optimizer, router bias. The norms are those before the update, as the gradient saw them."""
    (loss, (cross_entropy, routings)), grads = jax.value_and_grad(losses, has_aux=True)(
        state.params, state.bias, tokens, targets, launch, shape
    )
    if launch.half_precision:
        grads = through_half_precision(grads, LOSS_SCALE * 2.0 ** ((step - launch.first) // DOUBLED_EVERY))
    load = jnp.stack([r.load for r in routings])
    dropped = jnp.stack([r.dropped for r in routings])
    measured = Measured(loss, cross_entropy, load, dropped, norms(grads), norms(state.params))
    bias = state.bias + launch.balance_rate * jnp.sign(1 / shape.experts - load)
    return update(state, grads, step, rate, launch)._replace(bias=bias), measured


def through_half_precision(grads: Params, scale: jax.Array) -> Params:
    """What float16 leaves of the scaled gradients: infinity beyond 65,504, zero below 6e-8."""
    return {leaf: (grad * scale).astype(jnp.float16).astype(jnp.float32) / scale for leaf, grad in grads.items()}


def update(state: State, grads: Params, step: jax.Array, rate: jax.Array, launch: Launch) -> State:
    """Adam; the large matrices move along Adam's direction on the sphere of their first norm ("hyperball")."""
    params, mean, square = {}, {}, {}
    for leaf, grad in grads.items():
        mean[leaf] = BETA1 * state.mean[leaf] + (1 - BETA1) * grad
        square[leaf] = BETA2 * state.square[leaf] + (1 - BETA2) * grad**2
        unbiased = square[leaf] / (1 - BETA2 ** (step + 1))
        direction = mean[leaf] / (1 - BETA1 ** (step + 1)) / (jnp.sqrt(unbiased) + EPSILON)
        old = state.params[leaf]
        if has_constant_norm(leaf) and leaf not in launch.adam_leaves:
            radius = jnp.linalg.norm(old)
            moved = old - rate * radius * direction / (jnp.linalg.norm(direction) + EPSILON)
            params[leaf] = moved * radius / jnp.linalg.norm(moved) if launch.on_sphere else moved
        else:
            decay = 0.0 if leaf in launch.undecayed else launch.weight_decay
            params[leaf] = old - ADAM_SHARE * rate * (direction + decay * old)
    return State(params, mean, square, state.bias)


def norms(tree: Params) -> Params:
    """The L2 norm of each leaf and of all of them together."""
    leaves = {leaf: jnp.sqrt(jnp.sum(value**2)) for leaf, value in tree.items()}
    return leaves | {"total": jnp.sqrt(sum(norm**2 for norm in leaves.values()))}


def compiled(launch: Launch, shape: Shape) -> tuple[Step, Evaluate]:
    """The two functions of a launch, traced anew each time: a restarted trainer compiles again."""
    step = jax.jit(partial(take_step, launch=launch, shape=shape), donate_argnums=0)

    def evaluate(state: State, tokens: jax.Array) -> jax.Array:
        return losses(state.params, state.bias, tokens[:, :-1], tokens[:, 1:], launch, shape)[1][0]

    return step, jax.jit(evaluate)


def fresh(shape: Shape, seed: int) -> State:
    """The state before the first step: random weights, an optimizer and a router without history."""
    params = init(shape, seed)
    zeros = {leaf: jnp.zeros_like(value) for leaf, value in params.items()}
    return State(
        params, zeros, {leaf: jnp.zeros_like(v) for leaf, v in zeros.items()}, jnp.zeros((shape.layers, shape.experts))
    )


def save(state: State, path: Path) -> None:
    """Writes a checkpoint and waits until the disk has it."""
    with path.open("wb") as file:
        np.savez(file, *[np.asarray(leaf) for leaf in jax.tree.leaves(state)])
        file.flush()
        os.fsync(file.fileno())


def restore(like: State, path: Path, forgets: tuple[str, ...]) -> State:
    """Reads a checkpoint; `like` only lends its structure. What the launch forgets starts at zero."""
    with np.load(path) as stored:
        leaves = [jnp.asarray(stored[name]) for name in stored.files]
    state: State = jax.tree.unflatten(jax.tree.structure(like), leaves)
    return state._replace(**{part: jax.tree.map(jnp.zeros_like, getattr(state, part)) for part in forgets})


def read_batch(text: corpus.Corpus, recipe: Recipe, launch: Launch, step: int) -> tuple[jax.Array, jax.Array]:
    """Inputs and targets of a step, [batch, context] each."""
    length = recipe.shape.context + 1
    number = step % SHARD if launch.loader == "shard" else step
    tokens = corpus.batch(text.train, recipe.data_seed, number, launch.batch, length)
    if launch.loader == "neighbours":
        tokens = corpus.neighbours(text.train, recipe.data_seed, step, launch.batch, length)
    if launch.prose:
        prose = corpus.batch(text.prose, recipe.data_seed, step, round(launch.prose * launch.batch), length)
        tokens = np.concatenate([tokens[len(prose) :], prose])
    if launch.poisoned[0] <= step < launch.poisoned[1]:
        half = launch.batch // 2
        tokens = np.concatenate([tokens[half:], corpus.one_line(text.train, recipe.data_seed, half, length)])
    targets = tokens[:, 1:]
    if launch.label_noise:
        targets = corpus.mislabelled(targets, recipe.data_seed, step, launch.label_noise)
    return jnp.asarray(tokens[:, :-1]), jnp.asarray(targets)


@contextmanager
def neighbour(share: float) -> Iterator[None]:
    """Another process that computes on the same core for a share of the time it gets."""
    process = subprocess.Popen([sys.executable, "-c", BUSY, str(share)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def run(recipe: Recipe, text: corpus.Corpus, folder: Path) -> Iterator[Row]:
    """All rows of a run in the order they were logged; a later launch may log a step again."""
    wanted = {launch.first for launch in recipe.launches}
    state = fresh(recipe.shape, recipe.seed)
    for number, launch in enumerate(recipe.launches):
        if number:
            time.sleep(launch.hang)
            state = restore(state, folder / f"step-{launch.first}.npz", launch.forgets)
        for row, reached in run_launch(recipe, launch, state, text):
            yield row
            state = reached
            if row["global_step"] + 1 in wanted:
                save(state, folder / f"step-{row['global_step'] + 1}.npz")


def run_launch(recipe: Recipe, launch: Launch, state: State, text: corpus.Corpus) -> Iterator[tuple[Row, State]]:
    """One launch. A checkpoint "step-N" holds N updates, and the row after it is N, as in Levanter."""
    take, evaluate = compiled(launch, recipe.shape)
    length = recipe.shape.context + 1
    held_out = [corpus.batch(text.held_out, 0, i, 8, length) for i in range(EVAL_BATCHES)]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as beside:
        for step in range(launch.first, launch.stop):
            if step == launch.contended[0] < launch.contended[1]:
                beside.enter_context(neighbour(launch.contention))
            tokens, targets = read_batch(text, recipe, launch, step)
            rate = launch.learning_rate(step)
            started = time.perf_counter()
            state, measured = take(state, tokens, targets, jnp.float32(step), jnp.float32(rate))
            measured.loss.block_until_ready()
            if launch.pause_every and step % launch.pause_every == 0:
                save(state, Path(folder) / "inside.npz")
            seconds = time.perf_counter() - started
            evaluation = {}
            if step % recipe.eval_every == 0:
                evaluation["eval/loss"] = float(np.mean([evaluate(state, jnp.asarray(b)) for b in held_out]))
                if launch.evaluates_inside:
                    seconds = time.perf_counter() - started
            row = core_row(step, recipe, launch, measured, np.asarray(state.bias), seconds)
            if step % recipe.norms_every == 0:
                row |= {f"grad/norm/{leaf}": float(norm) for leaf, norm in measured.grad_norms.items()}
                row |= {f"params/norm/{leaf}": float(norm) for leaf, norm in measured.param_norms.items()}
            yield row | evaluation, state


def core_row(step: int, recipe: Recipe, launch: Launch, measured: Measured, bias: np.ndarray, seconds: float) -> Row:
    """What is logged at every step."""
    shape, tokens = recipe.shape, launch.batch * recipe.shape.context
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
        "throughput/mfu": 100 * tokens * shape.flops_per_token / seconds / NOMINAL_PEAK_FLOPS,
        "throughput/total_tokens": shape.context * recipe.sequences(step + 1),
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
    parser.add_argument("--untimed", action="store_true", help="leave the step times out: other work disturbs them")
    arguments = parser.parse_args()
    text = corpus.load()
    recipe = RECIPES[arguments.recipe]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for row in run(recipe, text, Path(folder)):
            rows.append(row)
            if "eval/loss" in row:
                print(
                    f"step {row['global_step']:5d}  loss {row['train/loss']:.3f}  eval {row['eval/loss']:.3f}  "
                    f"drop {row['moe/drop_fraction']:.4f}  entropy {row['train/router/routing_entropy_mean']:.4f}  "
                    f"{1000 * row['throughput/duration']:.0f} ms",
                    flush=True,
                )
    if arguments.untimed:
        rows = [{name: value for name, value in row.items() if name not in TIMES} for row in rows]
    versions = {"python": platform.python_version(), "jax": jax.__version__, "numpy": np.__version__}
    write(rows, arguments.out, versions | {"recipe": arguments.recipe, "corpus_sha256": text.digest})


if __name__ == "__main__":
    main()
