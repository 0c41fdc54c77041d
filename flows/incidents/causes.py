"""What may stand behind the findings of one incident, and what one may do about it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from detectors.cause import confidence, rank
from detectors.finding import Finding, cadence
from detectors.pattern import Hypothesis, Pattern, Suggestion
from flows.incidents.incident import OWN, Episode, episode_of
from flows.incidents.severity import KnownEvent, is_near

UNKNOWN = "unattributed_change"
OWN_PATTERN = "own_bound"
PASSED = 150  # samples: a divergence that is back by then was a spike


def lasting(findings: Sequence[Finding], recovered: Mapping[Episode, float | None], end: float) -> list[Finding]:
    """The findings with `lasted`: samples from the onset to the recovery, or to `end` while there is none.

    A divergence that came back soon was a spike, whatever it looked like on its way up.
    """
    out = []
    for item in findings:
        over = recovered.get(episode_of(item))
        lasted = ((end if over is None else over) - item.onset_step) / cadence(item)
        kind = "spike" if item.kind == "divergence" and over is not None and lasted <= PASSED else item.kind
        out.append(replace(item, kind=kind, evidence={**item.evidence, "lasted": lasted}))
    return out


def hypotheses(
    findings: Sequence[Finding],
    severity: int,
    events: Sequence[KnownEvent],
    patterns: Sequence[Pattern],
    roles: Collection[str],
    names: Collection[str],
) -> list[Hypothesis]:
    """Ranked patterns; an incident that an event explains is one of those that the event makes."""
    told = [finding for finding in findings if finding.severity > 0] or findings  # a slow annotation is near everything
    near = {item.event.kind for item in events if any(is_near(item.event, finding) for finding in told)}
    if findings[0].detector in OWN:  # it was asked for, so what it means is known
        return rank(findings, roles, near, [pattern for pattern in patterns if pattern.name == OWN_PATTERN], names)
    if severity == 0:
        expected = [pattern for pattern in patterns if set(pattern.explained_by) & near and pattern.severity == 0]
        found = rank(findings, roles, near, expected, names)
        if found:
            return found
    return rank(findings, roles, near, patterns, names)


def suggestions(ranked: Sequence[Hypothesis], table: Mapping[str, Pattern]) -> tuple[Suggestion, ...]:
    """Those of the first pattern; while it is no better than a coin toss, the first of the runner-up too."""
    if not ranked:
        return table[UNKNOWN].suggestions if UNKNOWN in table else ()
    own = table[ranked[0].pattern].suggestions
    second = table[ranked[1].pattern].suggestions[:1] if len(ranked) > 1 and confidence(ranked) < 0.5 else ()
    return own + tuple(item for item in second if item not in own)
