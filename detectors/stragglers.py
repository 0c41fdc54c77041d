"""One rank among many that is always late: step time, throughput or MFU by rank or host.

Sees: a rank whose block medians (16 samples) stand 3 % behind the median of all ranks, and five robust deviations of
the ranks, more than at its best, three blocks in a row: S2, with its name (pattern P55; one GPU of BLOOM-176B cost 149 to 141
TFLOPs). A rank that was late from its first blocks on is S1: pipeline stages differ.
Silent: with fewer than four ranks; on a late rank that changes from block to block (imbalance, pattern P48, or garbage
collection, P60: the median of 16 samples is deaf to those); on all ranks together (`throughput` sees that).
Fooled by: step times taken after the collectives, where all ranks wait for the slowest and nobody is late; more work given
to one rank on purpose.
False alarms: see docs/detectors.md. Units: log ratio to the ranks' median.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from detectors import sections
from detectors.finding import Answer, Finding, Recovery
from detectors.noise import BLOCK, NORMAL_MAD
from detectors.sections import Blocks, Leaves, Section
from detectors.series import Array

DETECTOR = ("stragglers", 1)
RANKS = 4
LATE = math.log(1.03)
Z = 5.0
BLOCKS = 3  # in a row
HIGH_IS_LATE = ("step_time",)


def carry(state: Mapping[str, Any], step: float) -> dict[str, Any]:
    """How late each rank was at its best; a restart may place the run on other nodes, so nobody stays accused."""
    return {
        family: {**known, "ranks": {}, "section": sections.before(sections.load(known), step).dump()}
        for family, known in state.items()
    }


def scan(new: Blocks, leaves: Leaves, state: Mapping[str, Any]) -> tuple[list[Answer], dict[str, Any]]:
    """Findings `level` (S1, S2) with recoveries; a state a family of ranks (names that differ in their rank)."""
    families: dict[str, dict[str, Array]] = {}
    for name, rows in new.items():
        role, group = leaves[name]
        plain = re.sub("[ -]", "_", name.lower()).replace(re.sub("[ -]", "_", group.lower()), "#")
        families.setdefault(f"{role} {plain}", {})[name] = rows
    said: list[Answer] = []
    after = dict(state)
    for family, blocks in sorted(families.items()):
        known = _copy(state.get(family, {}))
        section = sections.extended(sections.load(known), blocks)
        todo = sections.due(section)
        for block in todo:
            said += _judge(section, block, family.split(" ", 1)[0], known)
        after[family] = {**known, "section": sections.forget(section, todo.stop, BLOCKS).dump()}
    return said, after


def _copy(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state that may be written to."""
    ranks = {name: dict(rank) for name, rank in state.get("ranks", {}).items()}
    return {**state, "best": dict(state.get("best", {})), "ranks": ranks}


def _judge(section: Section, block: int, role: str, known: dict[str, Any]) -> list[Answer]:
    assert section.first is not None
    column = block - section.first
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(section.value[:, column]) * (1 if role in HIGH_IS_LATE else -1)
    logs = np.where(np.isfinite(logs), logs, np.nan)
    if np.isfinite(logs).sum() < RANKS:
        return []
    place = logs - np.nanmedian(logs)
    gate = max(LATE, Z * NORMAL_MAD * float(np.nanmedian(np.abs(place))))
    said: list[Answer] = []
    for row in np.flatnonzero(np.isfinite(place)).tolist():
        name, here = section.names[row], float(place[row])
        best = known["best"][name] = min(known["best"].get(name, here), here)
        rank = known["ranks"].get(name)
        if rank is None and here < gate:
            continue
        rank = rank or {"late": 0, "fine": 0, "since": _end_before(section, row, column), "episode": None}
        rank["late"] = rank["late"] + 1 if here >= gate else 0
        rank["fine"] = rank["fine"] + 1 if here < gate / 2 else 0
        known["ranks"][name] = rank
        if rank["episode"] is None and rank["late"] >= BLOCKS:
            rank["episode"] = str(block)
            said.append(_finding(section, row, column, role, place, best, rank, block))
        elif rank["episode"] is not None and rank["fine"] >= BLOCKS:
            said.append(Recovery(DETECTOR[0], name, rank["episode"], float(section.step[row, column])))
            del known["ranks"][name]
        elif rank["episode"] is None and not rank["late"]:
            del known["ranks"][name]
    return said


def _end_before(section: Section, row: int, column: int) -> float:
    """The last step of the block before, where there is one: the lateness began behind it."""
    steps = section.step[row, max(column - 1, 0) : column + 1]
    return float(steps[np.isfinite(steps)][0])


def _finding(
    section: Section, row: int, column: int, role: str, place: Array, best: float, rank: dict[str, Any], block: int
) -> Finding:
    here, step = float(place[row]), float(section.step[row, column])
    ahead = math.exp(-here if role in HIGH_IS_LATE else here)
    value = float(section.value[row, column])
    always = here - best < LATE
    return Finding(
        *DETECTOR,
        "level",
        section.names[row],
        role,
        "up" if role in HIGH_IS_LATE else "down",
        rank["since"],
        step,
        here,
        "log",
        1 if always else 2,
        rank["episode"],
        {
            "before": value * ahead,
            "after": value,
            "ranks": int(np.isfinite(place).sum()),
            "ranks_late": int((place >= LATE).sum()),
            "from_the_start": int(always),
            "samples": (block + 1) * BLOCK,
            "samples_out": BLOCKS * BLOCK,
            "cadence": max(step - rank["since"], 0.0) / (BLOCKS * BLOCK) or 1.0,
        },
    )
