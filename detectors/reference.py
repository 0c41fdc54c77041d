"""A run beside another one that saw the same batches at the same steps: what a deploy, a replay or a rollback changed.

Sees: pairs of values of one step, reference and run. On equal data order the noise of the batch is the same in both and
cancels, so the log residual is 8 to 20 times quieter than either run. (1) At every fourth pair the median of the last 8,
16, 64 and 256 residuals against what the residual was before: beyond the gate of the metric, five to eight of its errors,
and with each half of the window beyond half of the gate on the same side. Runs that began alike (the first 8 residuals
within 0.05 %) are held to zero from then on; others, of other weights or settings, to the median of the 256 residuals
before the window, whose own drift is allowed for, from pair 512 on, in their losses only: norms and routers go their own
ways. Beyond the gate is S1, a loss worse by twice its gate (0.4 % by default) S2, a better one S0.
Over when 64 residuals are back within half of the gate.
(2) 64 pairs of a loss that scatter like independent noise: the data order is another one (S0). From then on only
what stands out of the whole noise is seen. Where the order was equal before, it was lost: S2 (patterns P37, P70).
Silent: on steps that only one of them logged; on metrics of the machine (time, throughput, memory).
Fooled by: a reference that is itself ill; what was changed on purpose.
False alarms: none above S0 on the recorded twins (see docs/reference.md).
Units: log ratio to the reference. Source: 0.9985 of the noise of two runs on the same data is common (18 times quieter);
Marin's gate for a change of the code is a paired window of 200 steps.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detectors.finding import Answer, Finding, Recovery
from detectors.series import Array

DETECTOR = ("reference", 1)
GATES = {
    "loss": 0.002,
    "eval_loss": 0.002,
    "grad_norm": 0.05,
    "update_norm": 0.05,
    "param_norm": 0.01,
    "token_drop": 0.2,
    "router_entropy": 0.01,
    "max_logit": 0.05,
    "logsumexp": 0.02,
}  # relative: what is worth a look at that role
WORSE = frozenset({"loss", "eval_loss"})
LOUD = 2.0  # gates: S2
EVERY = 4  # pairs between two looks
ERRORS = {
    8: 8.0,
    16: 6.0,
    64: 5.0,
    256: 5.0,
}  # pairs in a window, errors of its median: of few the noise is little known
BASE = 256  # residuals of a baseline
ALIKE, AT_FIRST = 0.0005, 8
WARM = 512  # pairs before runs that did not begin alike are judged
BACK = 64
APART, SAME, APART_AT = 0.7, 0.35, 64  # scatter of residuals over that of independent noise
KEPT = 2 * BASE  # pairs
SPAN = 4096  # pairs screened at once
MEDIAN = 1.2533  # error of a median over that of a mean, Gaussian
TRIMMED = 1.52  # noise of one sample over the mean of its moves without the largest tenth, and over root 2


def carry(state: Mapping[str, Any]) -> dict[str, Any]:
    """The pairs before a restart, and how the two runs began."""
    return {key: state[key] for key in ("pairs", "count", "alike", "order") if key in state}


def scan(
    step: Array, reference: Array, value: Array, name: str, role: str, gate: float, state: Mapping[str, Any]
) -> tuple[list[Answer], dict[str, Any]]:
    """Findings `level` and `replay`, and recoveries, from further pairs; those that are not positive and finite are none."""
    with np.errstate(invalid="ignore"):
        good = (reference > 0) & (value > 0) & np.isfinite(reference) & np.isfinite(value)
    pairs = np.stack([step, np.log(np.where(good, reference, 1)), np.log(np.where(good, value, 1))])[:, good]
    now: dict[str, Any] = {"count": 0, "alike": None, "order": "", "episode": None, "told": -1, "base": 0.0, "ended": 0}
    now |= state
    said: list[Answer] = []
    for begin in range(0, pairs.shape[1], SPAN):
        said += _span(pairs[:, begin : begin + SPAN], name, role, gate, now)
    return said, now


def _span(pairs: Array, name: str, role: str, gate: float, now: dict[str, Any]) -> list[Answer]:
    """Further pairs behind the known ones."""
    known: Array = np.concatenate([now.get("pairs", np.empty((3, 0))), pairs], axis=1)
    old = known.shape[1] - pairs.shape[1]
    said: list[Answer] = []
    ends = [k for k in range(old + 1, known.shape[1] + 1) if (now["count"] + k - old) % EVERY == 0]
    hot = _hot(known[2] - known[1], np.array(ends, dtype=np.int64), gate)
    begun = now["count"]
    for end, moved in zip(ends, hot, strict=True):
        now["count"] = begun + end - old
        due = role == "loss" and now["count"] % APART_AT == 0
        if moved or due or now["alike"] is None or now["episode"] is not None:
            said += _look(known[:, max(0, end - KEPT) : end], name, role, gate, now)
    now.update(count=begun + pairs.shape[1], pairs=known[:, -KEPT:])
    return said


def _hot(rest: Array, ends: NDArray[np.int64], gate: float) -> NDArray[np.bool_]:
    """Whether anything can be said at these ends: some window's median is beyond the gate from zero or from the one before."""
    out = np.zeros(len(ends), dtype=bool)
    for width in ERRORS:
        can = ends >= width
        if can.any():
            windows = np.lib.stride_tricks.sliding_window_view(rest, width)
            out[can] |= np.abs(np.median(windows[ends[can] - width], axis=1)) >= gate / 2
    return out


