"""Slope changes: at every known event, and at a free point. A continuous line of two pieces through block medians.

Sees: at an event, 40 blocks after it against 20 to 50 before, once for each length of blocks as they fill: HAC F-test
of the change of slope (Newey-West, lag 1.5 n^(1/3)), p < 1e-3, simulated too (statistics.md D5 of the project's notes:
"did the slope change there" is what people ask). At a free point the largest F over the middle 70 % of 60 to 100
blocks, p < 1e-4 by simulated critical values (tests/bench/sup_f.py: Andrews' table is for breaks of a level, a kink in
a line has its own law). In both, the kink has to fit better than a parabola, and the slope to change by 5 % (a norm) in
10,000 steps and by 40 % of itself. S1 where the change goes the way that harms, S2 where a gradient norm does
so beyond doubt (F >= 25) at an event (marin#9149: a slope that doubled at a change of transport), S0 at an event where it
goes the other way.
Silent: before 60 blocks that leave out the first tenth of the run; about routine events (evaluations, checkpoints).
Fooled by: a smooth bend that is no parabola; a learning rate that changes at the same point; two kinks in a window.
False alarms: see docs/detectors.md.
Units: log per 10,000 steps.
"""

import math
from typing import Any

import numpy as np

from detectors.hinges import Kink, best_kink, intervals, middle
from detectors.noise import BLOCK, CHUNK
from detectors.series import Array
from detectors.trends import FACTORS, LEAST, MOST, grouped, longer, theil_sen
from detectors.window import Chunk, Said, State

DETECTOR = ("kinks", 2)
ROUTINE = frozenset({"eval", "checkpoint"})
BEFORE, AFTER = (20, 50), 40  # blocks around an event
FEWEST = 60  # blocks for a free point
F_EVENT, F_FREE = 18.0, 35.0  # p = 1e-3 and 1e-4 with the memory that a test for it lets through (tests/bench/sup_f.py)
F_SURE, HEARD = 25.0, frozenset({"grad_norm"})  # what at an event is worth more than a note
ALL = 1 << 30  # samples in a block: an event whose kink was told is not looked at again
FRESH = 4  # a part of a window that has to be new before a free point is looked for again
RATIO = 0.4  # of the slope before
TWICE = 2
# log in 10,000 steps, log so far, and the ways that harm
ROLES: dict[str, tuple[float, float, tuple[int, ...]]] = {
    "grad_norm": (math.log(1.05), math.log(1.05), (1,)),
    "param_norm": (math.log(1.05), math.log(1.01), (1, -1)),  # has next to no noise
    "router_entropy": (0.005, 0.005, (-1,)),
    "router_bias": (math.log(2), math.log(3), (1,)),
    "max_logit": (math.log(1.25), math.log(1.25), (1,)),
    "logsumexp": (math.log(1.10), math.log(1.10), (1,)),
}
RESTLESS = frozenset({"router_bias"})  # young biases turn by themselves: only events are asked about

Window = tuple[Array, Array, int]  # steps, values, samples in a block


