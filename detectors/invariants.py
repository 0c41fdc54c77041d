"""What must hold exactly: constant norms stay constant, and a live metric does not turn exactly zero.

Sees: (1) a parameter norm that was constant to 1e-4 for 20 samples (norm-preserving optimizers: MuonH, AdamH,
hyperball) and then differs by more than 1e-3: a wrong optimizer mask, a resume or sharding bug, corruption. S3, at
the first sample (marin#8435 lists such groups; pattern P24). (2) a metric that was never zero in 20 samples and then
is exactly zero three times in a row: a dead gradient, a detached metric. S2.
Silent: on metrics that are zero from the first sample on (not logged), on roles for which zero is a value.
Fooled by: a group that is re-assigned to another optimizer on purpose (declare the event).
False alarms: none by construction. Units: fraction; samples.
"""

import math
from typing import Any

import numpy as np

from detectors.window import Chunk, Said, State

DETECTOR = ("invariants", 1)
SEEN = 20  # samples that make an invariant
TIGHT, LOOSE = 1e-4, 1e-3
ZEROS = 3
NEVER_ZERO = frozenset(
    {"loss", "grad_norm", "param_norm", "update_norm", "mfu", "throughput", "step_time", "router_entropy", "eval_loss"}
)
BACK = 20  # samples that hold again before an episode ends


def carry(state: State, step: float) -> State:
    """An invariant of the parent must hold after the restart: that is where it breaks."""
    del step
    return {key: state[key] for key in ("seen", "level", "moves") if key in state}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `invariant`: `constant:` and `zero:` episodes, and their recoveries."""
    now: dict[str, Any] = {"seen": 0, "zeros": 0, "level": None, **state}
    said: list[Said] = []
    if chunk.role == "param_norm":
        said += _constant(chunk, now)
    if chunk.role in NEVER_ZERO:
        said += _zero(chunk, now)
    return said, now


def _constant(chunk: Chunk, now: dict[str, Any]) -> list[Said]:
    """The level is the third sample: optimizers may set the norm in their first update."""
    if now.get("moves"):
        return []
    new = chunk.value[chunk.offset :]
    if now["level"] is None and chunk.end > 3:
        now["level"] = float(chunk.value[chunk.at(2)]) if chunk.first == 0 else math.nan
    level = now["level"]
    if level is None or not (math.isfinite(level) and level > 0):
        return []
    with np.errstate(invalid="ignore"):
        off = np.abs(new / level - 1)
    early = chunk.start + np.arange(len(new)) < SEEN
    if (off[early & (chunk.start + np.arange(len(new)) >= 2)] > TIGHT).any():
        now["moves"] = True  # never was constant
        return []
    said: list[Said] = []
    far = np.flatnonzero((off > LOOSE) & ~early)
    # from the first sample that is off every one counts, whether or not an episode is open yet
    begin = (int(far[0]) if len(far) else len(new)) if now.get("constant") is None else 0
    for k in range(begin, len(new)):
        index = chunk.start + k
        if now.get("constant") is None:
            if not off[k] > LOOSE:
                continue
            now.update(constant=f"constant:{index}", held=0)
            said.append(
                chunk.finding(
                    DETECTOR,
                    "invariant",
                    index,
                    index,
                    3,
                    now["constant"],
                    direction="up" if new[k] > level else "down",
                    magnitude=float(new[k] / level - 1),
                    unit="fraction",
                    before=level,
                    after=float(new[k]),
                    invariant="constant norm",
                )
            )
        elif np.isfinite(off[k]):
            now["held"] = now["held"] + 1 if off[k] <= LOOSE else 0
            if now["held"] >= BACK:
                said.append(chunk.recovery(DETECTOR, now["constant"], index))
                now["constant"] = None
    return said


def _zero(chunk: Chunk, now: dict[str, Any]) -> list[Said]:
    new = chunk.value[chunk.offset :]
    if not (new == 0).any() and not now["zeros"] and now.get("zero") is None:
        now["seen"] += int(np.isfinite(new).sum())
        return []
    said: list[Said] = []
    for index, value in zip(chunk.indices, new, strict=True):
        if not np.isfinite(value):
            continue
        now["zeros"] = now["zeros"] + 1 if value == 0 else 0
        if value == 0 and now["zeros"] == ZEROS and now["seen"] >= SEEN and now.get("zero") is None:
            now.update(zero=f"zero:{index}", alive=0)
            onset = index - ZEROS + 1
            said.append(
                chunk.finding(
                    DETECTOR,
                    "invariant",
                    onset,
                    index,
                    2,
                    now["zero"],
                    direction="down",
                    magnitude=-1.0,
                    unit="fraction",
                    before=float(chunk.value[chunk.at(onset) - 1]),
                    after=0.0,
                    invariant="never exactly zero",
                )
            )
        if value == 0:
            continue
        now["seen"] += 1
        if now.get("zero") is not None:
            now["alive"] += 1
            if now["alive"] >= BACK:
                said.append(chunk.recovery(DETECTOR, now["zero"], index))
                now["zero"] = None
    return said