def _look(pairs: Array, name: str, role: str, gate: float, now: dict[str, Any]) -> list[Answer]:
    """At the newest of the last pairs."""
    rest = pairs[2] - pairs[1]
    if now["alike"] is None and now["count"] >= AT_FIRST:
        now["alike"] = bool(np.median(np.abs(rest[:AT_FIRST])) <= ALIKE)
    said = _order(pairs, name, role, now) if role == "loss" else []
    if now["episode"] is not None:
        return said + _goes_on(pairs, rest, name, role, gate, now)
    if now["alike"] is None or (not now["alike"] and (now["count"] < WARM or role not in WORSE)):
        return said
    for width, errors in ((w, e) for w, e in ERRORS.items() if w <= min(len(rest), now["count"] - now["ended"])):
        base = _base(rest, width, now)
        if base is None:
            continue
        window = rest[-width:] - base[0]
        offset = float(np.median(window))
        noise = max(_scale(window), _scale(rest[-BACK:]))
        error = MEDIAN * math.hypot(noise / math.sqrt(width), base[1])
        halves = [float(np.median(half)) for half in (window[: width // 2], window[width // 2 :])]
        lasts = all(math.copysign(1.0, offset) * half >= gate / 2 for half in halves)
        if lasts and abs(offset) >= max(gate, errors * error) + base[2]:
            now.update(episode=f"offset:{pairs[0, -1]:.15g}", base=base[0], since=float(pairs[0, -width]))
            return said + _told(pairs, offset, error, name, role, gate, now)
    return said


def _base(rest: Array, width: int, now: Mapping[str, Any]) -> tuple[float, float, float] | None:
    """Where the residual was before the window, its error over that of a median, twice its drift; None if too little is known."""
    if now["alike"]:
        return 0.0, 0.0, 0.0
    before = rest[:-width][-BASE:]
    if len(before) < BACK:
        return None
    level = float(np.median(before))
    halves = [float(np.median(half)) for half in np.array_split(before, 2)]
    return level, _scale(before) / math.sqrt(len(before)), 2 * abs(halves[1] - halves[0])


def _told(
    pairs: Array, offset: float, error: float, name: str, role: str, gate: float, now: dict[str, Any]
) -> list[Answer]:
    """The finding, when it is louder than what was told before."""
    severity = 1
    if role in WORSE:
        severity = 0 if offset < 0 else 2 if offset >= LOUD * gate else 1
    if severity <= now["told"]:
        return []
    now["told"] = severity
    level = float(np.median(pairs[1, -BACK:]))
    evidence = {
        "reference": math.exp(level),
        "after": math.exp(level + offset + now["base"]),
        "offset_before": now["base"],
        "gate": gate,
        "error": error,
        "samples": now["count"],
        "cadence": float(np.median(np.diff(pairs[0, -BACK:]))),
        "equal_order": int(now["order"] != "apart"),
    }
    return [
        Finding(
            *DETECTOR, "level", name, role, "up" if offset > 0 else "down", now["since"], float(pairs[0, -1]), offset,
            "log", severity, now["episode"], evidence,
        )
    ]  # fmt: skip


def _goes_on(pairs: Array, rest: Array, name: str, role: str, gate: float, now: dict[str, Any]) -> list[Answer]:
    """An open episode: louder, or over."""
    window = rest[-BACK:] - now["base"]
    offset = float(np.median(window))
    if abs(offset) < gate / 2 and len(window) == BACK and pairs[0, -BACK] >= now["since"]:
        ended = Recovery(DETECTOR[0], name, now["episode"], float(pairs[0, -1]))
        now.update(episode=None, told=-1, ended=now["count"])  # no later window looks at what is over
        return [ended]
    error = MEDIAN * _scale(window) / math.sqrt(len(window))
    return _told(pairs, offset, error, name, role, gate, now) if abs(offset) >= max(gate, ERRORS[BACK] * error) else []


def _order(pairs: Array, name: str, role: str, now: dict[str, Any]) -> list[Answer]:
    """Whether both see the same data in the same order, by the last 64 pairs."""
    if pairs.shape[1] < APART_AT or now["count"] % APART_AT:
        return []
    step, first, second = pairs[:, -APART_AT:]
    noise = math.hypot(_scale(first), _scale(second))
    if noise == 0:
        return []
    ratio, before = _scale(second - first) / noise, now["order"]
    now["order"] = "apart" if ratio >= APART else "equal" if ratio <= SAME else before
    if now["order"] == before or now["order"] == "equal":
        return []
    evidence = {"ratio": ratio, "samples": now["count"], "cadence": float(np.median(np.diff(step)))}
    found = Finding(
        *DETECTOR, "replay", name, role, "none", float(step[0]), float(step[-1]), ratio, "ratio",
        2 if before == "equal" else 0, f"order:{step[-1]:.15g}", {**evidence, "order_lost": int(before == "equal")},
    )  # fmt: skip
    return [found, Recovery(DETECTOR[0], name, found.episode, found.detected_step)]


def _scale(values: Array) -> float:
    """White noise of one sample by the mean of its moves without the largest tenth: exact zeros must not hide the others."""
    moves = np.sort(np.abs(np.diff(values)))
    kept = moves[: max(1, math.ceil(0.9 * len(moves)))]
    return float(np.mean(kept)) * TRIMMED / math.sqrt(2)
