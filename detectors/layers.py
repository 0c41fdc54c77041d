"""Routing by layer and expert, judged only across the section: one layer that leaves its peers, or all that move together.

Sees: a layer whose place among its peers (median of eight block medians, less the median of all layers) is worse than at its
best since sample 2,000: by five robust deviations of what the peers did, and by half as much load, drops or bias
again or a tenth fewer experts in effect (exponential of the entropy), twice in a row: S2, a bias S1. With three times its
peers' load or 40 % fewer experts in effect S3 (patterns P47, P49; one layer at 12 times the mean load in Nemotron 3 Ultra,
arXiv:2606.15007). Of all layers together (four of five): 3 % fewer experts in effect S1, 10 % S2, 20 % S3; half
as much load again S2 (P45). Loads of single experts count as the fullest over the mean of their layer.
Silent: with fewer than eight layers, before 2,000 samples (routers find their balance first), on single experts.
Fooled by: an imbalance that was there from the start; a change of the data mix, to which layers adapt at different speeds.
False alarms: see docs/detectors.md. Units: log ratio; nats of an entropy. `p_family` in the evidence is a Cauchy
combination (doi:10.1080/01621459.2018.1554485) of the layers' own trends over 20 blocks: evidence, no gate.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detectors import sections
from detectors.finding import Answer, Finding, Recovery
from detectors.noise import BLOCK, NORMAL_MAD, row_median
from detectors.sections import Blocks, Leaves, Section
from detectors.series import Array

DETECTOR = ("layers", 1)
POOL = 8  # blocks whose median is a layer's place
HALF = 3  # blocks after a step at which such a median begins to show it
TREND = 20  # blocks
KEEP, RAW = TREND + POOL, 4  # blocks that stay, of layers and of single experts
YOUNG = 125  # blocks
LEAVES = 8
Z = 5.0
TWICE = 2
MOST = 0.8  # of the layers that move when all do
ALL = ""  # the key of what all layers do together
EXPERT = re.compile(r"experts?[._/-]?\d+")


@dataclass(frozen=True)
class Gate:
    """Of a role: which way is bad, least move of one layer and its severity, further marks that are S3, marks for all."""

    sign: int
    one: float
    severity: int = 2
    grave: float = math.inf
    all: tuple[tuple[float, int], ...] = ()


GATES = {
    "router_load": Gate(1, math.log(1.5), 2, math.log(3), ((math.log(1.5), 2),)),
    "router_entropy": Gate(-1, -math.log(0.9), 2, 0.5, ((0.03, 1), (-math.log(0.9), 2), (-math.log(0.8), 3))),
    "token_drop": Gate(1, math.log(1.5)),
    "router_bias": Gate(1, math.log(1.5), 1),
}
FLOOR = {"token_drop": 0.01, "router_bias": 0.1, "router_load": 1e-6}  # added before the logarithm


def carry(state: Mapping[str, Any], step: float) -> dict[str, Any]:
    """What was known of the layers, without what was said: the attempt that begins here tells its own story."""
    return {
        family: {
            **known,
            "fired": {},
            "raw": sections.before(sections.load(known, "raw"), step).dump(),
            "section": sections.before(sections.load(known), step).dump(),
        }
        for family, known in state.items()
    }


def scan(new: Blocks, leaves: Leaves, state: Mapping[str, Any]) -> tuple[list[Answer], dict[str, Any]]:
    """Findings `level` and `trend` with recoveries; a state a family of leaves (names that differ in their numbers)."""
    families: dict[str, dict[str, Array]] = {}
    for name, rows in new.items():
        if leaves[name][0] in GATES:
            families.setdefault(f"{leaves[name][0]} {re.sub(r'[0-9]+', '#', name)}", {})[name] = rows
    said: list[Answer] = []
    after = dict(state)
    for family, blocks in sorted(families.items()):
        found, after[family] = _family(family, blocks, state.get(family, {}))
        said += found
    return said, after


def _family(family: str, new: Blocks, state: Mapping[str, Any]) -> tuple[list[Answer], dict[str, Any]]:
    role = family.split(" ", 1)[0]
    raw = sections.load(state, "raw")
    if EXPERT.search(family.replace("#", "0")) and family.count("#") > 1:
        raw = sections.extended(raw, new)
        todo = sections.due(raw)
        new = _fullest(raw, todo)
        raw = sections.forget(raw, todo.stop, RAW)
    section = sections.extended(sections.load(state), new)
    todo = sections.due(section)
    known = {"low": {}, "since": {}, **state, "fired": dict(state.get("fired", {}))}
    said = _judge(section, todo, role, known) if len(section.names) >= LEAVES and len(todo) else []
    return said, {**known, "raw": raw.dump(), "section": sections.forget(section, todo.stop, KEEP).dump()}


def _fullest(raw: Section, todo: range) -> dict[str, Array]:
    """The load of each layer's fullest expert over the mean of its experts, as blocks of a metric a layer."""
    layers: dict[str, list[int]] = {}
    for row, name in enumerate(raw.names):
        layers.setdefault(EXPERT.sub("fullest expert", name, count=1), []).append(row)
    columns = np.arange(todo.start, todo.stop) - (raw.first or 0)
    out = {}
    for layer, rows in layers.items():
        load, step = raw.value[np.ix_(np.array(rows), columns)], raw.step[np.ix_(np.array(rows), columns)]
        seen = np.isfinite(load).all(axis=0) & (load.sum(axis=0) > 0)
        ratio = load[:, seen].max(axis=0) / load[:, seen].mean(axis=0)
        out[layer] = np.column_stack([np.array(todo)[seen], step[0, seen], ratio])
    return out


