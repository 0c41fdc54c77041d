"""A tiny Mixture-of-Experts transformer: top-k routing, a capacity that drops, a bias that balances the load."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from shape import Shape

# Leaf name -> array. A flat mapping, because the names are what the norms are logged under.
Params = dict[str, jax.Array]

CONSTANT_NORM = (".attn.w_", ".expert_mlp.w_", "output_proj")


class Routing(NamedTuple):
    """What one layer's router did with one batch."""

    load: jax.Array  # [experts] share of the assignments, before any drop
    dropped: jax.Array  # [] share of the assignments that found their expert full


def has_constant_norm(leaf: str) -> bool:
    """Whether the optimizer keeps the Frobenius norm of this leaf where it started."""
    return any(part in leaf for part in CONSTANT_NORM)


def init(shape: Shape, seed: int) -> Params:
    """Random weights: variance 1/fan-in; the router starts small, so that it starts undecided."""
    width, hidden, experts = shape.width, shape.hidden, shape.experts
    sizes: dict[str, tuple[int, ...]] = {"token_embed": (shape.vocabulary, width)}
    for i in range(shape.layers):
        block = f"stacked_blocks.{i}"
        sizes |= {f"{block}.attn.{w}": (width, width) for w in ("w_q", "w_k", "w_v", "w_o")}
        sizes[f"{block}.mlp.router"] = (width, experts)
        sizes |= {f"{block}.mlp.expert_mlp.{w}": (experts, width, hidden) for w in ("w_gate", "w_up")}
        sizes[f"{block}.mlp.expert_mlp.w_down"] = (experts, hidden, width)
        sizes |= {f"{block}.{norm}.weight": (width,) for norm in ("rms_attn", "rms_mlp")}
    sizes |= {"final_norm.weight": (width,), "output_proj": (width, shape.vocabulary)}
    keys = jax.random.split(jax.random.key(seed), len(sizes))
    return {leaf: _leaf(leaf, size, key) for (leaf, size), key in zip(sizes.items(), keys, strict=True)}


def _leaf(leaf: str, size: tuple[int, ...], key: jax.Array) -> jax.Array:
    if len(size) == 1:
        return jnp.ones(size)
    fan_in = size[-1] if leaf == "token_embed" else size[-2]
    scale = 0.1 if leaf.endswith("router") else 1.0
    return scale * jax.random.normal(key, size) / math.sqrt(fan_in)


def forward(
    params: Params, bias: jax.Array, tokens: jax.Array, shape: Shape, capacity_factor: float
) -> tuple[jax.Array, list[Routing]]:
    """Logits of every position, and each layer's routing. `bias` is [layers, experts] and gets no gradient."""
    x = params["token_embed"][tokens]
    routings = []
    for i in range(shape.layers):
        block = f"stacked_blocks.{i}"
        x = x + _attention(params, block, _rms(x, params[f"{block}.rms_attn.weight"]), shape)
        y, routing = _experts(
            params, block, bias[i], _rms(x, params[f"{block}.rms_mlp.weight"]), shape, capacity_factor
        )
        x = x + y
        routings.append(routing)
    return _rms(x, params["final_norm.weight"]) @ params["output_proj"], routings


def _rms(x: jax.Array, weight: jax.Array) -> jax.Array:
    return weight * x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def _attention(params: Params, block: str, x: jax.Array, shape: Shape) -> jax.Array:
    batch, length, width = x.shape
    size = width // shape.heads

    def split(weight: str) -> jax.Array:
        return (x @ params[f"{block}.attn.{weight}"]).reshape(batch, length, shape.heads, size).swapaxes(1, 2)

    query, key, value = _rotate(split("w_q")), _rotate(split("w_k")), split("w_v")
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(size)
    future = np.triu(np.full((length, length), -1e9, dtype=np.float32), k=1)
    mixed = jax.nn.softmax(scores + future) @ value
    return mixed.swapaxes(1, 2).reshape(batch, length, width) @ params[f"{block}.attn.w_o"]


def _rotate(x: jax.Array) -> jax.Array:
    """Rotary positions: turns each pair of features by an angle that grows with the position."""
    length, size = x.shape[-2:]
    # Constants, not traced: fused into their users they would be computed again for every sequence.
    angle = np.arange(length)[:, None] * 1000.0 ** (-np.arange(size // 2) / (size // 2))
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    left, right = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([left * cos - right * sin, left * sin + right * cos], axis=-1)


def _experts(
    params: Params, block: str, bias: jax.Array, x: jax.Array, shape: Shape, capacity_factor: float
) -> tuple[jax.Array, Routing]:
    flat = x.reshape(-1, shape.width)
    assignments = flat.shape[0] * shape.chosen
    capacity = math.ceil(capacity_factor * assignments / shape.experts)

    score = jax.nn.sigmoid(flat @ params[f"{block}.mlp.router"])
    # The bias decides who is chosen, never how much the chosen count: it balances without a loss term.
    _, expert = jax.lax.top_k(jax.lax.stop_gradient(score) + bias, shape.chosen)
    gate = jnp.take_along_axis(score, expert, axis=1)
    gate = gate / jnp.sum(gate, axis=1, keepdims=True)

    # First choices of all tokens queue before any second choice; who finds the queue full is dropped.
    queue = expert.T.reshape(-1)
    member = jax.nn.one_hot(queue, shape.experts, dtype=jnp.int32)
    place = jnp.sum((jnp.cumsum(member, axis=0) - 1) * member, axis=1)
    kept = place < capacity
    slots = shape.experts * capacity
    slot = jnp.where(kept, queue * capacity + place, slots)

    token = jnp.tile(jnp.arange(flat.shape[0]), shape.chosen)
    source = jnp.full(slots + 1, flat.shape[0]).at[slot].set(token)[:slots]
    padded = jnp.concatenate([flat, jnp.zeros((1, shape.width))])  # an empty slot reads the row of zeros
    inputs = padded[source].reshape(shape.experts, capacity, shape.width)
    weights = {w: params[f"{block}.mlp.expert_mlp.{w}"] for w in ("w_gate", "w_up", "w_down")}
    inner = jax.nn.silu(inputs @ weights["w_gate"]) * (inputs @ weights["w_up"])
    outputs = (inner @ weights["w_down"]).reshape(slots, shape.width)
    outputs = jnp.concatenate([outputs, jnp.zeros((1, shape.width))])  # a dropped token reads the row of zeros
    y = jnp.sum(outputs[slot].reshape(shape.chosen, -1, shape.width) * gate.T[:, :, None], axis=0)

    routing = Routing(jnp.sum(member, axis=0) / assignments, 1.0 - jnp.mean(kept.astype(jnp.float32)))
    return y.reshape(x.shape), routing