def carry(state: State, step: float) -> State:
    """The block medians before `step`, and the events before it that were looked at."""
    rows = {name: state[name][state[name][:, 0] < step] for name in ("fine", "coarse") if name in state}
    return {**rows, "tested": [each for each in state.get("tested", []) if each[0] < step]}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `trend` (S1, S0) and recoveries; evaluated when a chunk is complete."""
    now: dict[str, Any] = {"tested": [], "looked": {}, "open": None, **state}
    said: list[Said] = []
    value = chunk.size if chunk.role == "router_bias" else chunk.log
    for at, index in chunk.wholes():
        now |= longer(now, chunk.step[at], value[at])
        said += _evaluate(chunk, index, now)
    return said, now


def _evaluate(chunk: Chunk, index: int, now: dict[str, Any]) -> list[Said]:
    said: list[Said] = []
    levels = [(_old_enough(now[name], unit, index), unit) for name, unit in (("fine", BLOCK), ("coarse", CHUNK))]
    for step, kind, since in chunk.events:
        done = next((size for at, what, size in now["tested"] if (at, what) == (step, kind)), 0)
        if (
            kind in ROUTINE
            or since > chunk.step[chunk.at(index)]
            or not now["coarse"][0, 0] <= step < now["coarse"][-1, 0]
        ):
            continue
        for window in _around(levels, step):
            kink = best_kink(window[0], window[1], np.array([step]))
            if window[2] <= done or not kink.white:
                continue
            found = kink.f >= F_EVENT and _matters(kink, chunk.role)
            rest = [each for each in now["tested"] if each[:2] != [step, kind]]
            now["tested"] = [*rest, [step, kind, ALL if found else window[2]]]
            if found:
                said += _say(
                    chunk, index, kink, window, now, event=kind, critical=F_EVENT, p=math.erfc(math.sqrt(kink.f / 2))
                )
                break
    if now["open"] is not None:
        return said or _ends(chunk, index, now)
    if chunk.role in RESTLESS:
        return said
    for window in _newest(levels, index, now):
        if not _may_bend(window[1]):
            continue
        kink = best_kink(window[0], window[1], middle(window[0]))
        if kink.white and kink.f >= F_FREE and _matters(kink, chunk.role) and _harms(kink, chunk.role):
            return said + _say(chunk, index, kink, window, now, critical=F_FREE)
    return said


def _old_enough(rows: Array, unit: int, index: int) -> Array:
    """Finite blocks without the first tenth of the run."""
    known = rows[np.isfinite(rows[:, 1])]
    return known[max(0, len(known) - int((index + 1) * 0.9 / unit)) :]


def _around(levels: list[tuple[Array, int]], at: float) -> list[Window]:
    """Blocks on both sides of a step without the one that holds it, the shortest first, where there are enough."""
    out = []
    for rows, unit in levels:
        first = int(np.searchsorted(rows[:, 0], at))
        for factor in FACTORS:
            early, late = min(first // factor, BEFORE[1]), (len(rows) - first - 1) // factor
            if early < BEFORE[0] or late < AFTER:
                break
            before = grouped(rows[first - early * factor : first], factor)
            after = grouped(rows[first + 1 : first + 1 + AFTER * factor], factor)
            step, value = (np.concatenate(pair) for pair in zip(before, after, strict=True))
            out.append((step, value, unit * factor))
    return out


def _newest(levels: list[tuple[Array, int]], index: int, now: dict[str, Any]) -> list[Window]:
    """The newest 60 to 100 blocks of each length of which enough is new since they were looked at."""
    out = []
    for rows, unit in levels:
        for factor in FACTORS:
            count, size = min(len(rows) // factor, MOST), unit * factor
            if count < FEWEST:
                break
            if index - now["looked"].get(str(size), -math.inf) >= count * size / FRESH:
                now["looked"] = {**now["looked"], str(size): index}
                out.append((*grouped(rows[len(rows) - count * factor :], factor), size))
    return out


def _may_bend(value: Array) -> bool:
    """A cheap screen: whether the means of three thirds lie on no straight line, by two of their errors."""
    third = len(value) // 3
    means = [float(value[k : k + third].mean()) for k in (0, (len(value) - third) // 2, len(value) - third)]
    scale = float(np.diff(value).std()) / math.sqrt(2)
    return abs(means[0] - 2 * means[1] + means[2]) > 2 * scale * math.sqrt(6 / third)


def _matters(kink: Kink, role: str) -> bool:
    """A kink rather than a bend; by the role's effect in 10,000 steps and so far, and by 40 % of the slope before."""
    rate, moved, _ = ROLES[role]
    large = abs(kink.change) * 1e4 >= rate and abs(kink.change) * kink.span >= moved
    return kink.better and large and abs(kink.change) >= RATIO * abs(kink.before)


def _harms(kink: Kink, role: str) -> bool:
    """Whether it now goes a way that harms, and faster than before: a rise that slows down does not."""
    rate, _, ways = ROLES[role]
    way = 1 if kink.change > 0 else -1
    return way in ways and way * kink.after * 1e4 >= rate


def _say(
    chunk: Chunk, index: int, kink: Kink, window: Window, now: dict[str, Any], event: str = "", **numbers: float
) -> list[Said]:
    step, value, size = window
    said = [] if now["open"] is None else [chunk.recovery(DETECTOR, now["open"]["episode"], index)]
    episode = f"{index}:{kink.at:.15g}"
    now["open"] = {"episode": episode, "at": kink.at, "before": kink.before, "change": kink.change, "size": size}
    now["faded"] = 0
    before, after = intervals(step, value, kink.at)
    found = chunk.finding(
        DETECTOR,
        "trend",
        index,
        index,
        (2 if event and chunk.role in HEARD and kink.f >= F_SURE else 1) if _harms(kink, chunk.role) else 0,
        episode,
        direction="up" if kink.change > 0 else "down",
        magnitude=kink.change * 1e4,
        unit="log per 10,000 steps",
        onset_step=kink.at,
        slope_before_per_10k=kink.before * 1e4,
        slope_per_10k=kink.after * 1e4,
        interval_before_per_10k=[each * 1e4 for each in before],
        interval_per_10k=[each * 1e4 for each in after],
        slope_ratio=kink.after / kink.before if kink.before else math.inf,
        event=event,
        f=kink.f,
        blocks=len(step),
        block_samples=size,
        **numbers,
    )
    return [*said, found]


def _ends(chunk: Chunk, index: int, now: dict[str, Any]) -> list[Said]:
    """Over when the newest 20 blocks have a slope nearer to that before than to that after, twice in a row."""
    open_ = now["open"]
    unit = BLOCK if open_["size"] < CHUNK and open_["size"] // BLOCK in FACTORS else CHUNK
    rows = now["fine" if unit == BLOCK else "coarse"]
    rows = rows[np.isfinite(rows[:, 1]) & (rows[:, 0] > open_["at"])]
    factor = open_["size"] // unit
    if len(rows) < LEAST * factor:
        return []
    slope = theil_sen(*grouped(rows[-LEAST * factor :], factor))
    back = abs(slope - open_["before"]) < abs(open_["change"]) / 2
    now["faded"] = now["faded"] + 1 if back else 0
    if now["faded"] < TWICE:
        return []
    now["open"] = None
    return [chunk.recovery(DETECTOR, open_["episode"], index)]
