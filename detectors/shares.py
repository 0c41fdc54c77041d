"""Which parameter group carries the rise of the gradient norm: shares of the squared norm by leaf.

Sees: a sum of squares of the leaves whose root has grown by 10 % over the last 20 to 100 blocks (Mann-Kendall p < 1e-3,
blocks of at least five autocorrelation times, at multiples of 256 samples: `direction` asks for two in a row of the
total, so that who carries it is known when a trend is told). Says once which leaf
carries the growth: S0, an annotation beside the trend of the total. One leaf with 80 % of the growth is a trajectory, two
or more may be an instability (marin#9148, marin#9149, pattern P13); a leaf with less than half of it is no carrier, and
the rise is spread.
Silent: with fewer than two leaves, before 20 blocks, while the window still holds the first tenth of the run, on a fall.
Fooled by: leaves that are not logged; a leaf that is the norm of others (a stack beside its layers is left out).
False alarms: see docs/detectors.md. Units: log of the norm over the window; shares are fractions of squares.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from detectors import sections
from detectors.finding import Answer, Finding, Recovery
from detectors.hinges import onset
from detectors.noise import BLOCK, CHUNK
from detectors.sections import Blocks, Leaves, Section
from detectors.series import Array
from detectors.trends import KEPT, Trend, trends

DETECTOR = ("shares", 1)
COLUMNS = {1: 40, 4: 40, 16: 100}  # blocks of 16 samples in a column of leaves: columns that are kept
EVERY = CHUNK // BLOCK  # blocks from one evaluation to the next
P_VALUE, FADED = 1e-3, 0.05
EFFECT = math.log(1.10)
CARRIER, NEARLY = 0.5, 0.8  # of the growth: one leaf is the carrier; so many leaves are counted
TWICE = 2
LAYER, STACK = re.compile(r"(?<=[._/])[0-9]+(?=[._/])"), "stacked"  # levanter logs a stack beside its layers


def carry(state: Mapping[str, Any], step: float) -> dict[str, Any]:
    """The squares of the parent: a slow rise outlives a restart."""
    lines = {name: rows[rows[:, 0] < step] for name, rows in state.get("lines", {}).items()}
    levels = {}
    for size, level in state.get("levels", {}).items():
        stays = level["step"] < step
        levels[size] = {**level, "step": level["step"][stays], "square": level["square"][:, stays]}
    return {"section": sections.before(sections.load(state), step).dump(), "lines": lines, "levels": levels}


def scan(new: Blocks, leaves: Leaves, state: Mapping[str, Any]) -> tuple[list[Answer], dict[str, Any]]:
    """Findings `trend` (S0) with recoveries; evaluated at every sixteenth block that all live leaves have reached."""
    del leaves
    section = sections.extended(sections.load(state), new)
    lines = {"fine": np.empty((0, 2)), "coarse": np.empty((0, 2)), **state.get("lines", {})}
    levels = dict(state.get("levels", {}))
    told = {"faded": 0, "other": 0, "over": -1.0, "episode": None, **state.get("told", {})}
    said: list[Answer] = []
    todo = sections.due(section)
    for block in todo:
        stop = block + 1 - (section.first or 0)
        lines["fine"] = np.concatenate([lines["fine"], _sum(section, stop)])[-KEPT:]
        for size, kept in COLUMNS.items():
            if block % size == size - 1:
                levels[str(size)] = _longer(levels.get(str(size)), section, stop, size, kept)
        if block % EVERY == EVERY - 1:
            value = lines["fine"][-EVERY:, 1]
            middle = np.median(value[np.isfinite(value)]) if np.isfinite(value).any() else math.nan
            lines["coarse"] = np.concatenate([lines["coarse"], [[lines["fine"][-1, 0], middle]]])[-KEPT:]
            said += _judge(lines, levels, block, told)
    after = sections.forget(section, todo.stop, EVERY).dump()
    return said, {"section": after, "lines": lines, "levels": levels, "told": told}


def _sum(section: Section, stop: int) -> Array:
    """Row of step and log of the norm of all leaves in the last block before `stop`; NaN where a live leaf lacks it."""
    stacks = {LAYER.sub(STACK, name, count=1) for name in section.names if LAYER.search(name)}
    mine = [k for k, name in enumerate(section.names) if name not in stacks]
    lately = np.isfinite(section.value[mine, max(0, stop - EVERY) : stop])
    live = lately.any(axis=1)
    step = section.step[:, stop - 1]
    total = float((section.value[mine, stop - 1][live] ** 2).sum())
    log = math.log(total) / 2 if math.isfinite(total) and total > 0 else math.nan
    return np.array([[np.nanmax(step) if np.isfinite(step).any() else math.nan, log]])


def _longer(level: Mapping[str, Any] | None, section: Section, stop: int, size: int, kept: int) -> dict[str, Any]:
    """A level with one column more: mean squares of the last `size` blocks. A leaf that lacks one begins anew."""
    part = slice(max(0, stop - size), stop)
    column = (section.value[:, part] ** 2).mean(axis=1)
    step = section.step[:, part]
    last = float(step[np.isfinite(step)].max()) if np.isfinite(step).any() else math.nan
    old = level or {"names": [], "step": np.empty(0), "square": np.empty((0, 0))}
    names = list(section.names)
    before = old["square"]
    if names != old["names"]:
        before = np.full((len(names), len(old["step"])), np.nan)
        row = {name: k for k, name in enumerate(old["names"])}
        both = [k for k, name in enumerate(names) if name in row]
        before[both] = old["square"][[row[names[k]] for k in both]]
    before = np.where(np.isfinite(column)[:, None], before, np.nan)
    return {
        "names": names,
        "step": np.append(old["step"], last)[-kept:],
        "square": np.column_stack([before, column])[:, -kept:],
    }


def _judge(lines: Mapping[str, Array], levels: Mapping[str, Any], block: int, told: dict[str, Any]) -> list[Answer]:
    seen, rows = (block + 1) * BLOCK, ((lines["fine"], BLOCK), (lines["coarse"], CHUNK))
    if told["episode"]:
        trend = next((each for each in trends(rows, seen) if each.size >= told["size"]), None)
        fades = trend is not None and not (trend.p < FADED and trend.slope > 0)
        told["faded"] = told["faded"] + 1 if fades else 0
        if trend is not None and told["faded"] >= TWICE:
            told.update(over=float(trend.step[-1]))  # longer windows still hold what is over
            return _end(told, float(trend.step[-1]))
    found = (each for each in trends(rows, seen, EFFECT / 4) if each.p < P_VALUE and each.change >= EFFECT)
    strong = next((each for each in found if each.early > told["over"]), None)
    who = _who(levels, strong) if strong else None
    if strong is None or who is None:
        return []
    told["other"] = told["other"] + 1 if told["episode"] and who["carrier"] != told["carrier"] else 0
    if told["episode"] and told["other"] < TWICE:
        return []
    said = _end(told, float(strong.step[-1])) if told["episode"] else []
    told.update(episode=str(block), metric=who["leaf"], carrier=who["carrier"], size=strong.size, faded=0, other=0)
    return [*said, _finding(strong, who, block)]


def _who(levels: Mapping[str, Any], trend: Trend) -> dict[str, Any] | None:
    """How the growth between both ends of a window is shared by the leaves that were there all the time.

    By the finest level that reaches back to its start, else by what the coarsest one still has.
    """
    best = None
    for size, level in levels.items():
        need = len(trend.step) * trend.size // (int(size) * BLOCK)
        best = level["names"], level["square"][:, -need:]
        if best[1].shape[1] >= need:
            break
    return _shared(*best) if best else None


def _shared(names: Sequence[str], square: Array) -> dict[str, Any] | None:
    stacks = {LAYER.sub(STACK, name, count=1) for name in names if LAYER.search(name)}
    whole = [k for k, name in enumerate(names) if np.isfinite(square[k]).all() and name not in stacks]
    ends = max(1, square.shape[1] // 5)
    before, after = square[whole, :ends].mean(axis=1), square[whole, -ends:].mean(axis=1)
    if len(whole) < 2 or after.sum() <= before.sum():
        return None
    part = (after - before) / (after - before).sum()
    order = np.argsort(-part, kind="stable")
    first = order[0]
    leaves = [[names[whole[k]], float(part[k])] for k in order[:3]]
    return {
        "leaf": leaves[0][0],
        "carrier": leaves[0][0] if part[first] >= CARRIER else "",
        "growth_share": float(part[first]),
        "share_before": float(before[first] / before.sum()),
        "share_after": float(after[first] / after.sum()),
        "before": math.sqrt(before.sum()),
        "after": math.sqrt(after.sum()),
        "leaves": leaves,
        "groups": int(np.searchsorted(np.cumsum(part[order]), NEARLY)) + 1,
    }


def _end(told: dict[str, Any], step: float) -> list[Answer]:
    episode, told["episode"] = told["episode"], None
    return [Recovery(DETECTOR[0], told["metric"], episode, step)]


def _finding(trend: Trend, who: Mapping[str, Any], block: int) -> Finding:
    step = trend.step
    return Finding(
        *DETECTOR,
        "trend",
        who["leaf"],
        "grad_norm",
        "up",
        onset(step, trend.value, trend.slope),
        float(step[-1]),
        trend.change,
        "log",
        0,
        str(block),
        {key: item for key, item in who.items() if key not in ("leaf", "carrier")}
        | {
            "slope_per_10k": trend.slope * 1e4,
            "p": trend.p,
            "blocks": len(step),
            "block_samples": trend.size,
            "samples": (block + 1) * BLOCK,
            "cadence": float(step[-1] - step[0]) / ((len(step) - 1) * trend.size),
        },
    )
