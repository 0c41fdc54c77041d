"""Slow direction: gradient norm, parameter norm, router entropy, token drops.

Sees: a monotone drift of the logarithm over the last 20 to 100 block medians, blocks of at least five autocorrelation
times: Mann-Kendall on the blocks (p < 1e-3 in two evaluations in a row) and a Theil-Sen slope that amounts to 10 %
over the window and 10 % per 10,000 steps; then statsmodels OLS with Newey-West errors for the interval that is
reported. The level does not matter: 0.28 -> 0.59 over 42,000 steps alarms, a steady 1.9 does not (marin#9149). S1: a
direction asks for attribution; a gradient norm that has risen by half since is S2.
Silent: before 20 blocks; in the direction that is healthy for the role; while the window still holds the start of the
run.
Fooled by: learning-rate decay (the norm of decayed weights may rise as the rate falls), batch or sequence changes.
False alarms: see docs/detectors.md. Block Mann-Kendall holds its level up to AR(1) 0.95, unlike raw or pre-whitened
variants.
Units: log per 10,000 steps.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from detectors.noise import BLOCK, CHUNK, block_medians
from detectors.series import Array
from detectors.window import Chunk, Said, State

DETECTOR = ("direction", 2)
KEPT = 512  # fine blocks (16 samples) and coarse ones (256 samples) that are remembered
LEAST, MOST = 20, 100  # blocks in a test
P_VALUE, FADED = 1e-3, 0.05
EFFECT = math.log(1.10)
RISEN = math.log(1.5)
BAD = {"grad_norm": 1, "param_norm": 1, "token_drop": 1, "router_entropy": -1}
EFFECTS = {"router_entropy": 0.005}  # an entropy near its ceiling moves little before it collapses


def carry(state: State, step: float) -> State:
    """The block medians before `step`: a slow drift outlives a restart."""
    return {name: state[name][state[name][:, 0] < step] for name in ("fine", "coarse") if name in state}


def scan(chunk: Chunk, state: State) -> tuple[list[Said], State]:
    """Findings `trend` (S1) and recoveries; evaluated when a chunk is complete."""
    now: dict[str, Any] = {"fine": np.empty((0, 2)), "coarse": np.empty((0, 2)), "fires": 0, **state}
    said: list[Said] = []
    for begin in range(0, len(chunk.indices) // CHUNK * CHUNK, CHUNK):
        at = chunk.offset + begin
        steps = chunk.step[at : at + CHUNK]
        fine = block_medians(chunk.log[at : at + CHUNK])
        finite = fine[np.isfinite(fine)]
        whole = np.array([[steps[-1], np.median(finite) if len(finite) else np.nan]])
        now["fine"] = np.concatenate([now["fine"], np.column_stack([steps[BLOCK - 1 :: BLOCK], fine])])[-KEPT:]
        now["coarse"] = np.concatenate([now["coarse"], whole])[-KEPT:]
        said += _evaluate(chunk, chunk.start + begin + CHUNK - 1, now)
    return said, now


def _evaluate(chunk: Chunk, index: int, now: dict[str, Any]) -> list[Said]:
    sign, effect = BAD[chunk.role], EFFECTS.get(chunk.role, EFFECT)
    tested = _blocks(now, index, None if now.get("episode") else effect / 4)
    if tested is None:
        now["fires"] = 0
        return []
    step, value, size = tested
    p, slope = mann_kendall(value), theil_sen(step, value)
    if now.get("episode") is not None:
        return _ends(chunk, index, p < FADED and sign * slope > 0, now) or _escalates(
            chunk, index, step, value, slope, size, p, now
        )
    width = step[-1] - step[0]
    strong = p < P_VALUE and sign * slope * width >= effect and sign * slope * 1e4 >= effect * min(1, 1e4 / width)
    now["fires"] = now["fires"] + 1 if strong else 0
    return _say(chunk, index, step, value, slope, size, p, now) if now["fires"] >= 2 else []


def _ends(chunk: Chunk, index: int, lasts: bool, now: dict[str, Any]) -> list[Said]:
    now["faded"] = 0 if lasts else now.get("faded", 0) + 1
    if now["faded"] < 2:
        return []
    episode, now["episode"] = now["episode"], None
    return [chunk.recovery(DETECTOR, episode, index)]


def _escalates(
    chunk: Chunk, index: int, step: Array, value: Array, slope: float, size: int, p: float, now: dict[str, Any]
) -> list[Said]:
    """A gradient norm that has risen by half since its direction was found (marin#9148: 0.28 to 0.59) asks for a look: S2."""
    if now["severity"] > 1 or not _has_risen(chunk, value, now):
        return []
    now["severity"] = 2
    return [_finding(chunk, index, step, value, slope, size, p, now)]


def _has_risen(chunk: Chunk, value: Array, now: dict[str, Any]) -> bool:
    return chunk.role == "grad_norm" and float(value[-5:].mean()) - now["base"] >= RISEN


def _blocks(now: dict[str, Any], index: int, least: float | None) -> tuple[Array, Array, int] | None:
    """The newest 20 to 100 blocks of at least five autocorrelation times that leave out the first tenth of the run.

    None when there are too few, or when the last third is within `least` of the first (a screen: most windows are flat).
    """
    for name, unit in (("fine", BLOCK), ("coarse", CHUNK)):
        rows = now[name][np.isfinite(now[name][:, 1])]
        for factor in (1, 2, 4, 8):
            count = min(len(rows) // factor, int((index + 1) * 0.9 / (unit * factor)), MOST)
            if count < LEAST:
                break
            part = rows[len(rows) - count * factor :].reshape(count, factor, 2)
            step, value = part[:, -1, 0], np.median(part[:, :, 1], axis=1)
            third = count // 3
            if least is not None and abs(value[-third:].mean() - value[:third].mean()) < least:
                continue
            if _white(value):
                return step, value, unit * factor
    return None


@lru_cache(maxsize=MOST)
def _bend(count: int) -> Array:
    """Projection (count, count) that removes a parabola."""
    x = np.vander(np.linspace(-1, 1, count), 3)
    kept: Array = np.eye(count) - x @ np.linalg.pinv(x)
    return kept


def _white(value: Array) -> bool:
    """Whether blocks are long enough: what is left after a parabola has no memory from one block to the next."""
    rest = _bend(len(value)) @ value
    power = float(rest @ rest)
    return power <= 0 or float(rest[1:] @ rest[:-1]) / power < 2 / math.sqrt(len(value))


def mann_kendall(value: Array) -> float:
    """Two-sided p-value of the Mann-Kendall test (normal approximation, continuity corrected); value (n,), n >= 8."""
    n = len(value)
    signs = np.sign(value[None, :] - value[:, None])
    s = float(np.triu(signs, 1).sum())
    z = (abs(s) - 1) / math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    return math.erfc(max(z, 0.0) / math.sqrt(2))


def theil_sen(step: Array, value: Array) -> float:
    """Median of the slopes between all pairs of points."""
    low, high = np.triu_indices(len(step), 1)
    return float(np.median((value[high] - value[low]) / (step[high] - step[low])))


def _say(
    chunk: Chunk, index: int, step: Array, value: Array, slope: float, size: int, p: float, now: dict[str, Any]
) -> list[Said]:
    # one drift may be told several times: what it began from stays
    now.update(episode=str(index), faded=0, onset=_onset(step, value, slope))
    now["base"] = min(now.get("base", math.inf), float(value[:5].mean()))
    now["severity"] = 2 if _has_risen(chunk, value, now) else 1
    return [_finding(chunk, index, step, value, slope, size, p, now)]


def _finding(
    chunk: Chunk, index: int, step: Array, value: Array, slope: float, size: int, p: float, now: dict[str, Any]
) -> Said:
    low, high = newey_west(step, value)
    return chunk.finding(
        DETECTOR,
        "trend",
        index,
        index,
        now["severity"],
        now["episode"],
        direction="up" if slope > 0 else "down",
        magnitude=slope * 1e4,
        unit="log per 10,000 steps",
        onset_step=now["onset"],
        slope_per_10k=slope * 1e4,
        interval_per_10k=[low * 1e4, high * 1e4],
        p=p,
        blocks=len(step),
        block_samples=size,
        before=math.exp(value[:5].mean()),
        began_from=math.exp(now["base"]),
        after=math.exp(value[-5:].mean()),
    )


def newey_west(step: Array, value: Array) -> tuple[float, float]:
    """95 % interval of the slope of value on step by OLS with Newey-West errors (statsmodels, lag 1.5 n^(1/3))."""
    from statsmodels.regression.linear_model import OLS

    x = np.column_stack([np.ones(len(step)), step - step[0]])
    fit = OLS(value, x).fit(cov_type="HAC", cov_kwds={"maxlags": int(1.5 * len(step) ** (1 / 3))})
    low, high = fit.conf_int()[1]
    return float(low), float(high)


def _onset(step: Array, value: Array, slope: float) -> float:
    """Where it begins: the kink of the best two-piece line (ruptures), if the piece before is flat or goes the other way."""
    import ruptures

    kinks = ruptures.Dynp(model="clinear", min_size=4, jump=1).fit(value.reshape(-1, 1)).predict(n_bkps=1)
    before = theil_sen(step[: kinks[0]], value[: kinks[0]]) if kinks[0] >= 4 else slope
    return float(step[kinks[0] - 1] if abs(before) < abs(slope) / 2 or before * slope < 0 else step[0])
