"""The incident as `check --json` writes it (docs: watchkeeper.check/1): the shape that messages, charts and pages read.

Reading this shape, and no inner class, keeps the pages of `check`, `demo` and a live run the same.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypedDict, cast

from flows.records import Operation

SEVERITIES = ("S0", "S1", "S2", "S3", "S4")


class FindingDoc(TypedDict, total=False):
    """One detector's word on one metric; `magnitude` is in `unit`, steps are the source's own."""

    detector: str
    kind: str
    metric: str
    role: str
    direction: str
    onset_step: float
    detected_step: float
    magnitude: float
    unit: str
    evidence: Mapping[str, Any]


class HypothesisDoc(TypedDict, total=False):
    """A pattern of the playbook with what speaks for it, against it, and what could not be looked at.

    `apart` has the `other` pattern, `by` what it is told from it, and the `role` to log for that, if any.
    """

    pattern: str
    title: str
    score: float
    matched: list[str]
    contradicted: list[str]
    missing: list[str]
    apart: Mapping[str, str] | None


class SuggestionDoc(TypedDict, total=False):
    """One thing to do, what it costs, and what speaks against it.

    `again` are steps at which to look again; `bound` is a `[[bound]]` of the configuration that alarms again.
    """

    do: str
    why: str
    cost: str
    reversible: bool
    evidence: list[str]
    counter_evidence: list[str]
    goes_back: bool
    back_to_step: float | None
    cost_steps: float | None
    again: list[float]
    bound: str


class OperationDoc(TypedDict, total=False):
    """What a person did to an incident or the judge said of it; times are UTC in ISO 8601, `silent` told nobody."""

    at: str
    who: str
    what: str
    why: str
    step: float | None
    severity: str | None
    until: str | None
    until_step: float | None
    silent: bool


class IncidentDoc(TypedDict, total=False):
    """One incident, open or resolved."""

    id: str
    severity: str
    status: str
    title: str
    pattern: str
    confidence: float
    onset_step: float
    detected_step: float
    resolved_step: float | None
    severity_history: list[dict[str, Any]]
    findings: list[FindingDoc]
    hypotheses: list[HypothesisDoc]
    suggestions: list[SuggestionDoc]
    operations: list[OperationDoc]


class MetricDoc(TypedDict, total=False):
    """One metric that was read."""

    name: str
    role: str
    samples: int
    last_step: float
    last_value: float | str | None
    unit: str


class RunDoc(TypedDict, total=False):
    """One run of a check document."""

    run: str
    source: str
    format: str
    step_key: str
    first_step: float
    last_step: float
    samples: int
    metrics: list[MetricDoc]
    incidents: list[IncidentDoc]
    not_checked: list[dict[str, Any]]


def severity_number(severity: str | int) -> int:
    """0..4 of "S0".."S4" (an int passes through)."""
    return severity if isinstance(severity, int) else SEVERITIES.index(severity)


def incident_doc(row: Mapping[str, Any], findings: Iterable[Mapping[str, Any]] = ()) -> IncidentDoc:
    """The document of one row of the `incidents` table (its JSON columns may be text) and its rows of `findings`."""
    history = [
        entry if isinstance(entry, dict) else {"step": entry[0], "severity": entry[1]}
        for entry in _decoded(row.get("severity_history"))
    ]
    for entry in history:
        entry["severity"] = SEVERITIES[severity_number(entry["severity"])]
    # a row of the store has the document's keys for its columns
    kept = [cast(FindingDoc, {**each, "evidence": _decoded(each.get("evidence"), {})}) for each in findings]
    return {
        "id": row.get("incident_id", row.get("id")),
        "severity": SEVERITIES[severity_number(row["severity"])],
        "severity_history": history,
        "findings": sorted(kept, key=lambda f: (f["onset_step"], f["detected_step"], f["metric"], f["detector"])),
        "hypotheses": _decoded(row.get("hypotheses")),
        "suggestions": _decoded(row.get("suggestions")),
        "status": row["status"],
        "title": row["title"],
        "pattern": row["pattern"],
        "confidence": row["confidence"],
        "onset_step": row["onset_step"],
        "detected_step": row["detected_step"],
        "resolved_step": row["resolved_step"],
    }


def operation_doc(done: Operation) -> OperationDoc:
    """The document of one line of the log."""
    return {
        "at": _iso(done.at),
        "who": done.who,
        "what": done.kind,
        "why": done.why,
        "step": done.step,
        "severity": None if done.severity is None else SEVERITIES[done.severity],
        "until": None if done.until_time is None else _iso(done.until_time),
        "until_step": done.until_step,
        "silent": done.silent,
    }


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _decoded(value: Any, empty: Any = ()) -> Any:
    """A JSON column: text is parsed, anything else is taken as it is."""
    if value is None or value == "":
        return type(empty)() if empty != () else []
    return json.loads(value) if isinstance(value, str) else value
