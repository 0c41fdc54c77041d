"""A store of the size of a 48-layer mixture of experts, about 3,700 metrics, and how fast it is judged.

    python tests/bench/hero_size.py STORE     judges what is not judged yet; prints samples, seconds, peak MB

Names and cadences are those of an open trainer (Levanter's callbacks and tree statistics, Marin's Grug router metrics):
41 of the whole run and 720 of the router a step, 2,762 norms of leaves every tenth step, 120 evaluations every
3,000, the data mixture at its stages.
"""

import json
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from flows.playbook import load_playbook
from flows.records import STORED_SCHEMA, Attempt, Description
from flows.sources.roles import role_of
from flows.stages.judge import judge
from flows.store import Store, open_store

RUN, LAYERS, STARTED = "hero-size", 48, 1.7e9
CORE = [
    "train/loss", "train/cross_entropy_loss", "global_step", "run_progress", "optim/learning_rate", "optim/adam_lr",
    *(f"throughput/{each}" for each in (
        "total_tokens", "total_gflops", "examples_per_second", "tokens_per_second", "duration", "gflops_per_second", "mfu",
        "hook_time", "loading_time", "checkpoint_time", "iteration_time")),
    *(f"memory/{each}_gib" for each in ("in_use", "peak", "limit")),
    *(f"train/router/{each}" for each in (
        "routing_entropy_mean", "load_balancing_loss", "router_z_loss", "capacity_overflow_rate_mean",
        "sender_overflow_rate_mean", "receiver_overflow_rate_mean", "skipped_padding_fraction_mean", "margin_min",
        "margin_max", "bias_min", "bias_max")),
    *(f"moe/{each}" for each in (
        "dropped_assignments", "drop_fraction", "sender_dropped_assignments", "sender_drop_fraction",
        "receiver_dropped_assignments", "receiver_drop_fraction", "receiver_drop_fraction_of_received",
        "skipped_padding_fraction", "valid_assignments", "skipped_assignments")),
]  # fmt: skip
ROUTER = [
    f"train/router/layer_{layer}/{each}" for layer in range(LAYERS) for each in (
        "routing_entropy", "load_balancing_loss", "router_z_loss", "capacity_overflow_rate", "margin_min", "margin_max",
        *(f"routing_hist/{part}" for part in (
            "min", "max", "num", "nonzero_count", "sum", "sum_squares", "mean", "variance", "rms")))
]  # fmt: skip
HELD = [  # their optimizer holds these norms
    "attn.w_q", "attn.w_k", "attn.w_v", "attn.w_o", "attn_gated_norm.w_down", "attn_gated_norm.w_up",
    "mlp.expert_mlp.w_gate", "mlp.expert_mlp.w_up", "mlp.expert_mlp.w_down", "mlp.w_latent_down", "mlp.w_latent_up",
    "mlp_gated_norm.w_down", "mlp_gated_norm.w_up", *(f"shared.{k}.w_{each}" for k in (0, 1) for each in ("gate", "up", "down")),
]  # fmt: skip
FREE = [
    "rms_attn.weight", "attn.attn_gate", "attn.sconv_k.weight", "rms_mlp.weight", "mlp.router", "mlp.router_bias",
    "mlp.latent_norm.weight", "sconv_attn.weight", "sconv_mlp.weight",
]  # fmt: skip
TOP = [
    "token_embed", "embed_norm.weight", "embed_gated_norm.w_down", "embed_gated_norm.w_up", "output_proj", "final_norm.weight",
    "final_gated_norm.w_down", "final_gated_norm.w_up", "total",
]  # fmt: skip
LEAVES = [*(f"stacked_blocks.{k}.{leaf}" for k in [*range(LAYERS), "stacked"] for leaf in [*HELD, *FREE]), *TOP]
EVALS = [
    f"{prefix}/paloma/set_{k}/{each}"
    for prefix in ("eval", "eval_dropless")
    for k in range(30)
    for each in ("loss", "bpb")
]
MIXTURE = [f"mixture/weight/cell_{k}" for k in range(57)]


