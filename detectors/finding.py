"""The only answers a detector gives: Finding, Recovery, NotChecked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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


Answer = Finding | Recovery | NotChecked
