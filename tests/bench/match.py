"""Which alarm answers which truth of one case."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from cases import INVESTIGATE, NOTE, Alarm, Truth
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

EARLY = 8  # steps before the onset at which an alarm is an answer already


@dataclass(frozen=True)
class Matches:
    """One case: each truth with its one answer, and what became of every alarm (severity 2 or more) and note (1)."""

    answered: tuple[tuple[Truth, Alarm | None], ...]  # truths that are no benign twins
    twins: tuple[tuple[Truth, int], ...]  # benign truths and how many alarms answered them
    matched: int  # alarms among the answers; the rest of the answers are notes
    duplicates: int  # further alarms in the window of a truth, of its roles
    false: tuple[Alarm, ...]  # alarms that no truth explains
    notes: int  # all notes, wherever they are


def fits(truth: Truth, alarms: Sequence[Alarm], steps: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which alarms lie in the window of a truth and are of its roles, whatever their severity."""
    role = np.fromiter((alarm.role in truth.roles for alarm in alarms), bool, len(alarms))
    return role & (steps >= truth.onset - EARLY) & (steps <= truth.end)


def assign(cost: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Pairs (row, column), one to one: as many as can be, then the least sum; infinite costs are never paired."""
    possible = np.isfinite(cost)
    if not possible.any():
        return []
    never = float(cost[possible].sum()) + 1.0  # dearer than all that is possible together
    rows, columns = linear_sum_assignment(np.where(possible, cost, never))
    return [(int(r), int(c)) for r, c in zip(rows, columns, strict=True) if possible[r, c]]


def match(truths: Sequence[Truth], alarms: Sequence[Alarm]) -> Matches:
    """Match one to one (Hungarian, the earliest answers win); the rest is a duplicate, a paged twin or a false alarm.

    A truth of severity 2 or more is answered by severity 2 or more, one of severity 1 by a note too, and one of severity
    0 (a rewind: somebody did it, nobody need act) by an annotation of its kind as well: that a first step was slow does
    not tell that the run went back. An alarm that could answer a fault and a twin answers the fault.
    """
    real, benign = [t for t in truths if not t.benign], [t for t in truths if t.benign]
    said = list(alarms)
    steps = np.array([alarm.step for alarm in said], float)
    severity = np.array([alarm.severity for alarm in said], int)
    windows = np.array([fits(t, said, steps) for t in real], bool).reshape(len(real), len(said))
    least = np.array([min(t.severity, INVESTIGATE) for t in real], int)
    begins = np.array([t.onset - EARLY for t in real], float)
    same = np.array([[alarm.kind == t.kind for alarm in said] for t in real], bool).reshape(len(real), len(said))
    good = windows & (severity >= least[:, None]) & (same | (severity > 0))
    pairs = dict(assign(np.where(good, steps - begins[:, None], np.inf)))
    loud = severity >= INVESTIGATE
    free = loud.copy()
    free[list(pairs.values())] = False
    duplicate = free & windows.any(axis=0)
    free &= ~duplicate
    twins = [(t, fits(t, said, steps) & free) for t in benign]
    for _, answers in twins:
        free = free & ~answers
    return Matches(
        tuple((t, said[pairs[k]] if k in pairs else None) for k, t in enumerate(real)),
        tuple((t, int(answers.sum())) for t, answers in twins),
        int(sum(loud[k] for k in pairs.values())),
        int(duplicate.sum()),
        tuple(said[k] for k in np.flatnonzero(free)),
        int((severity == NOTE).sum()),
    )