class Family(NamedTuple):
    """Metrics that are logged together, every `every` steps."""

    names: list[str]
    every: int


FAMILIES = [
    Family([*CORE, *ROUTER], 1),
    Family([f"{kind}/norm/{leaf}" for kind in ("grad", "params") for leaf in LEAVES], 10),
    Family(EVALS, 3_000),
    Family(MIXTURE, 108_000),
]
METRICS = sum(len(each.names) for each in FAMILIES)


def made(first: int, stop: int, seed: int = 0) -> Iterator[pl.DataFrame]:
    """Rows (STORED_SCHEMA, source order) of the steps first .. stop - 1, some hundred steps a frame."""
    for begin in range(first, stop, 500):
        yield _rows(np.arange(begin, min(begin + 500, stop)), np.random.default_rng([seed, begin]))


def _rows(steps: np.ndarray, rng: np.random.Generator) -> pl.DataFrame:
    parts = []
    for family in FAMILIES:
        mine = steps[steps % family.every == 0]
        if len(mine):
            value = np.stack([_values(name, mine, rng) for name in family.names], axis=1)
            name = pl.Series(family.names).gather(np.tile(np.arange(len(family.names)), len(mine)))
            parts.append(
                pl.DataFrame({"step": np.repeat(mine, len(family.names)), "name": name, "value": value.reshape(-1)})
            )
    rows = pl.concat(parts).sort("step", maintain_order=True)
    seconds = STARTED + 18.0 * pl.col("step")
    return rows.with_columns(
        pl.col("step").cast(pl.Float64), attempt=0, late=False, logged_at=(seconds * 1e6).cast(pl.Datetime("us"))
    ).select(pl.col(name).cast(kind) for name, kind in STORED_SCHEMA.items())


def _values(name: str, steps: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Healthy noise around the levels that such a run has."""
    noise = rng.standard_normal(len(steps))
    if name.endswith("loss") and not name.startswith("train/router"):
        return (1.7 + 8 * (steps + 1.0) ** -0.35) * np.exp(0.005 * noise)
    if name.startswith("params/norm/"):
        held = name.endswith((*HELD, "total", "output_proj"))
        return 268 * (1 + 1e-5 * noise) if held else 60 * (steps + 10.0) ** 0.05 * (1 + 1e-3 * noise)
    if name.startswith("grad/norm/"):
        return np.zeros(len(steps)) if name.endswith("router_bias") else 0.3 * np.exp(0.1 * noise)
    if "entropy" in name:
        return np.log(384) - 0.003 * np.exp(0.05 * noise)
    if "learning_rate" in name or name.endswith("_lr"):
        return 3e-3 * np.minimum(1, (steps + 1) / 500)
    if name.startswith("throughput/total") or name in ("global_step", "run_progress"):
        return 4.6e7 * (steps + 1.0)
    if "fraction" in name or "rate" in name:
        return 0.03 * np.exp(0.05 * noise)
    return 20 * (1 + 0.008 * noise)


def fill(store: Store, first: int, stop: int) -> None:
    """Append the made steps, unjudged."""
    store.register_run(Description(RUN, "made", "test", "step"))
    for rows in made(first, stop):
        store.append(RUN, rows, [Attempt(0, 0.0, None, "start")], "", "", {}, role_of)


def judged(path: Path) -> dict[str, float]:
    """Judge what is not judged yet: samples, wall seconds, seconds of compute."""
    store = open_store(path, clock=time.time)
    began, used = time.perf_counter(), time.process_time()
    samples = judge(store, RUN, load_playbook, clock=time.time).samples
    return {"samples": samples, "seconds": time.perf_counter() - began, "compute": time.process_time() - used}


if __name__ == "__main__":
    what = judged(Path(sys.argv[1]))
    print(json.dumps({**what, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