def _scaled(section: Section, role: str) -> Array:
    """The judged scale, in which more is worse."""
    with np.errstate(invalid="ignore", divide="ignore"):
        if role == "router_entropy":
            return -section.value
        logs: Array = np.log(np.abs(section.value) + FLOOR[role])
        return logs


def _judge(section: Section, todo: range, role: str, known: dict[str, Any]) -> list[Answer]:
    """All blocks of `todo` at once; only those where something is far, or was, are looked at one by one."""
    assert section.first is not None
    scaled = _scaled(section, role)
    blocks = np.array([b for b in todo if b >= YOUNG and b - section.first >= POOL - 1])
    if not len(blocks):
        return []
    columns = blocks - section.first
    views = np.lib.stride_tricks.sliding_window_view(scaled, POOL, axis=1)[:, columns - POOL + 1]
    place = np.where(np.isfinite(views).all(axis=2), np.median(np.nan_to_num(views), axis=2), np.nan)
    count = np.isfinite(place).sum(axis=0)
    middle = row_median(np.ascontiguousarray(place.T))
    gate = GATES[role]
    names = [*section.names, ALL]
    rise = _rise(place, middle, count, names, known)
    far = _far(rise, count, gate)
    since = _since(section, rise, columns, names, gate, known)
    said: list[Answer] = []
    look = [bool(column.any()) for column in far.T]
    for k in range(len(blocks)):
        if count[k] < LEAVES or not (look[k] or known["fired"]):
            continue
        now = _Now(section, role, int(blocks[k]), int(columns[k]), place[:, k], float(middle[k]), rise[:, k], far[:, k])
        said += _speak(now, names, since[:, k], known)
    return said


def _rise(place: Array, middle: Array, count: Array, names: list[str], known: dict[str, Any]) -> Array:
    """How far each layer stands above the lowest place it had among its peers, remembering that; in the last row how far
    at least four of five stand above their own lowest."""
    keys = [*names[:-1], *(f"own {name}" for name in names[:-1])]
    rows = np.vstack([place - middle, place])
    before = np.array([known["low"].get(key, math.inf) for key in keys])
    low = np.fmin.accumulate(np.column_stack([before, rows]), axis=1)
    newest = zip(keys, low[:, -1], strict=True)
    known["low"] = {**known["low"], **{key: float(v) for key, v in newest if math.isfinite(v)}}
    rise = rows - low[:, 1:]
    own = np.sort(rise[len(place) :], axis=0)
    all_of_them = own[((1 - MOST) * count).astype(int).clip(max=len(own) - 1), np.arange(len(count))]
    return np.vstack([rise[: len(place)], all_of_them])


def _far(rise: Array, count: Array, gate: Gate) -> NDArray[np.bool_]:
    """Layers that left their peers; and, in the last row, all of them together."""
    one = rise[:-1]
    middle = row_median(np.ascontiguousarray(one.T))
    scale = NORMAL_MAD * row_median(np.ascontiguousarray(np.abs(one - middle).T))
    with np.errstate(invalid="ignore"):
        far = (one >= gate.one) & (one - middle >= Z * scale)
        together = rise[-1] >= (gate.all[0][0] if gate.all else math.inf)
    return np.vstack([far, together]) & (count >= LEAVES)


def _since(section: Section, rise: Array, columns: Any, names: list[str], gate: Gate, known: dict[str, Any]) -> Array:
    """For each row and block the last step at which the row was still calm: where a move began."""
    least = np.full(len(names), gate.one / 3)
    least[-1] = gate.all[0][0] / 3 if gate.all else math.inf
    newest = np.nanmax(np.where(np.isfinite(section.step), section.step, -math.inf), axis=0)
    with np.errstate(invalid="ignore"):
        calm = np.where(rise <= least[:, None], newest[np.maximum(columns - HALF, 0)], -math.inf)
    before = np.array([known["since"].get(name, -math.inf) for name in names])
    since = np.maximum.accumulate(np.column_stack([before, calm]), axis=1)[:, 1:]
    last = zip(names, since[:, -1], strict=True)
    known["since"] = {**known["since"], **{name: float(v) for name, v in last if math.isfinite(v)}}
    return np.asarray(since)


