"""One parameter group among many: its norm runs away while its peers are calm.

Sees: over the last 20 block medians (16 samples each) a leaf whose log slope is five robust standard deviations from
the median slope of its peers, and whose norm changed by at least 10 % more than theirs without slowing down, twice in
a row. S2: the total hides it, since constant groups dominate the sum (marin#8818; pattern P23). Leaves are never
alarmed one by one.
Silent: with fewer than eight leaves, before 20 blocks.
Fooled by: a group that was given another optimizer or learning rate on purpose (declare the event).
False alarms: see docs/detectors.md. Units: log over the window.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detectors import sections
from detectors.finding import Answer, Finding, Recovery
from detectors.noise import BLOCK, NORMAL_MAD
from detectors.sections import Blocks, Leaves, Section
from detectors.series import Array

DETECTOR = ("groups", 2)
BLOCKS = 20
LEAVES = 8
Z = 5.0
EFFECT = math.log(1.10)
STILL = 1e-3  # a norm that moves less over the window is held constant by its optimizer and is nobody's peer
TWICE = 2


def carry(state: Mapping[str, Any], step: float) -> dict[str, Any]:
    """The norms of the parent: a slow run-away outlives a restart."""
    return {"section": sections.before(sections.load(state), step).dump()}


def scan(new: Blocks, leaves: Leaves, state: Mapping[str, Any]) -> tuple[list[Answer], dict[str, Any]]:
    """Findings `trend` (S2) with recoveries, for every block that all live leaves have reached."""
    del leaves
    section = sections.extended(sections.load(state), new)
    fired = dict(state.get("fired", {}))
    said: list[Answer] = []
    todo = sections.due(section)
    for block in todo:
        said += _judge(section, block, fired)
    return said, {"section": sections.forget(section, todo.stop, BLOCKS).dump(), "fired": fired}


def _judge(section: Section, block: int, fired: dict[str, Any]) -> list[Answer]:
    assert section.first is not None
    stop = block + 1 - section.first
    if stop < BLOCKS:
        return []
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(section.value[:, stop - BLOCKS : stop])
    whole = np.isfinite(logs).all(axis=1)
    change = np.median(logs[:, -5:], axis=1) - np.median(logs[:, :5], axis=1)  # deaf to a single block
    was = np.array([name in fired for name in section.names], dtype=bool)
    peers = np.flatnonzero(whole & ((np.abs(change) > STILL) | was))
    if len(peers) < LEAVES:
        return []
    middle = float(np.median(change[peers]))
    scale = NORMAL_MAD * float(np.median(np.abs(change[peers] - middle)))
    moved = change - middle
    far = whole & (np.abs(moved) > max(Z * scale, EFFECT)) & _keeps_on(logs, moved)
    said: list[Answer] = []
    for k in peers[far[peers] | was[peers]]:
        name, step = section.names[k], section.step[k, stop - BLOCKS : stop]
        known = fired.get(name, {"count": 0, "episode": None})
        count, episode = (known["count"] + 1 if far[k] else 0), known["episode"]
        if episode is None and count >= TWICE:
            episode = str(block)
            said.append(_finding(name, step, logs[k], float(moved[k]), middle, scale, block))
        elif episode is not None and not far[k]:  # stays open until the leaf is near its peers again
            said.append(Recovery(DETECTOR[0], name, episode, float(step[-1])))
            episode = None
        fired[name] = {"count": count, "episode": episode}
        if not count and episode is None:
            del fired[name]
    return said


def _keeps_on(logs: Array, moved: Array) -> NDArray[np.bool_]:
    """Whether the second half moved no less than the first: norms of a young run grow fast and slow down."""
    start, middle, end = (np.median(logs[:, part], axis=1) for part in (slice(4), slice(8, 12), slice(-4, None)))
    return np.asarray(np.sign(moved) * (end - middle) >= np.abs(middle - start))


def _finding(name: str, step: Array, logs: Array, moved: float, middle: float, scale: float, block: int) -> Finding:
    return Finding(
        *DETECTOR,
        "trend",
        name,
        "param_norm",
        "up" if moved > 0 else "down",
        float(step[0]),
        float(step[-1]),
        moved,
        "log",
        2,
        str(block),
        {
            "before": math.exp(float(np.median(logs[:5]))),
            "after": math.exp(float(np.median(logs[-5:]))),
            "z": moved / scale if scale > 0 else math.inf,
            "peers_changed": middle,
            "blocks": BLOCKS,
            "block_samples": BLOCK,
            "samples": (block + 1) * BLOCK,
            "cadence": float(step[-1] - step[0]) / ((BLOCKS - 1) * BLOCK),
        },
    )
