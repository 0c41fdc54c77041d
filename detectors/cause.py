"""Ranks patterns by matched, contradicted and missing evidence. Arithmetic on plain data: the caller loads the table.

A pattern lists signs (a role that moves in a certain way), roles that must stay flat, and event kinds. Its score is a
sum of log-odds: a matched sign +1, a role that had to stay flat and did +0.5, one that moved -1.5, a sign that moved
the other way -1.5, a near event that would explain it away -1.5, a role that moved and that the pattern says nothing
about -0.5, a missing metric 0 (it is listed, because it would discriminate). A required sign or a gate event that is
absent takes the pattern out of the running, and signs of less than full weight do not bring it in.

Fooled by: metrics that move after the moment of judging (the ranking is of what is known so far), and roles that are
logged too coarsely to have moved yet (they count as flat). Weights are those of a hand-made table, not fitted.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from detectors.finding import Finding

MATCH = 1.0
FLAT = 0.5
CONTRADICTED = -1.5
UNACCOUNTED = -0.5


@dataclass(frozen=True)
class Suggestion:
    """What one may do, why, at what price, and who tried it: with success (`evidence`) and without."""

    do: str
    why: str
    cost: str
    reversible: bool
    evidence: tuple[str, ...] = ()
    counter_evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """One question that separates a pattern from its lookalikes; `sql` has {run} {metric} {onset} {before} {after}."""

    ask: str
    expect: str
    sql: str = ""


@dataclass(frozen=True)
class Sign:
    """A move that belongs to a pattern: any of `roles`, any of `kinds` (empty: all), in `direction` (any, up, down).

    `evidence` bounds numbers of the finding's evidence, {key: (low, high)}; a key that is missing does not match.
    """

    roles: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    direction: str = "any"
    required: bool = False
    detectors: tuple[str, ...] = ()
    evidence: Mapping[str, tuple[float, float]] | None = None
    weight: float = MATCH

    def label(self) -> str:
        """How the sign is named in a hypothesis, such as "grad_norm up (spike)"."""
        move = "moves" if self.direction == "any" else self.direction
        kinds = f" ({'/'.join(self.kinds)})" if self.kinds else ""
        return f"{'/'.join(self.roles) or 'any metric'} {move}{kinds}"


@dataclass(frozen=True)
class Pattern:
    """One entry of the playbook.

    `signs` speak for it, `against` against it, roles in `flat` must not move. `gate` (needed) and `explained_by` hold
    event kinds; of a pattern with severity 0 the latter make it an expected one. `never_explained` vetoes that.
    """

    name: str
    title: str
    severity: int
    signs: tuple[Sign, ...]
    against: tuple[Sign, ...] = ()
    flat: tuple[str, ...] = ()
    gate: tuple[str, ...] = ()
    explained_by: tuple[str, ...] = ()
    never_explained: bool = False
    prior: float = 0.0
    about: str = ""
    lookalikes: Mapping[str, str] | None = None
    checks: tuple[Check, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()


@dataclass(frozen=True)
class Hypothesis:
    """A pattern with its score (sum of log-odds) and the evidence it rests on, in words."""

    pattern: str
    score: float
    matched: tuple[str, ...] = ()
    contradicted: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    title: str = ""
    checks: tuple[Check, ...] = ()


def pattern_of(name: str, table: Mapping[str, Any]) -> Pattern:
    """One playbook entry from its TOML table. Raises ValueError with its name when a key is unknown or absent."""
    fields: dict[str, Any] = {**table, **_tuples(table, ("flat", "gate", "explained_by"))}
    try:
        fields["signs"] = tuple(_sign(item) for item in table["signs"])
        fields["against"] = tuple(_sign(item) for item in table.get("against", ()))
        fields["checks"] = tuple(Check(**item) for item in table.get("checks", ()))
        fields["suggestions"] = tuple(_suggestion(item) for item in table["suggestions"])
        return Pattern(name=name, **fields)
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"playbook entry [{name}]: {error}; see detectors/cause.py for the keys of an entry"
        ) from error


def _tuples(item: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: tuple(item[key]) for key in keys if key in item}


def _sign(item: Mapping[str, Any]) -> Sign:
    bounds = {key: (float(low), float(high)) for key, (low, high) in item.get("evidence", {}).items()}
    return Sign(**{**item, **_tuples(item, ("roles", "kinds", "detectors")), "evidence": bounds or None})


def _suggestion(item: Mapping[str, Any]) -> Suggestion:
    return Suggestion(**{**item, **_tuples(item, ("evidence", "counter_evidence"))})


def matches(sign: Sign, finding: Finding) -> bool:
    """Does this finding show this sign, direction included?"""
    return _about(sign, finding) and sign.direction in ("any", finding.direction)


def _about(sign: Sign, finding: Finding) -> bool:
    if sign.roles and finding.role not in sign.roles:
        return False
    if sign.kinds and finding.kind not in sign.kinds:
        return False
    if sign.detectors and finding.detector not in sign.detectors:
        return False
    return all(_within(finding.evidence.get(key), span) for key, span in (sign.evidence or {}).items())


def _within(value: object, span: tuple[float, float]) -> bool:
    return isinstance(value, Real) and span[0] <= float(value) <= span[1]


def explains(pattern: Pattern, finding: Finding, event_kind: str) -> bool:
    """Would an event of this kind make this finding an expected part of this pattern?

    Of a pattern that is no expected one by itself (severity above 0) only the required signs count, where it has any.
    """
    required = [sign for sign in pattern.signs if sign.required]
    signs = required if required and pattern.severity else pattern.signs
    return event_kind in pattern.explained_by and any(matches(sign, finding) for sign in signs)


def rank(
    findings: Sequence[Finding], roles: Collection[str], events: Collection[str], patterns: Sequence[Pattern]
) -> list[Hypothesis]:
    """Hypotheses for findings of one origin, best first; ties in order of name.

    `roles` are those with at least one sample in the run, `events` the kinds of events near the onset.
    """
    present = {finding.role for finding in findings} | set(roles)
    moves = _distinct(findings, patterns)
    scored = (_score(pattern, moves, present, set(events)) for pattern in patterns)
    return sorted((item for item in scored if item), key=lambda item: (-item.score, item.pattern))


def _distinct(findings: Sequence[Finding], patterns: Sequence[Pattern]) -> list[Finding]:
    """One finding of each sort that signs can tell apart: an incident may hold thousands of alike."""
    keys = sorted({key for pattern in patterns for sign in pattern.signs for key in sign.evidence or ()})
    sorts: dict[tuple[Any, ...], Finding] = {}
    for item in findings:
        evidence = tuple(str(item.evidence.get(key)) for key in keys)
        sorts.setdefault((item.role, item.kind, item.direction, item.detector, item.severity, evidence), item)
    return list(sorts.values())


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


def _score(pattern: Pattern, findings: Sequence[Finding], present: set[str], events: set[str]) -> Hypothesis | None:
    gates = sorted(set(pattern.gate) & events)
    if (pattern.gate and not gates) or not _required_signs(pattern, findings):
        return None
    tally = _Tally(pattern.prior, [], [], [])
    if gates:
        tally.add(MATCH, f"event {' and '.join(gates)}")
    _weigh_signs(pattern, findings, present, tally)
    moved = {finding.role for finding in findings}
    for role in pattern.flat:
        if role in moved:
            tally.add(CONTRADICTED, f"{role} moved")
        elif role in present:
            tally.add(FLAT, f"{role} flat")
        else:
            tally.lacks(role)
    _weigh_the_rest(pattern, findings, tally)
    explained = set(pattern.explained_by) & events if pattern.severity else set()
    for kind in sorted(explained - set(pattern.gate)):
        tally.add(CONTRADICTED, f"event {kind} explains it")
    words = (tuple(tally.matched), tuple(tally.contradicted), tuple(tally.missing))
    return Hypothesis(pattern.name, round(tally.score, 3), *words, pattern.title, pattern.checks)


def _weigh_signs(pattern: Pattern, findings: Sequence[Finding], present: set[str], tally: _Tally) -> None:
    for sign in pattern.signs:
        if _shown(sign, findings):
            tally.add(sign.weight, sign.label())
        elif any(_about(sign, finding) for finding in findings):
            tally.add(CONTRADICTED, f"{sign.label()}: moved the other way")
        elif sign.roles and not present & set(sign.roles):
            tally.lacks(*sign.roles)
    for sign in pattern.against:
        if _shown(sign, findings):
            tally.add(CONTRADICTED, sign.label())


def _weigh_the_rest(pattern: Pattern, findings: Sequence[Finding], tally: _Tally) -> None:
    """What moved and is not spoken of counts against a pattern, most of all what is gravest; annotations do not."""
    if any(not sign.roles for sign in pattern.signs):
        return
    gravest = max(finding.severity for finding in findings)
    loud = {finding.role for finding in findings if finding.severity >= min(gravest, 1)}
    grave = {finding.role for finding in findings if finding.severity == gravest}
    for role in sorted(loud - _accounted(pattern)):
        weight = CONTRADICTED if role in grave else UNACCOUNTED
        tally.add(weight, f"{role} moved, which it does not account for")


def _accounted(pattern: Pattern) -> set[str]:
    """Roles that the pattern speaks of."""
    spoken = {role for sign in (*pattern.signs, *pattern.against) for role in sign.roles}
    return spoken | set(pattern.flat) | {"other"}


def _required_signs(pattern: Pattern, findings: Sequence[Finding]) -> bool:
    """Every required sign is there; without required signs one of full weight (of an expected pattern any one)."""
    required = [sign for sign in pattern.signs if sign.required]
    if required:
        return all(_shown(sign, findings) for sign in required)
    enough = (sign for sign in pattern.signs if sign.weight >= MATCH or not pattern.severity)
    return any(_shown(sign, findings) for sign in enough)


def _shown(sign: Sign, findings: Sequence[Finding]) -> bool:
    return any(matches(sign, finding) for finding in findings)
