"""Experts that get almost no tokens: the load by expert, beside the mean of its layer.

Sees: an expert whose block medians (16 samples) stay below a tenth of the mean load of its layer for 1,000 steps and eight
blocks: S2, by the name of the first, told again when twice as many are idle (pattern P50: such an expert learns nothing).
A layer is the metrics whose names differ in the number of the expert only.
Silent: with fewer than eight experts in a layer; on names without the word expert; on an expert that is rarely used but
more than that; on values below zero.
Fooled by: experts kept in reserve on purpose; a load that is counted on one device only.
False alarms: see docs/detectors.md. Units: log ratio to the layer's mean.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from detectors import sections
from detectors.finding import Answer, Finding, Recovery
from detectors.noise import BLOCK
from detectors.sections import Blocks, Leaves, Section
from detectors.series import Array

DETECTOR = ("idle", 1)
EXPERTS = 8
SHARE = 0.1  # of the layer's mean
STEPS, BLOCKS = 1_000, 8  # without tokens
LEAST = 1e-3  # of the mean, where an expert had none at all: the logarithm of nothing is no number
EXPERT = re.compile(r"(expert[s_./-]*)\d+", re.IGNORECASE)


def carry(state: Mapping[str, Any], step: float) -> dict[str, Any]:
    """Since when experts were idle before `step`: a restart wakes none, and is told of those that stay so."""
    return {
        layer: {
            "since": {name: begun for name, begun in known["since"].items() if begun[0] < step},
            "section": sections.before(sections.load(known), step).dump(),
        }
        for layer, known in state.items()
    }


def scan(new: Blocks, leaves: Leaves, state: Mapping[str, Any]) -> tuple[list[Answer], dict[str, Any]]:
    """Findings `level` (S2) with recoveries; a state a layer."""
    layers: dict[str, dict[str, Array]] = {}
    for name, rows in new.items():
        if leaves[name][0] == "router_load" and EXPERT.search(name):
            layers.setdefault(EXPERT.sub(r"\1#", name), {})[name] = rows
    said: list[Answer] = []
    after = dict(state)
    for layer, blocks in sorted(layers.items()):
        known = {"since": {}, "told": 0, "episode": None, **state.get(layer, {})}
        known["since"] = dict(known["since"])
        section = sections.extended(sections.load(known), blocks)
        todo = sections.due(section)
        for block in todo:
            said += _judge(section, block, known)
        after[layer] = {**known, "section": sections.forget(section, todo.stop, 1).dump()}
    return said, after


def _judge(section: Section, block: int, known: dict[str, Any]) -> list[Answer]:
    """`known["since"]`: expert -> the step behind which it is idle, and the blocks since."""
    assert section.first is not None
    column = block - section.first
    load, step = section.value[:, column], section.step[:, column]
    seen = np.isfinite(load) & (load >= 0)
    mean = float(load[seen].mean()) if seen.sum() >= EXPERTS else 0.0
    if mean <= 0:
        return []
    since = known["since"]
    for row in np.flatnonzero(seen).tolist():
        name = section.names[row]
        if load[row] >= SHARE * mean:
            since.pop(name, None)
        else:
            begun, blocks = since.get(name, (_end_before(section, row, column), 0))
            since[name] = (begun, blocks + 1)
    now = float(step[seen].max())
    idle = sorted(name for name, (begun, blocks) in since.items() if blocks >= BLOCKS and now - begun >= STEPS)
    if known["told"] and not idle:
        episode, metric = known["episode"], known["metric"]
        known.update(told=0, episode=None)
        return [Recovery(DETECTOR[0], metric, episode, now)]
    if not idle or len(idle) < 2 * known["told"]:
        return []
    if not known["told"]:
        first = min(idle, key=lambda name: (since[name][0], name))
        known.update(episode=str(block), metric=first, onset=since[first][0])
    known["told"] = len(idle)
    value = float(load[section.names.index(known["metric"])])
    return [_finding(known, value, mean, idle, int(seen.sum()), now, block)]


def _end_before(section: Section, row: int, column: int) -> float:
    """The last step of the block before, where there is one: the expert went idle behind it."""
    steps = section.step[row, max(column - 1, 0) : column + 1]
    return float(steps[np.isfinite(steps)][0])


def _finding(
    known: Mapping[str, Any], value: float, mean: float, idle: list[str], experts: int, now: float, block: int
) -> Finding:
    away = value / mean if math.isfinite(value) else 0.0
    return Finding(
        *DETECTOR,
        "level",
        known["metric"],
        "router_load",
        "down",
        known["onset"],
        now,
        math.log(max(away, LEAST)),
        "log",
        2,
        known["episode"],
        {
            "before": mean,
            "after": away * mean,
            "experts": experts,
            "experts_idle": len(idle),
            "idle": idle[:EXPERTS],
            "samples": (block + 1) * BLOCK,
            "samples_out": known["since"][idle[0]][1] * BLOCK,
            "cadence": (now - known["onset"]) / (known["since"][idle[0]][1] * BLOCK),
        },
    )
