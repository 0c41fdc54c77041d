"""A user's own bounds: a metric above or below a fixed number for so many samples in a row.

Sees: what it was told to, in any metric, one of many too. The n-th sample in a row beyond the limit opens an episode
with the severity that the user gave; as many in a row that are not beyond it, at least 5, end it. Where nine or more were
asked for, a row is pending from a quarter of them on. A sample that is NaN neither breaks a row nor counts in it; an
infinite one is beyond.
Silent: while a metric is not logged, and on what an episode that is open has said already.
Fooled by: a limit inside the noise with few samples asked for; a metric whose unit or averaging changes.
False alarms: the user's. Units: the metric's own; magnitude is the distance from the limit.

Unlike the other detectors it needs no window: its state stands behind the last sample, so a bound that is new to a run
begins with the next one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from detectors.finding import Finding, Pending, Recovery
from detectors.series import Array
from detectors.window import State

DETECTOR = ("bounds", 1)
LEAST_BACK = 5  # samples in a row that end an episode, however few opened it
SHOWN, LEAST_SHOWN = 0.25, 3  # of the samples that were asked for, and how many: from then on a row is pending

OPENS, ENDS, WAITS, BREAKS = range(4)
_Turn = tuple[int, int, float, str, int]  # position, what, onset, episode, samples in a row beyond the limit
_QUIET: dict[str, Any] = {"out": 0, "inside": 0, "since": None, "episode": None}


@dataclass(frozen=True)
class Bound:
    """Beyond `limit` on one `side` (above, below) for `samples` in a row is a finding of `severity` 0..4."""

    side: str
    limit: float
    samples: int = 1
    severity: int = 2
    why: str = ""

    @property
    def shown(self) -> int:
        """From how many samples in a row on it is pending: never where so few are asked for that nobody could look."""
        least = math.ceil(SHOWN * self.samples)
        return least if least >= LEAST_SHOWN else self.samples

    @property
    def key(self) -> str:
        """What makes it this bound: its episodes go on when severity or reason are changed."""
        return f"{self.side}:{self.limit!r}:{self.samples}"


def key_of(episode: str) -> str:
    """The key of the bound that an episode belongs to."""
    return episode.rpartition("@")[0]


def carry(state: State, step: float) -> State:
    """What a new attempt, shown again its parent's samples from `step` on, keeps: episodes that were open before it."""
    kept = {}
    for key, now in state.get("of", {}).items():
        goes_on = now["episode"] is not None and now["since"] < step
        kept[key] = {**_QUIET, **({"since": now["since"], "episode": now["episode"]} if goes_on else {})}
    return {"of": kept}


def scan(
    step: Array, value: Array, state: State, bounds: Sequence[Bound], *, name: str, role: str
) -> tuple[list[Finding | Recovery | Pending], State]:
    """Judge the samples that are new: `step`, `value` of shape (n,), NaN and infinities kept.

    What is pending is told in each call, with how far it has come, and again when it is so no longer. Gives the answers
    and the state behind the last sample. Bounds of the state that are not among `bounds` are dropped.
    """
    if not len(step):
        return [], state
    seen, first = state.get("seen", 0), float(state.get("first", step[0]))
    known = state.get("of", {})
    after: dict[str, Any] = {}
    said: list[Finding | Recovery | Pending] = []
    for bound in bounds:
        after[bound.key] = now = {**_QUIET, **known.get(bound.key, {})}
        for at, what, since, episode, row in _turns(bound, step, value, now):
            here = float(step[at])
            if what == ENDS:
                said.append(Recovery(DETECTOR[0], name, episode, here))
                continue
            if what in (WAITS, BREAKS):
                said.append(_pending(bound, name, since, here, episode, row, over=what == BREAKS))
                continue
            samples = seen + at + 1
            cadence = (here - first) / (samples - 1) if samples > 1 else 1.0
            seen_so_far = {"samples": samples, "samples_out": bound.samples, "cadence": cadence}
            said.append(_finding(bound, name, role, since, here, float(value[at]), episode, seen_so_far))
    return said, {"seen": seen + len(step), "first": first, "of": after}


def _turns(bound: Bound, step: Array, value: Array, now: dict[str, Any]) -> list[_Turn]:
    """What opens and ends, and what waits: where a row begins to and how far it has come. `now` goes on.

    Goes by stretches that are all out or all in: a long one costs no more than a short one.
    """
    there = np.flatnonzero(~np.isnan(value))
    out = value[there] > bound.limit if bound.side == "above" else value[there] < bound.limit
    edges = [0, *(np.flatnonzero(out[1:] != out[:-1]) + 1).tolist(), len(there)] if len(there) else []
    back = max(bound.samples, LEAST_BACK)
    turns: list[_Turn] = []
    for begin, end in pairwise(edges):
        before = now["out"]
        if out[begin]:
            if not before and now["episode"] is None:
                now["since"] = float(step[there[begin]])
            missing = bound.samples - before
            now.update(out=before + end - begin, inside=0)
            if now["episode"] is None:
                first, last = max(before + 1, bound.shown), min(now["out"], bound.samples - 1)
                rows = sorted({first, last}) if first <= last else []
                turns += [(int(there[begin + row - before - 1]), WAITS, *_row(bound, now), row) for row in rows]
            if now["episode"] is None and missing <= end - begin:
                now["episode"] = _row(bound, now)[1]
                turns.append((int(there[begin + missing - 1]), OPENS, *_row(bound, now), bound.samples))
        else:
            missing = back - now["inside"]
            if now["episode"] is None and before >= bound.shown:
                turns.append((int(there[begin]), BREAKS, *_row(bound, now), before))
            now.update(out=0, inside=now["inside"] + end - begin if now["episode"] is not None else 0)
            if now["episode"] is not None and missing <= end - begin:
                turns.append((int(there[begin + missing - 1]), ENDS, now["since"], now["episode"], 0))
                now.update(episode=None, inside=0)
    return turns


def _row(bound: Bound, now: Mapping[str, Any]) -> tuple[float, str]:
    """Onset and episode of the row at hand."""
    return float(now["since"]), f"{bound.key}@{now['since']:.15g}"


def _pending(bound: Bound, name: str, since: float, here: float, episode: str, row: int, *, over: bool) -> Pending:
    about, why = f"{bound.side} {bound.limit:g}", "it is no longer beyond the limit" if over else ""
    return Pending(DETECTOR[0], name, episode, since, here, row, bound.samples, about, "samples", bound.severity, why)


def _finding(
    bound: Bound, name: str, role: str, since: float, here: float, value: float, episode: str, seen: Mapping[str, Any]
) -> Finding:
    return Finding(
        detector=DETECTOR[0],
        version=DETECTOR[1],
        kind="level",
        metric=name,
        role=role,
        direction="up" if bound.side == "above" else "down",
        onset_step=since,
        detected_step=here,
        magnitude=value - bound.limit,
        unit="",
        severity=bound.severity,
        episode=episode,
        evidence={
            **seen,
            "bound": bound.key,
            "side": bound.side,
            "limit": bound.limit,
            "after": value,
            "why": bound.why,
        },
    )
