"""A large run that leaves the path which smaller ones predict: how far off it is, said once, and whether it drifts away.

Sees: block medians of 16 samples (means of drop fractions) less what the ladder expects at that share of the schedule,
from 8 % of it on. (1) Offset of a whole-run metric: the median between 8 % and 12 %, told once: S1 where it lies outside
the 99 % band, else S0. (2) A shift: the last 4, 16 or 64 blocks against up to four times as many before them. The ladder
has taken the trend and the bend away, so that the baseline may be long; allowed is what the shape of a rung missed the
others by, in proportion to the logarithm of the share of the schedule up to a doubling, and five errors, and the gate of
the role. (3) A drift: the last 2 % of the schedule against the offset, beyond the gate, the 99 % band of the shape and five
errors. Of a leaf it takes three gates and twice the band. A worse loss is S2, S3 when the whole stands outside of the 99 %
band for 2 % of the schedule; everything else S1. Behind the end of a rung that stopped early nothing is more than S2.
(4) A gradient norm that still rises two standard deviations behind the peak of the rungs, S1. Over when 16 blocks are
back by two thirds.
Silent: before 8 % and behind the end of the schedule; where the run's settings or three rungs are not comparable.
Fooled by: a ladder of another recipe that nobody declared; a schedule that is not the planned one.
False alarms: see docs/ladder.md. Units: log (loss, norms), logit (fractions), log of the deficit to the highest entropy.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from detectors.finding import Answer, Finding, Recovery
from detectors.ladder_fit import base_of, behind, transformed
from detectors.ladder_rungs import MAD, START
from detectors.noise import BLOCK
from detectors.series import Array

DETECTOR = ("departure", 1)
GATES = {"loss": 0.004, "token_drop": 0.3, "router_entropy": 0.7, "grad_norm": 0.1, "param_norm": 0.02}
WINDOWS = (4, 16, 64)  # blocks
BEFORE = 4  # times a window
LEAST = 16  # blocks of a baseline
KEPT = WINDOWS[-1] * (1 + BEFORE)
PARTS = 200  # of the schedule: medians that a drift is told from
RECENT = 4  # parts
SETTLED = 0.12  # share at which the offset is known
ERRORS, Z99 = 5.0, 2.5758
LEAF = 3.0  # times the gate, for one of many
MEDIAN = 1.2533
BACK = 16  # blocks


def carry(state: Mapping[str, Any], at: float) -> dict[str, Any]:
    """Blocks and parts before the share at which a new attempt begins; what was told stays told."""
    kept = {key: state[key] for key in ("first", "offset", "peaked", "seen") if key in state}
    for key in ("blocks", "parts"):
        if key in state:
            kept[key] = state[key][:, state[key][0] < at]
    return kept


def scan(
    step: Array, value: Array, name: str, role: str, expected: Mapping[str, Any], state: Mapping[str, Any]
) -> tuple[list[Answer], dict[str, Any]]:
    """Findings `ladder` and recoveries from further samples. `expected` is the metric's part of what ladder_fit gives, with
    `at` (shares), `per_step` (share of the schedule of a step), `parameters`, `tokens` of the schedule where they are known,
    and `leaf` for one of many.
    """
    now: dict[str, Any] = {"episode": None, "told": -1, "offset": None, "open": (0.0, 0.0), "peaked": False, "seen": 0}
    now |= {
        "blocks": np.empty((2, 0)),
        "parts": np.empty((2, 0)),
        "part": np.empty(0),
        "rest": np.empty((2, 0)),
        **state,
    }
    rows: Array = np.concatenate([now["rest"], np.stack([step, value])], axis=1)
    if "first" not in now:
        if role == "param_norm" and rows.shape[1] < BLOCK:
            return [], now | {"rest": rows}
        at = float(rows[0, 0]) * expected["per_step"] if rows.shape[1] else 0.0
        now["first"] = base_of(rows[1], at, expected) if role == "param_norm" else expected["base"]
    whole = rows.shape[1] // BLOCK * BLOCK
    now["rest"] = rows[:, whole:]
    said: list[Answer] = []
    for block in np.moveaxis(rows[:, :whole].reshape(2, -1, BLOCK), 1, 0):
        at, level = float(block[0, -1]) * expected["per_step"], _level(block[1], role, now)
        if START <= at <= 1 and math.isfinite(level):
            miss = level - float(np.interp(at, expected["at"], expected["centre"]))
            said += _block(float(block[0, -1]), at, miss, name, role, expected, now)
    return said, now


def _level(values: Array, role: str, now: Mapping[str, Any]) -> float:
    """One number of a block on the scale of its role; NaN where fewer than half of it is finite."""
    if role == "token_drop":
        good = values[np.isfinite(values)]
        return float(transformed(role, np.array([good.mean()]))[0]) if len(good) >= BLOCK // 2 else math.nan
    seen = transformed(role, values, now["first"])
    seen = seen[np.isfinite(seen)]
    return float(np.median(seen)) if len(seen) >= BLOCK // 2 else math.nan


def _block(
    step: float, at: float, miss: float, name: str, role: str, expected: Mapping[str, Any], now: dict[str, Any]
) -> list[Answer]:
    said: list[Answer] = []
    if len(now["part"]) and int(now["blocks"][0, -1] * PARTS) < int(at * PARTS):
        middle = [[float(now["blocks"][0, -1])], [float(np.median(now["part"]))]]
        now.update(parts=np.concatenate([now["parts"], middle], axis=1), part=np.empty(0))
        said += _part(step, at, name, role, expected, now)
    now["part"] = np.append(now["part"], miss)
    now["blocks"] = np.concatenate([now["blocks"], [[at], [miss]]], axis=1)[:, -KEPT:]
    now["seen"] += 1
    if now["episode"] is not None:
        return said + _goes_on(step, name, now)
    shift = _shift(role, expected, now)
    if shift is not None:
        said += _told(step, at, *shift, name, role, expected, now, how="shift")
    return said


def noise_of(miss: Array, prior: float) -> float:
    """Standard deviation of a block: by the moves of single ones and of fours, which a slow part makes larger."""
    if len(miss) < LEAST:
        return prior
    fours = miss[len(miss) % 4 :].reshape(-1, 4).mean(axis=1)
    return max(_scale(miss), 2 * _scale(fours))


def _prior(role: str, expected: Mapping[str, Any]) -> float:
    """Standard deviation of a block by the rungs, whose noise of drops is that of a block already."""
    noise = float(expected["noise"])
    return noise if role == "token_drop" else MEDIAN * noise / math.sqrt(BLOCK)


def _scale(values: Array) -> float:
    return float(MAD * np.median(np.abs(np.diff(values))))


def _shift(role: str, expected: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[float, float, float] | None:
    """(size, baseline, share at which it began) of a shift that cannot be noise or shape; None without one."""
    at, miss = now["blocks"]
    due = (w for w in WINDOWS if now["seen"] % (w // WINDOWS[0]) == 0)  # a wide window need not be looked at so often
    for width in (w for w in due if len(miss) >= w + max(LEAST, 2 * w)):
        window, before = miss[-width:], miss[-width * (1 + BEFORE) : -width]
        if len(before) < LEAST:
            before = miss[-width - LEAST : -width]
        base = float(np.median(before))
        size = float(np.median(window)) - base
        if abs(size) < _gate(role, expected):
            continue
        halves = (window[: width // 2], window[width // 2 :])
        lasts = all(math.copysign(1.0, size) * (float(np.median(half)) - base) >= abs(size) / 2 for half in halves)
        middle = float(at[-len(before) - width : -width].mean())
        error = MEDIAN * noise_of(before[-64:], _prior(role, expected)) * math.sqrt(1 / width + 1 / len(before))
        if lasts and abs(size) >= max(_gate(role, expected), ERRORS * error) + _allowed(
            expected, middle, float(at[-1])
        ):
            return size, base, float(at[-width])
    return None


def _gate(role: str, expected: Mapping[str, Any]) -> float:
    return GATES[role] * (LEAF if expected.get("leaf") else 1.0)


def _band(expected: Mapping[str, Any], at: float) -> float:
    """Half of the 99 % band: few rungs make it wider than a normal one's."""
    return float(expected.get("wide", Z99) * np.interp(at, expected["at"], expected["sd"]))


