"""Restarts that come more often than they did.

Sees: the steps of work between restarts (what an attempt reached, less where it began). The last five in so little work
that a Poisson count of five or more has p < 1e-3 at the rate before, and three times as often: S1, and from then on that
is the usual rate (pattern P63; Llama 3 had 419 interruptions in 54 days, arXiv:2407.21783, so the run's own rate is the
measure). The rate before is one restart more than were seen, over the work before those five.
Silent: before the sixth attempt; on a rate that was high from the start; on a restart that did not go back.
Fooled by: a series of restarts on purpose.
False alarms: below 1 in 1,000 restarts by the test's level. Units: log ratio of the rates.
"""

import math
from collections.abc import Mapping
from typing import Any

from detectors.finding import Answer, Finding, Recovery

DETECTOR = ("restarts", 1)
RECENT = 5  # restarts
TIMES = 3.0
P = 1e-3


def scan(began: float, reached: float, state: Mapping[str, Any]) -> tuple[list[Answer], dict[str, Any]]:
    """A finding `level` with its recovery, at a restart of an attempt that began at step `began` and came to `reached`.

    `state` gives the work up to each restart before, in steps.
    """
    known = list(state.get("work", ()))
    work = [*known, (known[-1] if known else 0.0) + max(reached - began, 1.0)]
    if len(work) <= RECENT:
        return [], {"work": work}
    before, span = work[-RECENT - 1], work[-1] - work[-RECENT - 1]
    usual = (len(work) - RECENT + 1) / before * span
    if TIMES * usual > RECENT or _tail(RECENT, usual) >= P:
        return [], {"work": work}
    episode = f"restarts:{reached:.15g}:{len(work)}"
    evidence = {"events": RECENT, "of_samples": span, "usual": usual, "samples": work[-1]}
    found = Finding(
        *DETECTOR, "level", "", "other", "up", reached, reached, math.log(RECENT / usual), "log", 1, episode, evidence
    )  # fmt: skip
    told: list[Answer] = [found, Recovery(DETECTOR[0], "", episode, reached)]
    return told, {"work": [each - before for each in work[-RECENT:]]}  # from here on this is the usual rate


def _tail(count: int, mean: float) -> float:
    """Probability of at least `count` events where `mean` are expected (Poisson)."""
    below = sum(math.exp(-mean) * mean**k / math.factorial(k) for k in range(count))
    return max(0.0, 1.0 - below)
