"""Counters of errors that were still and begin to count: links, memory rows, drivers.

Sees: a value that had not risen for 20 samples and rises: S1, and S2 at the second rise or when one rise is ten or more. A
link whose recoveries counted up was named five days before it failed (marin#9086; pattern P62).
Silent: on a fall (a driver or a process that began anew), on the first sample after a restart (another node counts
from elsewhere), before 20 samples, and on a counter that never was still.
Fooled by: counters of errors that are corrected all the time; a metric that is an error's number and not a count.
False alarms: none by construction on a counter that stands still. Units: counts.
"""

from typing import Any

import numpy as np

from detectors.window import Chunk, Said, State

DETECTOR = ("counters", 1)
STILL = 20  # samples
JUMP = 10.0
BACK = 256  # samples without a rise that end an episode


def carry(state: State, step: float) -> State:
    """Nothing: after a restart other nodes may count."""
    del state, step
    return {}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `level` (S1, S2) and recoveries. `launch` in the state is the index of the first sample after a restart."""
    now: dict[str, Any] = {"last": None, "risen": 0, "episode": None, **state}
    new = chunk.value[chunk.offset :]
    seen = np.flatnonzero(np.isfinite(new))
    known = new[seen]
    before = np.concatenate([[known[0] if now["last"] is None else now["last"]], known[:-1]]) if len(known) else known
    said: list[Said] = []
    for k in np.flatnonzero(known > before).tolist():
        index = chunk.start + int(seen[k])
        said += _ends(chunk, index, now)
        if index != now.get("launch"):
            said += _rises(chunk, index, float(before[k]), float(known[k]), now)
        now["risen"] = index
    said += _ends(chunk, chunk.end - 1, now)
    now["last"] = float(known[-1]) if len(known) else now["last"]
    return said, now


def _rises(chunk: Chunk, index: int, before: float, value: float, now: dict[str, Any]) -> list[Said]:
    if now["episode"] is None:
        if index - now["risen"] < STILL:
            return []
        now.update(episode=str(index), from_=before, severity=0, rises=0, since=float(chunk.step[chunk.at(index)]))
    now["rises"] += 1
    severity = 2 if now["rises"] > 1 or value - before >= JUMP else 1
    if severity <= now["severity"]:
        return []
    now["severity"] = severity
    return [
        chunk.finding(
            DETECTOR,
            "level",
            index,
            index,
            severity,
            now["episode"],
            direction="up",
            magnitude=value - now["from_"],
            unit="counts",
            onset_step=now["since"],
            before=now["from_"],
            after=value,
            rises=now["rises"],
        )
    ]


def _ends(chunk: Chunk, index: int, now: dict[str, Any]) -> list[Said]:
    """The episode is over once BACK samples up to `index` had no rise."""
    quiet = now["risen"] + BACK
    if now["episode"] is None or index < quiet:
        return []
    said = [chunk.recovery(DETECTOR, now["episode"], quiet)]
    now["episode"] = None
    return said