def _allowed(expected: Mapping[str, Any], since: float, at: float) -> float:
    """What the shape may be off by from one share of the schedule to another: its whole deviation in a doubling."""
    deviations = Z99 * (2 if expected.get("leaf") else 1)
    return float(deviations * expected["shape_sd"] * min(1.0, math.log2(at / since)))


def _part(
    step: float, at: float, name: str, role: str, expected: Mapping[str, Any], now: dict[str, Any]
) -> list[Answer]:
    """A further 0.5 % of the schedule is over."""
    shares, miss = now["parts"]
    if now["offset"] is None:
        if at < SETTLED or len(miss) < RECENT:
            return []
        now["offset"] = float(np.median(miss))
        return [] if expected.get("leaf") else _offset(step, float(shares[0]), at, name, role, expected, now)
    said = _late_peak(step, at, name, expected, now) if role == "grad_norm" else []
    if len(miss) < 2 * RECENT:
        return said
    recent = float(np.median(miss[-RECENT:]))
    size = recent - now["offset"]
    blocks = now["blocks"]
    inside = int((blocks[0] > shares[-RECENT] - 1 / PARTS).sum())
    error = MEDIAN * noise_of(blocks[1, -64:], _prior(role, expected)) * math.sqrt(2 / max(inside, 1))
    drifts = abs(size) >= max(_gate(role, expected), ERRORS * error) + _allowed(expected, START, at)
    if drifts and (now["episode"] is None or _loud(role, size, at, miss, expected) > now["told"]):
        began_at = now["blocks"][0, 0] if now["episode"] is not None else shares[-RECENT]
        said += _told(step, at, size, now["offset"], float(began_at), name, role, expected, now, how="drift")
    return said


