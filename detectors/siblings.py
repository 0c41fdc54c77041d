"""Evaluations beside each other: one that moves alone, and all that jump at one point.

Sees: at each point, with five evaluations or more of eight values or more, how far each stands off the line of its own
twelve before (logarithm on the log of the step). (1) Four of five are off by five scatters, half of them by eight, and by
0.5 % of a loss or 5 % of a score: the pipeline or the format of evaluations (pattern P75), S1, S0 if all are better. (2) One is
off by eight scatters at two points, while at most a quarter of the others are off by five: contamination or a prompt
(P39), S2 if it is worse, S1 if it is better. (3) One gets worse over its last ten to sixteen values, slope six standard
errors and 1 % of a loss or 5 % of a score, at two points in a row, while the median of the others did not: S1, with eight
standard errors and twice as much for a loss S2 (GSM8K of Marin 32B fell from 60 to 54.7 while the others rose).
Silent: with fewer than five evaluations; on values that are not positive.
Fooled by: scores for which less is better under a name that does not say so; a score that wanders by several percent
for many points (AR(1) 0.9 of 2 %: 5 of S2 in 46,800 values).
False alarms: see docs/detectors.md. Units: log.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detectors.finding import Answer, Finding, Recovery
from detectors.noise import fit_lines, log_step
from detectors.sections import Blocks, Leaves
from detectors.series import Array

DETECTOR = ("siblings", 1)
WINDOW, LEAST = 12, 8  # evaluations in a line
LONG, SHORT = 16, 10  # evaluations in a trend
EVALS = 5
OFF, FAR = 5.0, 8.0  # scatters
MOST, FEW = 0.8, 0.25  # of the evaluations: all jump, one is alone
EFFECT = {"eval_loss": 0.005, "eval_score": 0.05}
NOISE = {"eval_loss": 0.001, "eval_score": 0.01}  # the least scatter that is believed
WORSE = {"eval_loss": 0.01, "eval_score": 0.05}
GRAVE = {"eval_loss": 0.02, "eval_score": 0.05}
SLOPE, SURE = 6.0, 8.0  # standard errors
NEARLY_ALL = 0.9  # of the others have less than half such a slope
TWICE = 2
LATE = 2  # points that an evaluation may be overdue before nobody waits for it
LESS_IS_BETTER = re.compile(r"(?<![a-z])(wer|cer|error|mse|mae|rmse|ppl|perplexity|fid|toxicity)(?![a-z])")


def carry(state: Mapping[str, Any], step: float) -> dict[str, Any]:
    """The values of the parent before `step`, and which of them are told of."""
    lines = {name: rows[rows[:, 0] < step] for name, rows in state.get("lines", {}).items()}
    return {"lines": {name: rows for name, rows in lines.items() if len(rows)}}


def scan(new: Blocks, leaves: Leaves, state: Mapping[str, Any]) -> tuple[list[Answer], dict[str, Any]]:
    """Findings `level` and `trend` with recoveries. A row is one evaluation: any number, its step, its value.

    A point is judged when every evaluation that began before it has reached it, or one is two of its own points ahead.
    """
    lines = dict(state.get("lines", {}))
    waiting = dict(state.get("waiting", {}))
    done = state.get("done", -math.inf)
    for name, rows in new.items():
        good = rows[np.isfinite(rows[:, 2]) & (rows[:, 2] > 0)][:, 1:]
        fresh = np.column_stack([good[:, 0], np.log(good[:, 1])])
        lines[name] = _kept(lines.get(name), fresh[fresh[:, 0] <= done])
        waiting[name] = np.concatenate([waiting.get(name, np.empty((0, 2))), fresh[fresh[:, 0] > done]])
    now = {"fired": {name: dict(mine) for name, mine in state.get("fired", {}).items()}, "quiet": state.get("quiet", 0)}
    said: list[Answer] = []
    for point in np.unique(np.concatenate([np.empty(0), *(rows[:, 0] for rows in waiting.values())])).tolist():
        known = _known(point, lines, waiting)
        if not math.isfinite(known):
            break
        here = {name: float(rows[0, 1]) for name, rows in waiting.items() if len(rows) and rows[0, 0] == point}
        said += _judge(point, known, here, lines, leaves, now)
        for name in here:
            lines[name] = _kept(lines.get(name), waiting[name][:1])
            waiting[name] = waiting[name][1:]
        done = point
    return said, {**now, "lines": lines, "waiting": waiting, "done": done}


def _kept(old: Array | None, new: Array) -> Array:
    return np.concatenate([np.empty((0, 2)) if old is None else old, new])[-LONG:]


def _known(point: float, lines: Mapping[str, Array], waiting: Mapping[str, Array]) -> float:
    """The step at which everything was there that a point waits for; infinite while it is not."""
    reached, ahead = point, math.inf
    for name, rows in waiting.items():
        later = rows[rows[:, 0] >= point, 0]
        began_before = len(lines.get(name, ())) or (len(rows) and rows[0, 0] < point)
        if began_before:
            reached = max(reached, float(later[0]) if len(later) else math.inf)
        beyond = later[later > point]
        if len(beyond) >= LATE:
            ahead = min(ahead, float(beyond[LATE - 1]))
    return min(reached, ahead)


def _judge(
    point: float,
    known: float,
    here: Mapping[str, float],
    lines: Mapping[str, Array],
    leaves: Leaves,
    now: dict[str, Any],
) -> list[Answer]:
    now["quiet"] = max(0, now["quiet"] - 1)
    names = [name for name in sorted(here) if len(lines.get(name, ())) >= LEAST]
    if len(names) < EVALS:
        return []
    table = np.full((len(names), LONG + 1, 2), np.nan)
    for k, name in enumerate(names):
        rows = np.concatenate([lines[name], [[point, here[name]]]])
        table[k, -len(rows) :] = rows
    at = _measured(point, known, names, [leaves[name][0] for name in names], table)
    said = _together(at, now)
    told = np.array([name in now["fired"] for name in names], dtype=bool)
    for k in np.flatnonzero(told | at.far | at.falls).tolist():
        said += _alone(at, k, now)
    return said


@dataclass(frozen=True)
class _Point:
    """One point; all that follows is an evaluation an element, positive where it is worse."""

    step: float
    known: float  # the step at which it could be judged
    names: list[str]
    roles: list[str]
    sign: Array  # 1 where more is worse
    value: Array  # logarithms
    count: NDArray[np.int64]
    moved: Array  # from its line
    z: Array
    off: NDArray[np.bool_]
    far: NDArray[np.bool_]
    falls: NDArray[np.bool_]
    change: Array  # over the trend's window
    slope: Array  # in standard errors
    since: Array  # the first step of that window
    cadence: Array

    def finding(
        self, k: int, kind: str, severity: int, episode: str, onset: float, size: float, **more: Any
    ) -> Finding:
        """About evaluation k; `size` is positive where it is worse."""
        log = float(self.sign[k]) * size
        evidence = {"before": math.exp(float(self.value[k]) - log), "after": math.exp(float(self.value[k]))}
        evidence |= {"evals": len(self.names), "evals_out": int(self.off.sum()), **more}
        evidence |= {"samples": int(self.count[k]), "cadence": float(self.cadence[k])}
        way = "up" if log > 0 else "down"
        name, role = self.names[k], self.roles[k]
        return Finding(*DETECTOR, kind, name, role, way, onset, self.known, log, "log", severity, episode, evidence)

    def recovery(self, k: int, episode: str) -> Recovery:
        return Recovery(DETECTOR[0], self.names[k], episode, self.known)


def _measured(point: float, known: float, names: list[str], roles: list[str], table: Array) -> _Point:
    """`table` is (evaluations, LONG + 1, 2): steps and logarithms, the last of this point, NaN before the first."""
    sign = np.array([
        1.0 if role == "eval_loss" or LESS_IS_BETTER.search(name.lower()) else -1.0
        for name, role in zip(names, roles, strict=True)
    ])  # fmt: skip
    floor, effect, worse = (np.array([limits[role] for role in roles]) for limits in (NOISE, EFFECT, WORSE))
    x, y = log_step(table[..., 0]), table[..., 1]
    a, b, mx, sxx, n, rest = fit_lines(x[:, -1 - WINDOW : -1], y[:, -1 - WINDOW : -1])
    lever = np.sqrt(1 + 1 / n + (x[:, -1] - mx) ** 2 / sxx)
    moved = y[:, -1] - a - b * x[:, -1]
    z = moved / (np.maximum(rest, floor) * lever)
    off = (np.abs(z) >= OFF) & (np.abs(moved) >= effect)
    x, y = x[:, -LONG:], y[:, -LONG:]
    _, b, _, sxx, n, rest = fit_lines(x, y)
    count = np.isfinite(y).sum(axis=1)
    first = LONG - count
    rows = np.arange(len(names))
    change = sign * b * (x[:, -1] - x[rows, first])
    slope = sign * np.where(count >= SHORT, b * np.sqrt(sxx) / np.maximum(rest, floor), 0.0)
    since = table[rows, 1 + first, 0]
    return _Point(
        step=point,
        known=known,
        names=names,
        roles=roles,
        sign=sign,
        value=y[:, -1],
        count=count,
        moved=sign * moved,
        z=sign * z,
        off=off,
        far=off & (np.abs(z) >= FAR),
        falls=(slope >= SLOPE) & (change >= worse),
        change=change,
        slope=slope,
        since=since,
        cadence=(point - since) / (count - 1),
    )


def _together(at: _Point, now: dict[str, Any]) -> list[Answer]:
    """All of them at once; told once, then the lines have WINDOW points to take it in."""
    if now["quiet"] or at.off.mean() < MOST or np.median(np.abs(at.z)) < FAR:
        return []
    now["quiet"] = WINDOW
    k = int(np.argmax(np.abs(at.z) * at.off))
    better = bool((at.moved[at.off] < 0).all())
    evidence = {"together": 1, "z": float(np.median(np.abs(at.z)))}
    episode = f"all:{at.step:.15g}"
    found = at.finding(k, "level", 0 if better else 1, episode, at.step, float(at.moved[k]), **evidence)
    return [found, at.recovery(k, episode)]


def _alone(at: _Point, k: int, now: dict[str, Any]) -> list[Answer]:
    name = at.names[k]
    mine = now["fired"].setdefault(name, {"far": 0, "falls": 0, "episode": None})
    others = np.delete(np.arange(len(at.names)), k)
    side = int(np.sign(at.z[k]))
    far = at.far[k] and at.off[others].mean() <= FEW
    mine["far"] = (side if mine["far"] * side <= 0 else mine["far"] + side) if far else 0
    still = np.quantile(at.slope[others], NEARLY_ALL, method="higher") < SLOPE / 2
    falls = at.falls[k] and still and np.median(at.change[others]) <= 0
    mine["falls"] = mine["falls"] + 1 if falls else 0
    said = _opened(at, k, mine) if mine["episode"] is None else _goes_on(at, k, mine)
    if mine["episode"] is None and not mine["far"] and not mine["falls"]:
        del now["fired"][name]
    return said


def _opened(at: _Point, k: int, mine: dict[str, Any]) -> list[Answer]:
    if abs(mine["far"]) >= TWICE:
        moved = float(at.moved[k])
        episode = f"level:{at.step:.15g}"
        base = float(at.value[k] - at.sign[k] * moved)
        mine.update(episode=episode, base=base, near=abs(moved) / 3, back=0, severity=2)
        onset = at.step - float(at.cadence[k])
        return [at.finding(k, "level", 2 if moved > 0 else 1, episode, onset, moved, alone=1, z=float(abs(at.z[k])))]
    if mine["falls"] >= TWICE:
        mine.update(episode=f"trend:{at.step:.15g}", base=None, back=0, severity=_severity(at, k))
        return [_trend(at, k, mine)]
    return []


def _severity(at: _Point, k: int) -> int:
    return 2 if at.slope[k] >= SURE and at.change[k] >= GRAVE[at.roles[k]] else 1


def _trend(at: _Point, k: int, mine: dict[str, Any]) -> Finding:
    evidence = {"alone": 1, "slope_errors": float(at.slope[k])}
    return at.finding(
        k, "trend", mine["severity"], mine["episode"], float(at.since[k]), float(at.change[k]), **evidence
    )


def _goes_on(at: _Point, k: int, mine: dict[str, Any]) -> list[Answer]:
    """The end of an episode: a level back where it was, a slope of half, at two points; or that a trend is graver."""
    if mine["base"] is None and mine["falls"] and _severity(at, k) > mine["severity"]:
        mine["severity"] = 2
        return [_trend(at, k, mine)]
    over = at.slope[k] < SLOPE / 2 if mine["base"] is None else abs(at.value[k] - mine["base"]) < mine["near"]
    mine["back"] = mine["back"] + 1 if over else 0
    if mine["back"] < TWICE:
        return []
    episode, mine["episode"] = mine["episode"], None
    mine.update(far=0, falls=0)
    return [at.recovery(k, episode)]
