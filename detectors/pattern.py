"""What the playbook consists of: patterns with signs, checks and suggestions. Plain data, and how it comes from TOML."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from numbers import Real
from typing import Any

from detectors.finding import Finding

MATCH, FLAT, CONTRADICTED, UNACCOUNTED = 1.0, 0.5, -1.5, -0.5  # log-odds; see detectors/cause.py


@dataclass(frozen=True)
class Suggestion:
    """What one may do, why, at what price, and who tried it: with success (`evidence`) and without.

    `goes_back` marks a return to an earlier checkpoint, `track` one that waits, with the factor on the present value at
    which to look again. `again` (steps), `back_to_step`, `cost_steps` and `bound` (TOML of a `[[bound]]`) are filled in
    for an incident.
    """

    do: str
    why: str
    cost: str
    reversible: bool
    evidence: tuple[str, ...] = ()
    counter_evidence: tuple[str, ...] = ()
    goes_back: bool = False
    track: float | None = None
    again: tuple[float, ...] = ()
    back_to_step: float | None = None
    cost_steps: float | None = None
    bound: str = ""


@dataclass(frozen=True)
class Check:
    """One question that separates a pattern from its lookalikes; `sql` has {run} {metric} {onset} {before} {after}."""

    ask: str
    expect: str
    sql: str = ""


@dataclass(frozen=True)
class Apart:
    """The one thing that tells a pattern from `other`: `by`, in words, and the `role` (or name) to log for it, if any."""

    other: str
    by: str
    role: str = ""


@dataclass(frozen=True)
class Sign:
    """A move that belongs to a pattern: any of `roles`, any of `kinds` (empty: all), in `direction` (any, up, down).

    `metrics` are globs on the name in lower case, for what no role covers. `evidence` bounds numbers of the finding's
    evidence, {key: (low, high)}; a key that is missing does not match. `alone`: no other metric of these roles moved.
    `lead` says when it begins, in samples from the anchor (the first required sign, or the first): negative is before.
    """

    roles: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    direction: str = "any"
    required: bool = False
    detectors: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    evidence: Mapping[str, tuple[float, float]] | None = None
    alone: bool = False
    lead: tuple[float, float] | None = None
    weight: float = MATCH

    def label(self) -> str:
        """How the sign is named in a hypothesis, such as "grad_norm up (spike)"."""
        move = "moves" if self.direction == "any" else self.direction
        kinds = f" ({'/'.join(self.kinds)})" if self.kinds else ""
        what = "/".join(self.roles) or ("" if self.metrics else "any metric")
        names = " of " * bool(what and self.metrics) + "/".join(self.names())
        return f"{what}{names} {move}{kinds}{' alone' if self.alone else ''}"

    def names(self) -> tuple[str, ...]:
        """Its globs without their stars."""
        return tuple(glob.strip("*").replace("*", " ") for glob in self.metrics)


@dataclass(frozen=True)
class Pattern:
    """One entry of the playbook; `id` is its number in the catalogue of published patterns, "" for a house entry.

    `signs` speak for it, `against` against it, roles in `flat` must not move, roles in `order` begin one after another.
    `gate` (one is needed) and `together` (all are) hold event kinds, `explained_by` those that explain it away; of a
    pattern with severity 0 the latter make it an expected one. `never_explained` vetoes that.
    """

    name: str
    title: str
    severity: int
    signs: tuple[Sign, ...]
    id: str = ""
    against: tuple[Sign, ...] = ()
    flat: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    gate: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    explained_by: tuple[str, ...] = ()
    never_explained: bool = False
    prior: float = 0.0
    about: str = ""
    lookalikes: Mapping[str, str] | None = None
    checks: tuple[Check, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()

    @property
    def anchor(self) -> Sign:
        """The sign from which leads are counted."""
        return next((sign for sign in self.signs if sign.required), self.signs[0])


@dataclass(frozen=True)
class Hypothesis:
    """A pattern with its score (sum of log-odds), the evidence it rests on in words, and what tells it from the next."""

    pattern: str
    score: float
    matched: tuple[str, ...] = ()
    contradicted: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    title: str = ""
    checks: tuple[Check, ...] = ()
    id: str = ""
    apart: Apart | None = None


def pattern_of(name: str, table: Mapping[str, Any]) -> Pattern:
    """One playbook entry from its TOML table. Raises ValueError with its name when a key is unknown or absent."""
    lists = ("flat", "gate", "together", "explained_by", "order")
    fields: dict[str, Any] = {**table, **_tuples(table, lists)}
    try:
        fields["signs"] = tuple(_sign(item) for item in table["signs"])
        fields["against"] = tuple(_sign(item) for item in table.get("against", ()))
        fields["checks"] = tuple(Check(**item) for item in table.get("checks", ()))
        fields["suggestions"] = tuple(_suggestion(item) for item in table["suggestions"])
        return Pattern(name=name, **fields)
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"playbook entry [{name}]: {error}; see detectors/pattern.py for the keys of an entry"
        ) from error


def _tuples(item: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: tuple(item[key]) for key in keys if key in item}


def _sign(item: Mapping[str, Any]) -> Sign:
    bounds = {key: (float(low), float(high)) for key, (low, high) in item.get("evidence", {}).items()}
    lists = _tuples(item, ("roles", "kinds", "detectors", "metrics", "lead"))
    return Sign(**{**item, **lists, "evidence": bounds or None})


def _suggestion(item: Mapping[str, Any]) -> Suggestion:
    return Suggestion(**{**item, **_tuples(item, ("evidence", "counter_evidence"))})


def matches(sign: Sign, finding: Finding) -> bool:
    """Does this finding show this sign, direction included?"""
    return concerns(sign, finding) and sign.direction in ("any", finding.direction)


def concerns(sign: Sign, finding: Finding) -> bool:
    """Is this finding about what the sign speaks of, whichever way it moved?"""
    if sign.roles and finding.role not in sign.roles:
        return False
    if sign.kinds and finding.kind not in sign.kinds:
        return False
    if sign.detectors and finding.detector not in sign.detectors:
        return False
    if finding.detector == "rates" and sign.kinds and not sign.detectors:
        return False  # how often it spikes is no level of the metric
    if sign.metrics and not any(named(glob, finding.metric) for glob in sign.metrics):
        return False
    return all(within(finding.evidence.get(key), span) for key, span in (sign.evidence or {}).items())


def within(value: object, span: tuple[float, float]) -> bool:
    """Is it a number between the two?"""
    return isinstance(value, Real) and span[0] <= float(value) <= span[1]


@lru_cache(maxsize=65_536)
def named(glob: str, name: str) -> bool:
    """Does a metric's name fit the glob? In lower case."""
    return fnmatchcase(name.lower(), glob)


def explains(pattern: Pattern, finding: Finding, event_kind: str) -> bool:
    """Would an event of this kind make this finding an expected part of this pattern?

    Of a pattern that is no expected one by itself (severity above 0) only the required signs count, where it has any.
    """
    required = [sign for sign in pattern.signs if sign.required]
    signs = required if required and pattern.severity else pattern.signs
    return event_kind in pattern.explained_by and any(matches(sign, finding) for sign in signs)


def in_place(pattern: Pattern, events: Collection[str]) -> bool:
    """Are the event kinds near that the pattern needs?"""
    return (not pattern.gate or bool(set(pattern.gate) & set(events))) and set(pattern.together) <= set(events)


def accounted(pattern: Pattern) -> set[str]:
    """Roles that the pattern speaks of."""
    spoken = {role for sign in (*pattern.signs, *pattern.against) for role in sign.roles}
    return spoken | set(pattern.flat) | {"other"}