@dataclass(frozen=True)
class _Now:
    """One block: `place`, `rise` and `far` a row, the last of the latter two for all layers together."""

    section: Section
    role: str
    block: int
    column: int
    place: Array
    middle: float
    rise: Array
    far: NDArray[np.bool_]

    @property
    def step(self) -> float:
        return float(np.nanmax(self.section.step[:, self.column]))


def _speak(now: _Now, names: list[str], since: Array, known: dict[str, Any]) -> list[Answer]:
    """Findings of the rows that are far twice in a row or graver than before, and recoveries of those that came back."""
    gate = GATES[now.role]
    said: list[Answer] = []
    for row, name in enumerate(names):
        was = known["fired"].get(name)
        if was is None and not now.far[row]:
            continue
        was = was or {"count": 0, "severity": -1, "episode": str(now.block)}
        severity = _severity(now, row, name) if now.far[row] else -1
        if severity > was["severity"] and was["count"] + 1 >= TWICE:
            said.append(_finding(now, row, name, float(since[row]), severity, was))
            was = {**was, "severity": severity}
        known["fired"][name] = {**was, "count": was["count"] + 1 if now.far[row] else 0}
        back = now.rise[row] < (gate.one if name != ALL else gate.all[0][0]) / 2
        if (was["severity"] < 0 and not now.far[row]) or back:
            del known["fired"][name]
            if was["severity"] >= 0:
                said.append(Recovery(DETECTOR[0], was["metric"], was["episode"], now.step))
    return said


def _severity(now: _Now, row: int, name: str) -> int:
    gate = GATES[now.role]
    if name == ALL:
        return max(severity for mark, severity in gate.all if now.rise[row] >= mark)
    stands_out = now.place[row] - now.middle >= gate.grave and now.rise[row] >= gate.grave / 2
    return 3 if stands_out else gate.severity


def _finding(now: _Now, row: int, name: str, since: float, severity: int, was: dict[str, Any]) -> Finding:
    """About the layer, or about the one that moved most when all do."""
    at = row if name != ALL else int(np.nanargmax(now.rise[:-1]))
    was.setdefault("metric", now.section.names[at])
    first = now.section.step[at, max(now.column - POOL + 1, 0)]
    cadence = float(now.section.step[at, now.column] - first) / ((POOL - 1) * BLOCK)
    onset = min(since, now.step) if math.isfinite(since) else float(first)
    value = now.section.value[:, now.column - POOL + 1 : now.column + 1]
    here = float(np.median(value[at] if name != ALL else np.nanmedian(value, axis=0)))
    moved = float(now.rise[row])
    entropy = now.role == "router_entropy"
    return Finding(
        *DETECTOR,
        "level" if now.step - onset <= 2 * POOL * BLOCK * cadence else "trend",
        was["metric"],
        now.role,
        "down" if entropy else "up",
        onset,
        now.step,
        -moved if entropy else moved,
        "nats" if entropy else "log",
        severity,
        was["episode"],
        {
            "before": here + moved if entropy else here * math.exp(-moved),
            "after": here,
            "layers": int(np.isfinite(now.place).sum()),
            "layers_out": int(now.far[:-1].sum()),
            "alone": int(name != ALL),
            "peers": float(-now.middle if entropy else math.exp(now.middle)),
            "p_family": p_family(_scaled(now.section, now.role)[:, max(now.column - TREND + 1, 0) : now.column + 1]),
            "samples": (now.block + 1) * BLOCK,
            "cadence": cadence,
        },
    )


def p_family(rows: Array) -> float:
    """One-sided p of a rise in a family: Cauchy combination of the rank correlations of its rows with time."""
    rows = rows[np.isfinite(rows).all(axis=1)]
    size = rows.shape[1] if rows.ndim == 2 else 0
    if len(rows) == 0 or size < LEAVES:
        return 1.0
    ranks = np.argsort(np.argsort(rows, axis=1), axis=1) - (size - 1) / 2
    time = np.arange(size) - (size - 1) / 2
    z = (ranks @ time) / (time @ time) * math.sqrt(size - 1)
    p = np.clip([0.5 * math.erfc(v / math.sqrt(2)) for v in z], 1e-15, 1 - 1e-15)
    combined = float(np.tan((0.5 - p) * math.pi).mean())
    return 0.5 - math.atan(combined) / math.pi
