"""Steps that are done again after a restart, against the first pass through them.

Sees: pairs of values of one step, the first pass and the replay, at 16, 64 and 256 pairs. (1) The log residuals scatter
by less than a quarter of what two independent noises would (the same data in the same order: 18 times less on two kinds
of hardware), and yet have an offset: the median beyond five of its own errors, of at least 0.2 % of a loss (2 % of a
gradient norm), with the same sign and half of that in the first 8 and in each quarter of the pairs. S1, of a loss from
0.5 % on S2: what was restored is not what was saved, or the arithmetic is another (patterns P31, P66, P68). Recovers
when a later look finds none. (2) From 64 pairs of a loss on, residuals that scatter like independent noise: the replayed
steps see other data (S0).
Silent: where the first 8 or a quarter of the pairs show no offset (a first pass that blew up later on); between the two
scatters; on a metric whose first pass does not vary; behind 256 pairs.
Fooled by: a change that was made on purpose at the restart; runs whose arithmetic is not repeatable drift apart slowly.
False alarms: none on the recorded replays (bit-equal), none above S0 on 1,000 made replays of the same and of other data.
Units: log ratio.
Source: Marin's stall contract alarms above 0.002 of loss during catch-up; a re-run on GPUs gave a median difference of
0.0023 and a 95th percentile of 0.014 without an offset.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from detectors.finding import Answer, Finding, Recovery
from detectors.series import Array

DETECTOR = ("replays", 1)
ROLES = ("loss", "grad_norm")
AT = (16, 64, 256)  # pairs at which is looked
PAIRED = 0.25  # scatter of the residuals over that of independent noise: below it is the same data
FEW = 0.5  # the same by mean deviations, which three pairs out of 16 cannot hide from
APART = 0.7  # from here on it is other data
APART_AT = 64  # pairs: the ratio of two scatters is known to a fifth
ERRORS = 5.0  # of the median
HEAD = 8  # first pairs, which must differ as well: a first pass that blew up later on is none of the replay's
LEAST = {"loss": 0.002, "grad_norm": 0.02}
LOUD = 0.005  # of a loss: S2
NORMAL_MAD = 1.4826
NORMAL_MEAN = 1.2533


def scan(
    step: Array, old: Array, new: Array, metric: str, role: str, state: Mapping[str, Any]
) -> tuple[list[Answer], dict[str, Any]]:
    """Findings `replay` and recoveries from further pairs of one metric: values of the first pass and the replay.

    Pairs that are not positive and finite on both sides are none. Once `state["done"]` is true no pair is needed.
    """
    with np.errstate(invalid="ignore"):
        usable = (old > 0) & (new > 0) & np.isfinite(old) & np.isfinite(new)
    fresh = np.stack([step, old, new])[:, usable]
    known: Array = np.concatenate([state.get("pairs", np.empty((3, 0))), fresh], axis=1)[:, : AT[-1]]
    now: dict[str, Any] = {"told": -1, "apart": False, **state, "pairs": known}
    said: list[Answer] = []
    for count in AT:
        if len(state.get("pairs", np.empty((3, 0)))[0]) < count <= known.shape[1]:
            said += _look(known[:, :count], metric, role, now)
    now["done"] = known.shape[1] >= AT[-1]
    if now["done"]:
        now["pairs"] = np.empty((3, 0))
    return said, now


def _look(pairs: Array, metric: str, role: str, state: dict[str, Any]) -> list[Answer]:
    step, old, new = pairs
    first, again = np.log(old), np.log(new)
    residual = again - first
    noise = math.hypot(_scale(first), _scale(again))
    paired = _scale(residual)
    if noise == 0:
        return []
    evidence = {
        "pairs": len(step),
        "before": float(np.median(old)),
        "after": float(np.median(new)),
        "paired": paired,
        "unpaired": noise,
        "samples": len(step),
        "cadence": float(np.median(np.diff(step))),
    }
    offset = float(np.median(residual))

    def found(severity: int, direction: str, episode: str, **more: Any) -> Finding:
        return Finding(
            *DETECTOR, "replay", metric, role, direction, float(step[0]), float(step[-1]), offset, "log", severity,
            f"{episode}:{step[0]:.15g}", {**evidence, **more},
        )  # fmt: skip

    episode = "replay"
    if _differs(residual, paired, noise, first, again, LEAST[role]):
        severity = 2 if role == "loss" and abs(offset) >= LOUD else 1
        if severity <= state["told"]:
            return []
        state["told"] = severity
        return [found(severity, "up" if offset > 0 else "down", episode, same_data=1)]
    if state["told"] >= 0:
        state["told"] = -1
        return [Recovery(DETECTOR[0], metric, f"{episode}:{step[0]:.15g}", float(step[-1]))]
    if role == "loss" and len(step) >= APART_AT and paired >= APART * noise and not state["apart"]:
        state["apart"] = True
        told = found(0, "none", "apart", other_data=1)
        return [told, Recovery(DETECTOR[0], metric, told.episode, told.detected_step)]
    return []


def _differs(residual: Array, paired: float, noise: float, first: Array, again: Array, least: float) -> bool:
    """Whether the same data gave another value, all the way through the pairs."""
    spread = _rough(residual)
    if paired > PAIRED * noise or spread > FEW * math.hypot(_rough(first), _rough(again)):
        return False
    offset = float(np.median(residual))
    error = NORMAL_MEAN * paired / math.sqrt(len(residual))
    parts = [residual[:HEAD], *residual.reshape(4, -1)]
    lasts = all(math.copysign(1.0, offset) * float(np.median(part)) >= least / 2 for part in parts)
    return lasts and abs(offset) >= max(least, ERRORS * error)


def _scale(values: Array) -> float:
    """White noise of one sample, by the median of its moves: a slow part and lone spikes do not count."""
    return float(NORMAL_MAD * np.median(np.abs(np.diff(values)))) / math.sqrt(2)


def _rough(values: Array) -> float:
    """The same by the mean of its moves."""
    return float(NORMAL_MEAN * np.mean(np.abs(np.diff(values)))) / math.sqrt(2)
