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

from detectors.finding import Answer, Finding, Recovery
from detectors.noise import BLOCK, NORMAL_MAD

DETECTOR = ("groups", 1)
BLOCKS = 20
LEAVES = 8
Z = 5.0
EFFECT = math.log(1.10)
STILL = 1e-3  # a norm that moves less over the window is held constant by its optimizer and is nobody's peer
TWICE = 2
LATE = 2  # blocks by which a leaf may lag before the others are judged without it

Blocks = Mapping[str, list[tuple[int, float, float]]]  # leaf -> (block number, step, median of the log)


def scan(new: Blocks, state: Mapping[str, Any]) -> tuple[list[Answer], dict[str, Any]]:
    """Takes the block medians that are new, judges every block that all live leaves have reached.

    Returns findings `trend` (S2) with recoveries, and the state: per leaf its last 20 blocks.
    """
    kept: dict[str, list[list[float]]] = {name: list(rows) for name, rows in state.get("kept", {}).items()}
    for name, rows in new.items():
        kept.setdefault(name, []).extend([float(b), s, v] for b, s, v in rows)
    fired = dict(state.get("fired", {}))
    ready = state.get("ready", 0)
    said: list[Answer] = []
    while kept and (block := _next_ready(kept, ready)) is not None:
        ready = block + 1
        said += _judge(kept, block, fired)
    kept = {name: [row for row in rows if row[0] > ready - BLOCKS] for name, rows in kept.items()}
    return said, {"kept": kept, "fired": fired, "ready": ready}


def _next_ready(kept: Mapping[str, list[list[float]]], ready: int) -> int | None:
    """The next block to judge, when every leaf has reached it or some leaf is LATE blocks ahead."""
    last = [rows[-1][0] for rows in kept.values() if rows]
    if not last or max(last) < ready:
        return None
    return ready if min(last) >= ready or max(last) >= ready + LATE else None


def _judge(kept: Mapping[str, list[list[float]]], block: int, fired: dict[str, Any]) -> list[Answer]:
    windows = {}
    for name, rows in kept.items():
        window = [row for row in rows if block - BLOCKS < row[0] <= block]
        if len(window) == BLOCKS and all(math.isfinite(row[2]) for row in window):
            windows[name] = np.array(window)
    moving = {name: _change(window[:, 2]) for name, window in windows.items()}
    names = sorted(name for name, size in moving.items() if abs(size) > STILL or name in fired)
    if len(names) < LEAVES:
        return []
    change = np.array([moving[name] for name in names])
    middle = float(np.median(change))
    scale = NORMAL_MAD * float(np.median(np.abs(change - middle)))
    said: list[Answer] = []
    for name, moved in zip(names, change - middle, strict=True):
        far = abs(moved) > max(Z * scale, EFFECT) and _keeps_on(windows[name][:, 2], float(moved))
        was = fired.get(name, {"count": 0, "episode": None})
        count = was["count"] + 1 if far else 0
        episode = was["episode"]  # stays open until the leaf is near its peers again
        step = float(windows[name][-1, 1])
        if episode is None and count >= TWICE:
            episode = str(block)
            said.append(_finding(name, windows[name], float(moved), middle, scale, episode))
        elif episode is not None and not far:
            said.append(Recovery(DETECTOR[0], name, episode, step))
            episode = None
        fired[name] = {"count": count, "episode": episode}
    return said


def _change(logs: Any) -> float:
    """Change over the window by the medians of its ends: deaf to a single block."""
    return float(np.median(logs[-5:]) - np.median(logs[:5]))


def _keeps_on(logs: Any, moved: float) -> bool:
    """Whether the second half moved no less than the first: norms of a young run grow fast and slow down."""
    first, second = (
        float(np.median(logs[8:12]) - np.median(logs[:4])),
        float(np.median(logs[-4:]) - np.median(logs[8:12])),
    )
    return math.copysign(1, moved) * second >= abs(first)


def _finding(name: str, window: Any, moved: float, middle: float, scale: float, episode: str) -> Finding:
    return Finding(
        *DETECTOR,
        "trend",
        name,
        "param_norm",
        "up" if moved > 0 else "down",
        float(window[0, 1]),
        float(window[-1, 1]),
        moved,
        "log",
        2,
        episode,
        {
            "before": math.exp(float(np.median(window[:5, 2]))),
            "after": math.exp(float(np.median(window[-5:, 2]))),
            "z": moved / scale if scale > 0 else math.inf,
            "peers_changed": middle,
            "blocks": BLOCKS,
            "block_samples": BLOCK,
            "samples": int(window[-1, 0] + 1) * BLOCK,
            "cadence": float(window[-1, 1] - window[0, 1]) / ((BLOCKS - 1) * BLOCK),
        },
    )
