"""Ranks patterns by matched, contradicted and missing evidence. Arithmetic on plain data: the caller loads the table.

A pattern lists signs (a role that moves in a certain way), roles that must stay flat, and event kinds. Its score is a
sum of log-odds: a matched sign +1, a role that had to stay flat and did +0.5, one that moved -1.5, a sign that moved
the other way -1.5, a near event that would explain it away -1.5, a role that moved and that the pattern says nothing
about -0.5 (-1.5 if it is the gravest), a missing metric 0 (it is listed, because it would discriminate). An annotation
(severity 0) can match, but it is no move of a role that had to stay flat; a silence moves no value at all. What begins
when the pattern says (`lead` in samples from its anchor sign, roles in `order`) adds 0.25, what begins at another time
takes 0.5. A required sign or a gate event that is absent takes the pattern out of the running, and signs of less than
full weight do not bring it in.

Fooled by: metrics that move after the moment of judging (the ranking is of what is known so far), and roles that are
logged too coarsely to have moved yet (they count as flat). Weights are those of a hand-made table, not fitted.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from detectors.finding import Finding, cadence
from detectors.pattern import (
    CONTRADICTED,
    FLAT,
    MATCH,
    UNACCOUNTED,
    Hypothesis,
    Pattern,
    Sign,
    accounted,
    concerns,
    in_place,
    matches,
    named,
    within,
)

IN_ORDER = 0.25
OUT_OF_ORDER = -0.5
LAG_SHARE = 0.25  # of the detection lag: the error of an onset that is an estimate
SPEED = frozenset({"mfu", "throughput", "step_time", "data_wait"})
UNMISTAKABLE = frozenset({"stall", "nonfinite", "divergence"})  # a pattern that leaves them out is another one
EXACT = frozenset({"spike", "nonfinite", "stall", "rewind", "schedule", "invariant", "replay"})


def rank(
    findings: Sequence[Finding],
    roles: Collection[str],
    events: Collection[str],
    patterns: Sequence[Pattern],
    names: Collection[str] = (),
) -> list[Hypothesis]:
    """Hypotheses for findings of one origin, best first; ties in order of name.

    `roles` and `names` are those of the metrics with at least one sample in the run, `events` the kinds of events near
    the onset.
    """
    present = _Present(frozenset({finding.role for finding in findings} | set(roles)), frozenset(names))
    moves = _distinct(findings, patterns)
    scored = (_score(pattern, moves, present, set(events)) for pattern in patterns)
    return sorted((item for item in scored if item), key=lambda item: (-item.score, item.pattern))


@dataclass(frozen=True)
class _Present:
    """What the run logs."""

    roles: frozenset[str]
    names: frozenset[str]

    def lacks(self, sign: Sign) -> tuple[str, ...]:
        """What would have to be logged for this sign to show; () when something is there."""
        if sign.metrics:
            return () if any(_logged(glob, self.names) for glob in sign.metrics) else sign.names()
        return () if self.roles & set(sign.roles) else sign.roles


@lru_cache(maxsize=512)
def _logged(glob: str, names: frozenset[str]) -> bool:
    return any(named(glob, name) for name in names)


def _distinct(findings: Sequence[Finding], patterns: Sequence[Pattern]) -> list[Finding]:
    """The earliest finding of each sort that signs can tell apart: an incident may hold thousands of alike.

    A second metric of a role is kept as well, so that "alone" can be told.
    """
    signs = [sign for pattern in patterns for sign in (*pattern.signs, *pattern.against)]
    spans = sorted({pair for sign in signs for pair in (sign.evidence or {}).items()})
    globs = tuple(sorted({glob for sign in signs for glob in sign.metrics}))
    sorts: dict[tuple[Any, ...], Finding] = {}
    first: dict[str, str] = {}
    for item in findings:
        evidence = tuple(within(item.evidence.get(key), span) for key, span in spans)
        among = first.setdefault(item.role, item.metric) == item.metric
        fitting = _fitting(item.metric, globs)
        sort = (item.role, item.kind, item.direction, item.detector, item.severity, evidence, among, fitting)
        if sort not in sorts or item.onset_step < sorts[sort].onset_step:
            sorts[sort] = item
    return list(sorts.values())


@lru_cache(maxsize=16_384)
def _fitting(name: str, globs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(glob for glob in globs if named(glob, name))


def confidence(ranked: Sequence[Hypothesis]) -> float:
    """Probability of the first hypothesis: softmax of the scores against all others and "none of these" (score 0).

    It is a measure of how well the table tells the patterns apart, not a calibrated frequency. 0.0 for no hypothesis.
    """
    if not ranked:
        return 0.0
    top = ranked[0].score
    return round(1.0 / (sum(math.exp(item.score - top) for item in ranked) + math.exp(-top)), 3)


@dataclass
class _Tally:
    """A score under construction, with the reasons for it in words."""

    score: float
    matched: list[str]
    contradicted: list[str]
    missing: list[str]

    def add(self, weight: float, reason: str) -> None:
        self.score += weight
        (self.matched if weight > 0 else self.contradicted).append(reason)

    def lacks(self, *roles: str) -> None:
        self.missing += [role for role in roles if role not in self.missing]


def _score(pattern: Pattern, findings: Sequence[Finding], present: _Present, events: set[str]) -> Hypothesis | None:
    if not in_place(pattern, events) or not _required_signs(pattern, findings):
        return None
    tally = _Tally(pattern.prior, [], [], [])
    gates = sorted({*pattern.gate, *pattern.together} & events)
    if gates:
        tally.add(MATCH, f"event {' and '.join(gates)}")
    _weigh_signs(pattern, findings, present, tally)
    _weigh_order(pattern, findings, tally)
    loud = {finding.role for finding in _loud(findings) if not _silent(finding)}
    quiet = present.roles - {finding.role for finding in findings if not _silent(finding)}
    for role in pattern.flat:
        if role in loud:
            tally.add(CONTRADICTED, f"{role} moved")
        elif role in quiet:
            tally.add(FLAT, f"{role} flat")
        elif role not in present.roles:
            tally.lacks(role)
    _weigh_the_rest(pattern, findings, tally)
    explained = set(pattern.explained_by) & events if pattern.severity else set()
    for kind in sorted(explained - set(gates)):
        tally.add(CONTRADICTED, f"event {kind} explains it")
    words = (tuple(tally.matched), tuple(tally.contradicted), tuple(tally.missing))
    return Hypothesis(pattern.name, round(tally.score, 3), *words, pattern.title, pattern.checks, pattern.id)


def _weigh_signs(pattern: Pattern, findings: Sequence[Finding], present: _Present, tally: _Tally) -> None:
    for sign in pattern.signs:
        if _shown(sign, findings):
            tally.add(sign.weight, sign.label())
        elif any(concerns(sign, finding) for finding in findings) and not sign.alone:
            tally.add(CONTRADICTED, f"{sign.label()}: moved the other way")
        elif sign.roles or sign.metrics:
            tally.lacks(*present.lacks(sign))
    for sign in pattern.against:
        if _shown(sign, findings):
            tally.add(CONTRADICTED * sign.weight, sign.label())


def _weigh_order(pattern: Pattern, findings: Sequence[Finding], tally: _Tally) -> None:
    """Leads against the anchor, then roles in order; what has not moved says nothing."""
    anchor = _earliest([item for item in findings if matches(pattern.anchor, item)])
    for sign in pattern.signs:
        first = _earliest([item for item in findings if matches(sign, item)])
        if sign.lead is None or anchor is None or first is None:
            continue
        step = max(cadence(anchor), cadence(first))
        gap, slack = (first.onset_step - anchor.onset_step) / step, (_slack(anchor) + _slack(first)) / step
        fits = sign.lead[0] - slack <= gap <= sign.lead[1] + slack
        when = f"{abs(gap):.0f} samples {'before' if gap < 0 else 'after'} the first" if gap else "at once"
        tally.add(IN_ORDER if fits else OUT_OF_ORDER, f"{'/'.join(sign.roles or sign.names())} began {when}")
    line = [_earliest([item for item in findings if item.role == role]) for role in pattern.order]
    known = [item for item in line if item is not None]
    for one, two in pairwise(known):
        if two.onset_step + _slack(two) < one.onset_step - _slack(one):
            tally.add(OUT_OF_ORDER, f"{two.role} began before {one.role}")
        elif one.onset_step < two.onset_step:
            tally.add(IN_ORDER, f"{one.role} began before {two.role}")


def _earliest(findings: Sequence[Finding]) -> Finding | None:
    return min(findings, key=lambda item: (item.onset_step, item.metric), default=None)


def _slack(finding: Finding) -> float:
    """Steps by which an onset may be wrong."""
    return 0.0 if finding.kind in EXACT else LAG_SHARE * (finding.detected_step - finding.onset_step)


def _weigh_the_rest(pattern: Pattern, findings: Sequence[Finding], tally: _Tally) -> None:
    """What moved and is not spoken of counts against a pattern, most of all what is gravest; annotations do not."""
    if any(not sign.roles and not sign.metrics for sign in pattern.signs):
        return
    spoken = {item.role for sign in pattern.signs if sign.metrics for item in findings if matches(sign, item)}
    known = accounted(pattern) | spoken
    signs = (*pattern.signs, *pattern.against)
    odd = {
        item.role: f"{item.role} moved" for item in _loud(findings) if item.role not in known and not _silent(item)
    } | {
        f"{item.role} {item.kind}": f"{item.role} {item.kind}"
        for item in _loud(findings)
        if item.kind in UNMISTAKABLE and not any(concerns(sign, item) for sign in signs)
    }
    gravest = max(finding.severity for finding in findings)
    grave = {name for item in findings if item.severity == gravest for name in (item.role, f"{item.role} {item.kind}")}
    for name in sorted(odd):
        tally.add(CONTRADICTED if name in grave else UNACCOUNTED, f"{odd[name]}, which it does not account for")


def _loud(findings: Sequence[Finding]) -> list[Finding]:
    """All but the annotations, or those where there is nothing else."""
    return [item for item in findings if item.severity > 0] or list(findings)


def _silent(finding: Finding) -> bool:
    """A silence is of the run: no value of the metric that tells it has moved."""
    return finding.kind == "stall" and finding.role not in SPEED


def _required_signs(pattern: Pattern, findings: Sequence[Finding]) -> bool:
    """Every required sign is there; without required signs one of full weight (of an expected pattern any one)."""
    required = [sign for sign in pattern.signs if sign.required]
    if required:
        return all(_shown(sign, findings) for sign in required)
    enough = (sign for sign in pattern.signs if sign.weight >= MATCH or not pattern.severity)
    return any(_shown(sign, findings) for sign in enough)


def _shown(sign: Sign, findings: Sequence[Finding]) -> bool:
    fitting = [item for item in findings if matches(sign, item)]
    if not sign.alone or not fitting:
        return bool(fitting)
    roles = {item.role for item in fitting}
    return len({item.metric for item in findings if item.role in roles}) == 1