def _loud(role: str, size: float, at: float, miss: Array, expected: Mapping[str, Any]) -> int:
    """S3 for a loss that is outside of the 99 % band for 2 % of the schedule, as long as every rung knows that part."""
    if role != "loss" or size < 0:
        return 1
    outside = float(miss[-RECENT:].min()) > _band(expected, at)
    known = expected["censored_from"] is None or at <= expected["censored_from"]
    return 3 if outside and known and len(miss) >= RECENT else 2


def _offset(
    step: float, first: float, at: float, name: str, role: str, expected: Mapping[str, Any], now: dict[str, Any]
) -> list[Answer]:
    size = now["offset"]
    blocks = now["blocks"][1]
    error = MEDIAN * noise_of(blocks[-64:], _prior(role, expected)) / math.sqrt(len(blocks))
    outside = abs(size) > math.hypot(_band(expected, at), Z99 * error)
    found = _finding(step, first, at, size, 1 if outside else 0, "offset", name, role, expected, how="offset", base=0.0)
    return [found, Recovery(DETECTOR[0], name, "offset", step)]


def _late_peak(step: float, at: float, name: str, expected: Mapping[str, Any], now: dict[str, Any]) -> list[Answer]:
    """A gradient norm that is highest now though the rungs' had its peak behind it."""
    peak = expected.get("peak")
    if peak is None or now["peaked"] or at <= peak["at"] + 2 * peak["sd"] or len(now["parts"][0]) < 2 * RECENT:
        return []
    now["peaked"] = True
    levels = now["parts"][1] + np.interp(now["parts"][0], expected["at"], expected["centre"])
    recent, before = float(np.median(levels[-RECENT:])), float(np.median(levels[-2 * RECENT : -RECENT]))
    highest = float(np.max(levels[:-RECENT]))
    if recent < highest or recent <= before:
        return []
    evidence = {"how": "peak", "base": before, "peak_at": peak["at"]}
    found = _finding(step, at, at, recent - before, 1, "peak", name, "grad_norm", expected, **evidence)
    return [found, Recovery(DETECTOR[0], name, "peak", step)]


def _told(
    step: float,
    at: float,
    size: float,
    base: float,
    since: float,
    name: str,
    role: str,
    expected: Mapping[str, Any],
    now: dict[str, Any],
    *,
    how: str,
) -> list[Answer]:
    severity = (
        _loud(role, size, at, now["parts"][1], expected) if how == "drift" else 2 if role == "loss" and size > 0 else 1
    )
    if now["episode"] is None:
        now.update(episode=f"{how}:{step:.15g}", open=(base, size), since=since)
    now["told"] = severity
    return [_finding(step, now["since"], at, size, severity, now["episode"], name, role, expected, how=how, base=base)]


def _goes_on(step: float, name: str, now: dict[str, Any]) -> list[Answer]:
    """Over when the last 16 blocks are back by two thirds."""
    base, size = now["open"]
    if now["blocks"].shape[1] < BACK:
        return []
    left = (float(np.median(now["blocks"][1, -BACK:])) - base) / size
    if left > 1 / 3:
        return []
    ended = Recovery(DETECTOR[0], name, now["episode"], step)
    now.update(episode=None, told=-1, blocks=now["blocks"][:, -BACK:])
    return [ended]


def _finding(
    step: float,
    since: float,
    at: float,
    size: float,
    severity: int,
    episode: str,
    name: str,
    role: str,
    expected: Mapping[str, Any],
    **evidence: Any,
) -> Finding:
    sd = float(np.interp(at, expected["at"], expected["sd"]))
    evidence |= {"at": at, "sd": sd, "rungs": len(expected["rungs"])}
    early = expected["censored_from"]
    if early is not None and at > early:
        evidence["extrapolated_from"] = early
    if role == "loss":
        share = behind(expected, at, size)
        if share is not None:
            evidence["behind"] = share
            if "tokens" in expected:
                tokens = share * at * expected["tokens"]
                evidence |= {"tokens_behind": tokens, "compute_behind": 6 * expected["parameters"] * tokens}
    unit = {"token_drop": "logit", "router_entropy": "log deficit"}.get(role, "log")
    way = "up" if (size > 0) != (role == "router_entropy") else "down"
    onset = min(since / expected["per_step"], step)
    return Finding(*DETECTOR, "ladder", name, role, way, onset, step, size, unit, severity, episode, evidence)
