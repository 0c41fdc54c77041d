"""Routing by layer and expert: one layer that leaves its peers, all that move together, and what is no news."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors import Finding, Recovery, layers
from detectors.layers import p_family, scan

LAYERS, BLOCKS = 24, 260


def blocks_of(values):
    """(metrics, blocks) of block medians, a block of 16 samples, a sample a step."""
    at = np.arange(values.shape[1])
    return {f"train/router/layer_{k}/x": np.column_stack([at, at * 16.0 + 15, row]) for k, row in enumerate(values)}


def told(new, role, state=None):
    said, _ = scan(new, dict.fromkeys(new, (role, "layer")), state or {})
    return [(f.severity, f.kind, f.direction, f.metric) for f in said if isinstance(f, Finding)], said


def calm_loads(seed=0, size=BLOCKS):
    """Loads that differ from layer to layer, sway together and each for itself."""
    rng = np.random.default_rng(seed)
    own, common = rng.standard_normal((LAYERS, size)), rng.standard_normal(size)
    return np.exp(0.3 * rng.standard_normal(LAYERS)[:, None] + 0.03 * own + 0.05 * common)


def test_layers_that_sway_together_are_quiet():
    assert told(blocks_of(calm_loads()), "router_load")[0] == []


def test_one_layer_whose_load_grows_is_named_then_paged():
    loads = calm_loads()
    loads[5] *= np.exp(np.clip(np.arange(BLOCKS) - 160, 0, 60) * 0.04)  # to 11 times
    found, said = told(blocks_of(loads), "router_load")
    assert [(s, d, m) for s, _, d, m in found] == [(n, "up", "train/router/layer_5/x") for n in (2, 3)]
    first = said[0]
    assert 160 * 16 - 64 <= first.onset_step <= first.detected_step <= 180 * 16
    assert (first.evidence["alone"], first.evidence["layers"], first.evidence["layers_out"]) == (1, LAYERS, 1)


def test_a_layer_that_jumps_is_a_level_with_its_onset_and_recovers():
    loads = calm_loads()
    loads[5, 170:210] *= 2
    found, said = told(blocks_of(loads), "router_load")
    assert [f[:3] for f in found] == [(2, "level", "up")]
    assert abs(said[0].onset_step - 170 * 16) <= 32
    assert said[0].evidence["after"] / said[0].evidence["before"] == pytest.approx(2, rel=0.15)
    assert isinstance(said[1], Recovery)
    assert 210 * 16 <= said[1].step <= 220 * 16


def test_the_imbalance_of_all_layers_is_told_once():
    loads = calm_loads() * np.exp(np.clip(np.arange(BLOCKS) - 150, 0, 80) * 0.01)
    found, said = told(blocks_of(loads), "router_load")
    assert [f[:3] for f in found] == [(2, "trend", "up")]
    assert said[0].evidence["alone"] == 0
    assert said[0].evidence["p_family"] < 1e-2


def test_entropy_that_falls_in_all_layers_grows_graver():
    rng = np.random.default_rng(1)
    entropy = 5.95 - 0.002 * rng.random((LAYERS, BLOCKS)) - 0.005 * np.clip(np.arange(BLOCKS) - 150, 0, 100)
    found, _ = told(blocks_of(entropy), "router_entropy")
    assert [f[:3] for f in found] == [(1, "level", "down"), (2, "trend", "down"), (3, "trend", "down")]


def test_entropy_of_one_layer_that_collapses_is_that_layer_s():
    rng = np.random.default_rng(1)
    entropy = 5.95 - 0.002 * rng.random((LAYERS, BLOCKS))
    entropy[3, 200:] -= 1.0
    found, said = told(blocks_of(entropy), "router_entropy")
    assert [f[:3] for f in found] == [(3, "level", "down")]
    assert said[-1].evidence["before"] == pytest.approx(5.95, abs=0.01)
    assert said[-1].evidence["after"] == pytest.approx(4.95, abs=0.01)


def test_drops_of_a_layer_below_a_hundredth_are_no_news():
    drops = np.full((LAYERS, BLOCKS), 0.001)
    drops[2, 200:] = 0.004
    assert told(blocks_of(drops), "token_drop")[0] == []
    drops[2, 200:] = 0.05
    assert [f[:3] for f in told(blocks_of(drops), "token_drop")[0]] == [(2, "level", "up")]


def test_the_first_2000_samples_are_the_routers_own():
    loads = calm_loads()
    loads[5, 60:100] *= 5
    assert told(blocks_of(loads), "router_load")[0] == []


def test_fewer_than_eight_layers_are_no_section():
    loads = calm_loads()[:7]
    loads[5, 200:] *= 5
    assert told(blocks_of(loads), "router_load")[0] == []


def test_an_expert_counts_as_the_fullest_of_its_layer():
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(16, 500.0), (12, BLOCKS)).transpose(0, 2, 1)
    shares[4, 7, 180:] += 0.3
    at = np.arange(BLOCKS)
    new = {
        f"moe/layer{k}/expert{j}_load": np.column_stack([at, at * 16.0 + 15, shares[k, j]])
        for k in range(12)
        for j in range(16)
    }
    found, said = told(new, "router_load")
    assert {f[3] for f in found} == {"moe/layer4/fullest expert_load"}
    assert [f[0] for f in found] == [3]
    assert said[0].evidence["after"] > 3


@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(1, BLOCKS - 1), max_size=6), expert=st.booleans())
def test_slices_say_the_same_to_the_bit(cuts, expert):
    loads = calm_loads(2)
    loads[5, 150:200] *= 4
    loads[:, 220:] *= 2
    whole = blocks_of(loads)
    if expert:
        whole = {name.replace("x", f"expert_{e}"): rows * [1, 1, 1 + e] for name, rows in whole.items() for e in (0, 1)}
    kinds = dict.fromkeys(whole, ("router_load", "layer"))
    state, said = {}, []
    for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), BLOCKS], strict=True):
        found, state = scan({name: rows[a:b] for name, rows in whole.items() if b > a}, kinds, state)
        said += found
    assert said == scan(whole, kinds, {})[0]
    assert len(said) > 2 or expert


def test_a_restart_keeps_the_places_of_the_parent():
    loads = calm_loads()
    whole = blocks_of(loads)
    kinds = dict.fromkeys(whole, ("router_load", "layer"))
    _, state = scan({name: rows[:200] for name, rows in whole.items()}, kinds, {})
    carried = layers.carry(state, 190 * 16.0)
    loads[3] *= 2
    after = {name: rows[190:] - [30, 0, 0] for name, rows in blocks_of(loads).items()}
    found, _ = scan(after, kinds, carried)
    assert [(f.severity, f.metric) for f in found if isinstance(f, Finding)] == [(2, "train/router/layer_3/x")]


def test_a_family_that_rises_has_a_small_p_and_noise_has_not():
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((200, 20))
    assert p_family(noise + np.arange(20)) < 1e-4
    assert p_family(noise) > 1e-3
    assert p_family(noise[:, :4]) == 1.0
