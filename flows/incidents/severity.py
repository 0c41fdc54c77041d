"""How loud an incident is: the highest of its findings, bounded by what one sample tells, lowered by known events."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from detectors.finding import Finding, cadence, number
from detectors.pattern import Pattern, explains, matches
from flows.incidents.incident import MEANT, OWN
from flows.incidents.reach import CATASTROPHIC, NEAR, is_sharp, samples_out, settle, window
from flows.records import Event

StepOf = Callable[[float], float]  # unix seconds -> first step logged at or after them


@dataclass(frozen=True)
class KnownEvent:
    """An event and the step from which on it counts."""

    event: Event
    known_step: float


def known_events(events: Sequence[Event], horizon_step: float, step_of: StepOf | None) -> list[KnownEvent]:
    """The events known by `horizon_step`, in a fixed order. Without a clock an event counts from its own step."""
    dated = [KnownEvent(event, _known_step(event, step_of)) for event in events]
    visible = [item for item in dated if item.known_step <= horizon_step]
    return sorted(visible, key=lambda item: (item.event.step, item.event.kind, item.known_step, item.event.note))


def _known_step(event: Event, step_of: StepOf | None) -> float:
    return event.step if event.recorded_at is None or step_of is None else step_of(event.recorded_at)


def is_near(event: Event, finding: Finding) -> bool:
    """Did the finding begin at the event or while it lasted, or before its consequences had settled?

    A sharp onset may lie two samples before the event, an estimated one as far as onsets of one origin may. Where the
    spread began is hardly known (from 1.25 times on 200 samples early were seen): anything up to its detection may be it.
    """
    early = 2 * cadence(finding) if is_sharp(finding) else window(finding, finding)
    if finding.kind == "variance":
        early = max(early, finding.detected_step - finding.onset_step)
    end = event.step if event.end_step is None else max(event.step, event.end_step)
    return event.step - early <= finding.onset_step <= end + settle(finding)


def explained_from(finding: Finding, events: Sequence[KnownEvent], patterns: Sequence[Pattern]) -> float:
    """The step from which a known event makes this finding an expected one; infinity if none does.

    Non-finite values and divergences are never explained away, nor is anything above S2 but a planned schedule, and a
    loss on another level where somebody declared the event. What was merely detected explains no standstill: a restart
    that nobody declared is the news. A user's own plan, bounds and checks mean what they say, whatever was planned.
    """
    if finding.detector in MEANT:
        return math.inf
    loud = finding.severity > 2 and finding.kind != "schedule"
    if finding.kind in CATASTROPHIC or (loud and (finding.kind, finding.role) != ("level", "loss")):
        return math.inf
    declared = loud or finding.kind == "stall"
    for pattern in patterns:
        if pattern.never_explained and any(sign.required and matches(sign, finding) for sign in pattern.signs):
            return math.inf
    steps = [
        max(item.known_step, finding.detected_step)
        for item in events
        if is_near(item.event, finding)
        and not (declared and item.event.source == "detected")
        and any(explains(pattern, finding, item.event.kind) for pattern in patterns)
    ]
    return min(steps, default=math.inf)


def rule(findings: Sequence[Finding]) -> int:
    """Severity 0..4 of findings that nothing explains.

    A lone one-sample loss spike is S1; two of three samples, or loss and gradient norm together, at least S2;
    gradient-norm spikes alone never more than S1; S3 and S4 as the detectors say. A gradient norm that rises while the
    learning rate falls is as loud as the law of that rate leaves it. A user's own word is not bounded.
    """
    if all(finding.detector in OWN for finding in findings):
        return max(finding.severity for finding in findings)
    highest = max(_heard(finding, findings) for finding in findings)
    if all(item.kind == "spike" and item.role == "grad_norm" for item in findings):
        return min(highest, 1)
    losses = [item for item in findings if item.kind == "spike" and item.role == "loss"]
    if _lasts(losses) or _joint(losses, findings):
        return max(highest, 2)
    spikes = all(item.kind == "spike" and item.role in ("loss", "grad_norm") for item in findings)
    return min(highest, 1) if spikes and highest <= 2 else highest


def _heard(finding: Finding, findings: Sequence[Finding]) -> int:
    """The severity of a finding, for a trend no more than the latest word on the learning rate allows."""
    if finding.kind != "trend" or finding.detector in OWN:
        return finding.severity
    words = [item for item in findings if item.metric == finding.metric and number(item, "cap") is not None]
    latest = max(words, key=lambda item: item.detected_step, default=None)
    return min(finding.severity, int(latest.evidence["cap"])) if latest is not None else finding.severity


def _lasts(losses: Sequence[Finding]) -> bool:
    """Two of three samples of one loss are out."""
    if any(samples_out(item) >= 2 for item in losses):
        return True
    onsets: dict[str, list[float]] = {}
    for item in losses:
        onsets.setdefault(item.metric, []).append(item.onset_step)
    step = max((cadence(item) for item in losses), default=1.0)
    lines = [sorted(line) for line in onsets.values()]
    return any(0 < b - a <= 2 * step for line in lines for a, b in pairwise(line))


def _joint(losses: Sequence[Finding], findings: Sequence[Finding]) -> bool:
    norms = [item for item in findings if item.kind == "spike" and item.role == "grad_norm"]
    return any(
        abs(loss.onset_step - norm.onset_step) <= NEAR * max(cadence(loss), cadence(norm))
        for loss in losses
        for norm in norms
    )


def history(
    findings: Sequence[Finding], events: Sequence[KnownEvent], patterns: Sequence[Pattern]
) -> tuple[tuple[float, int], ...]:
    """(step, severity) at each step at which the severity became another, from the first detection on.

    Severity falls only when a known event explains every finding so far that is more than an annotation.
    """
    explained = {id(item): explained_from(item, events, patterns) for item in findings}
    steps = {item.detected_step for item in findings} | {step for step in explained.values() if step < math.inf}
    out: list[tuple[float, int]] = []
    for step in sorted(steps):
        so_far = [item for item in findings if item.detected_step <= step]
        told = [item for item in so_far if item.severity > 0]
        severity = 0 if all(explained[id(item)] <= step for item in told) else rule(so_far)
        if not out or out[-1][1] != severity:
            out.append((step, severity))
    return tuple(out)
