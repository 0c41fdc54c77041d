"""The only answers a detector gives: Finding, Recovery, NotChecked, and Pending for what somebody asked to last."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any


@dataclass(frozen=True)
class Finding:
    """Something that changed, said at `detected_step` with nothing later known.

    `episode` ties the findings of one continuing phenomenon together (a spike that stays becomes a shift); it is
    unique within detector, metric and attempt. `severity` is 0..4 (S0 annotate ... S4 decide now) as one metric can
    tell; incidents may raise or lower it. `magnitude` is in `unit` (log, fraction, step, count ...), signed by direction.
    """

    detector: str
    version: int
    kind: str
    metric: str
    role: str
    direction: str  # up, down, none
    onset_step: float
    detected_step: float
    magnitude: float
    unit: str
    severity: int
    episode: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recovery:
    """The end of an episode: the metric is back where it was before, and has stayed there long enough."""

    detector: str
    metric: str
    episode: str
    step: float


@dataclass(frozen=True)
class NotChecked:
    """A check that could not be made, and why. Silence is never health."""

    check: str
    reason: str
    metric: str = ""


@dataclass(frozen=True)
class Pending:
    """What holds, but not for as long as was asked: no finding yet. By `step` it was seen `seen` of `wanted` times.

    `about` says what it is, in words behind the metric's name, `unit` what is counted. With `over`, the reason, it is pending
    no longer. An episode that becomes a finding needs no such end.
    """

    detector: str
    metric: str
    episode: str
    onset_step: float
    step: float
    seen: float
    wanted: float
    about: str
    unit: str = "samples"
    severity: int = 2
    over: str = ""


Answer = Finding | Recovery | NotChecked | Pending


def number(finding: Finding, key: str) -> float | None:
    """A finite number of the finding's evidence, or None."""
    value = finding.evidence.get(key)
    if not isinstance(value, Real) or isinstance(value, bool):
        return None
    return float(value) if math.isfinite(value) else None


def cadence(finding: Finding) -> float:
    """Median steps between samples of its metric; 1 where it is not known."""
    value = number(finding, "cadence")
    return value if value and value > 0 else 1.0
