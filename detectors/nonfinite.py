"""NaN and infinities.

Sees: a value that is not finite in a metric that was finite before. In the loss it is a page at once, and S4 when the
next sample is not finite either: every further step trains on it. In a gradient norm a single overflow is how dynamic
loss scaling works in fp16 (a step skipped now and then), so one is a note and three of sixteen samples are a page.
In other metrics, and in one leaf of many, it is a note, then S2.
Silent: on metrics that were never finite (not logged), and on a long burst after it was said.
Fooled by: loggers that replace NaN by a running mean (HF `logging_nan_inf_filter`).
False alarms: none by construction. Units: samples.
"""

import numpy as np

from detectors.window import Chunk, Said, State

DETECTOR = ("nonfinite", 1)
CLEAN = 64  # finite samples in a row that end an episode
OF = 16


def _levels(chunk: Chunk) -> tuple[int, int, int]:
    """Severity of the first bad sample, severity of a crowd, and how many of OF make a crowd."""
    if chunk.group:
        return 1, 2, 3
    return {"loss": (3, 4, 2), "grad_norm": (1, 3, 3)}.get(chunk.role, (1, 2, 3))


def carry(state: State, step: float) -> State:
    """A metric that was finite in the parent is a live one."""
    del step
    return {"seen": state.get("seen", False)}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """One finding for the first non-finite sample of an episode, one more when it becomes a crowd, then its recovery."""
    bad = ~np.isfinite(chunk.value[chunk.offset :])
    episode, seen = state.get("episode"), state.get("seen", False)
    if not bad.any() and episode is None:
        return [], {**state, "seen": True}
    said: list[Said] = []
    recent, clean, crowd = list(state.get("recent", [])), state.get("clean", 0), state.get("crowd", False)
    first, later, many = _levels(chunk)
    for index in chunk.indices:
        if not bad[index - chunk.start]:
            seen, clean = True, clean + 1
            if episode is not None and clean >= CLEAN:
                said.append(chunk.recovery(DETECTOR, episode, index))
                episode, crowd = None, False
            continue
        clean, recent = 0, [i for i in recent if i > index - OF] + [index]
        if not seen or crowd or (episode is not None and len(recent) < many):
            continue
        crowd = len(recent) >= many
        episode = episode or str(index)
        value = "NaN" if np.isnan(chunk.value[chunk.at(index)]) else "Infinity"
        said.append(
            chunk.finding(
                DETECTOR,
                "nonfinite",
                recent[0],
                index,
                later if crowd else first,
                episode,
                direction="up",
                magnitude=float(len(recent)),
                unit="samples",
                value=value,
                count=len(recent),
                of_last=OF,
            )
        )
    return said, {"seen": seen, "episode": episode, "recent": recent, "clean": clean, "crowd": crowd}
