"""Steps that wait for data: the share of the step time that is spent on it.

Sees: the median wait of 16 samples over the median step time up to there (the first step time by name; a wait in percent is a
share already). Three blocks in a row at twice the usual share (median of the 64 blocks before) and 5 % of the step above
it: S1; at 20 % of the step and 10 % above the usual for eight blocks: S2 (pattern P57; SmolLM3 fell from 13,800 to 8,400
tokens a second on slow storage). The usual share is frozen meanwhile.
Silent: without a step time, before 16 blocks, on waits in other units than the step time (a usual share above 1), on
single slow steps, to which a median of 16 is deaf.
Fooled by: a loader that is asynchronous, whose time is no wait.
False alarms: none by construction where the wait is under 5 % of the step. Units: fraction of the step time.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from detectors.finding import Answer, Finding, Recovery
from detectors.noise import BLOCK
from detectors.sections import Blocks, Leaves

DETECTOR = ("starved", 1)
USUAL, LEAST = 64, 16  # blocks
TIMES, ABOVE = 2.0, 0.05
GRAVE, FAR = 0.2, 0.1
ROW, LASTS = 3, 8  # blocks
PERCENT = re.compile(r"%|percent|pct")


def carry(state: Mapping[str, Any], step: float) -> dict[str, Any]:
    """The usual shares of the parent before `step`."""
    shares = {name: rows[rows[:, 0] < step] for name, rows in state.get("shares", {}).items()}
    return {"shares": {name: rows for name, rows in shares.items() if len(rows)}}


def scan(new: Blocks, leaves: Leaves, state: Mapping[str, Any]) -> tuple[list[Answer], dict[str, Any]]:
    """Findings `level` (S1, S2) and recoveries; a block of a wait is judged when the step time has passed its step."""
    times = dict(state.get("times", {}))
    waiting = dict(state.get("waiting", {}))
    for name, rows in new.items():
        kept = times if leaves[name][0] == "step_time" else waiting
        kept[name] = np.concatenate([kept.get(name, np.empty((0, 2))), rows[:, 1:]])
    time = times[min(times)] if times else np.empty((0, 2))
    shares = dict(state.get("shares", {}))
    open_ = {name: dict(mine) for name, mine in state.get("open", {}).items()}
    said: list[Answer] = []
    for name, rows in sorted(waiting.items()):
        percent = PERCENT.search(name.lower()) is not None
        ready = rows if percent else rows[rows[:, 0] <= (time[-1, 0] if len(time) else -np.inf)]
        waiting[name] = rows[len(ready) :]
        mine = open_.setdefault(name, {"high": 0, "low": 0, "severity": 0, "episode": None})
        for step, wait in ready.tolist():
            at = int(np.searchsorted(time[:, 0], step, side="right")) - 1
            whole = 100.0 if percent else float(time[at, 1]) if at >= 0 else np.nan
            if not (np.isfinite(wait) and whole > 0):
                continue
            known = shares.get(name, np.empty((0, 2)))
            said += _judge(name, step, wait / whole, known, mine)
            if not mine["high"] and mine["episode"] is None:
                shares[name] = np.concatenate([known, [[step, wait / whole]]])[-USUAL:]
    first = min((rows[0, 0] for rows in waiting.values() if len(rows)), default=np.inf)
    times = {name: rows[max(0, int(np.searchsorted(rows[:, 0], first)) - 1) :] for name, rows in times.items()}
    return said, {"times": times, "waiting": waiting, "shares": shares, "open": open_}


def _judge(name: str, step: float, share: float, known: Any, mine: dict[str, Any]) -> list[Answer]:
    usual = float(np.median(known[:, 1])) if len(known) >= LEAST else np.inf
    if not usual <= 1:
        return []
    high = share >= max(TIMES * usual, usual + ABOVE)
    mine.update(high=mine["high"] + 1 if high else 0, low=0 if high else mine["low"] + 1)
    if mine["high"] == 1 and mine["episode"] is None:
        mine.update(since=float(known[-1, 0]))
    if mine["episode"] is not None and mine["low"] >= ROW:
        episode = mine["episode"]
        mine.update(episode=None, severity=0)
        return [Recovery(DETECTOR[0], name, episode, step)]
    severity = 2 if mine["high"] >= LASTS and share >= max(GRAVE, usual + FAR) else 1
    if mine["high"] < ROW or severity <= mine["severity"]:
        return []
    mine.update(severity=severity, episode=mine["episode"] or f"{step:.15g}")
    evidence = {"before": usual, "after": share, "share": share, "samples_out": mine["high"] * BLOCK}
    cadence = float(known[-1, 0] - known[0, 0]) / ((len(known) - 1) * BLOCK)
    return [Finding(
        *DETECTOR, "level", name, "data_wait", "up", mine["since"], step, share - usual, "fraction", severity,
        mine["episode"], evidence | {"samples": len(known) * BLOCK, "cadence": cadence},
    )]  # fmt: skip
