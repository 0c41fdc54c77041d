"""What an incident is, and its rows: JSON-able, with the store's column names."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from detectors.finding import Finding, Recovery
from detectors.pattern import Apart, Check, Hypothesis, Suggestion

Episode = tuple[str, str, str]  # detector, metric, episode: one continuing phenomenon
OWN = frozenset({"bounds", "checks"})  # what a user asked for himself, beside what the detectors say
MEANT = OWN | {"plan"}  # no planned change explains what is not as the user said


@dataclass(frozen=True)
class Incident:
    """Findings of one origin in one attempt of a run.

    `severity_history` holds (step, severity) at the steps at which each severity became known; `severity` is the last.
    `status` is open or resolved; `findings` stand in canonical order. `cooling`: all of it has recovered, but not for
    long enough to be over. `quiet_step` is where it was known that it cools, or that it is over, as far as a fold tells.
    """

    id: str
    run: str
    attempt: int
    severity: int
    status: str
    title: str
    pattern: str
    confidence: float
    onset_step: float
    detected_step: float
    resolved_step: float | None
    severity_history: tuple[tuple[float, int], ...]
    findings: tuple[Finding, ...]
    hypotheses: tuple[Hypothesis, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    cooling: bool = False
    quiet_step: float | None = field(default=None, compare=False, repr=False)

    @property
    def state(self) -> str:
        """firing, cooling or resolved (`states.py`)."""
        return "resolved" if self.status == "resolved" else "cooling" if self.cooling else "firing"

    @property
    def worst(self) -> int:
        """The highest severity that it ever had."""
        return max([self.severity, *(severity for _, severity in self.severity_history)])

    def episodes(self) -> set[Episode]:
        """The (detector, metric, episode) of every finding."""
        return {episode_of(finding) for finding in self.findings}


@dataclass(frozen=True)
class Transition:
    """A change somebody may want to hear of. `what`: opened, escalated, lowered, cooling, firing, resolved, reopened."""

    incident: Incident
    what: str
    step: float


def episode_of(answer: Finding | Recovery) -> Episode:
    return answer.detector, answer.metric, answer.episode


def own_word(answer: Finding | Recovery) -> str:
    """Which bound or check of the user's own an answer comes from; "" for what detectors say by themselves."""
    return f"{answer.detector} {answer.episode.rpartition('@')[0]}" if answer.detector in OWN else ""


def identity_of(finding: Finding) -> tuple[str, str, str, str, float, float]:
    """What makes a finding this one, whatever became of its numbers on the way through the store."""
    return *episode_of(finding), finding.kind, float(finding.onset_step), float(finding.detected_step)


def incident_id(run: str, attempt: int, episode: Episode, onset_step: float, detected_step: float) -> str:
    """The id of an incident that begins so: a detector may use a name of an episode again, with the same onset too.

    A user's bound never does, so that of one the id is known while it is pending.
    """
    when = () if episode[0] == "bounds" else (detected_step,)
    return stable_id(run, attempt, *episode, onset_step, *when)


def stable_id(*parts: object) -> str:
    """Twelve hex digits that depend on nothing but the parts."""
    return hashlib.sha256(json.dumps([str(part) for part in parts]).encode()).hexdigest()[:12]


def to_json(value: object) -> str:
    """JSON text with sorted keys; non-finite numbers as "NaN", "Infinity", "-Infinity"; NumPy scalars as numbers."""
    return json.dumps(plain(value), sort_keys=True, ensure_ascii=False)


def plain(value: Any) -> Any:
    """The same value in JSON's own types, as contracts.md writes them."""
    if hasattr(value, "tolist"):
        value = value.tolist()  # NumPy scalars and arrays
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def finding_row(
    finding: Finding, run: str, attempt: int, incident_id: str | None, recorded_at: datetime
) -> dict[str, Any]:
    """A row of `findings`. The detector's parameters are taken from evidence["parameters"]."""
    evidence = dict(finding.evidence)
    parameters = evidence.pop("parameters", {})
    return {
        **{key: value for key, value in vars(finding).items() if key != "evidence"},
        "run": run,
        "finding_id": stable_id(run, attempt, *identity_of(finding)),
        "incident_id": incident_id,
        "attempt": attempt,
        "parameters": to_json(parameters),
        "evidence": to_json(evidence),
        "recorded_at": recorded_at,
    }


def incident_row(incident: Incident, opened_at: datetime, updated_at: datetime) -> dict[str, Any]:
    """A row of `incidents`."""
    same = ("severity", "status", "title", "pattern", "confidence", "onset_step", "detected_step", "resolved_step")
    history = [{"step": step, "severity": severity} for step, severity in incident.severity_history]
    return {
        "run": incident.run,
        "incident_id": incident.id,
        "attempt": incident.attempt,
        **{key: getattr(incident, key) for key in same},
        "state": incident.state,
        "severity_history": to_json(history),
        "hypotheses": to_json([asdict(item) for item in incident.hypotheses]),
        "suggestions": to_json([asdict(item) for item in incident.suggestions]),
        "opened_at": opened_at,
        "updated_at": updated_at,
    }


def finding_from_row(row: Mapping[str, Any]) -> Finding:
    """The inverse of `finding_row`; non-finite numbers inside evidence stay the strings of contracts.md."""
    evidence = _parsed(row["evidence"])
    parameters = _parsed(row.get("parameters") or "{}")
    names = [name for name in Finding.__dataclass_fields__ if name != "evidence"]
    known = {name: row[name] for name in names} | {"version": int(row["version"])}
    return Finding(**known, evidence={**evidence, **_if_any(parameters)})


def _if_any(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {"parameters": parameters} if parameters else {}


def incident_from_rows(run: str, row: Mapping[str, Any], findings: Sequence[Mapping[str, Any]]) -> Incident:
    """An incident from its row and the rows of its findings (in any order)."""
    members = sorted((finding_from_row(item) for item in findings), key=canonical)
    same = ("severity", "status", "title", "pattern", "confidence", "onset_step", "detected_step", "resolved_step")
    return Incident(
        id=row["incident_id"],
        run=run,
        attempt=int(row["attempt"]),
        **{key: row[key] for key in same},
        severity_history=tuple((item["step"], item["severity"]) for item in _parsed(row["severity_history"])),
        findings=tuple(members),
        hypotheses=tuple(_hypothesis(item) for item in _parsed(row["hypotheses"])),
        suggestions=tuple(_suggestion(item) for item in _parsed(row["suggestions"])),
        cooling=row.get("state") == "cooling",
    )


def _parsed(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _hypothesis(item: Mapping[str, Any]) -> Hypothesis:
    lists = {key: tuple(item[key]) for key in ("matched", "contradicted", "missing")}
    checks = tuple(Check(**check) for check in item.get("checks", ()))
    apart = Apart(**item["apart"]) if item.get("apart") else None
    words = {"title": item.get("title", ""), "id": item.get("id", ""), "checks": checks, "apart": apart}
    return Hypothesis(item["pattern"], item["score"], **{**lists, **words})


def _suggestion(item: Mapping[str, Any]) -> Suggestion:
    lists = {key: tuple(item.get(key, ())) for key in ("evidence", "counter_evidence", "again")}
    return Suggestion(**{**item, **lists})


def canonical(answer: Finding | Recovery) -> tuple[Any, ...]:
    """Sort key of an answer: the step at which it was known first, then names; total, whatever the numbers are."""
    if isinstance(answer, Recovery):
        return answer.step, 1, answer.metric, answer.detector, answer.step, answer.episode, ""
    rest = to_json(vars(answer))
    return answer.detected_step, 0, answer.metric, answer.detector, answer.onset_step, answer.episode, rest


def answers_to_json(answers: Iterable[Finding | Recovery]) -> str:
    """Answers as text, for a judge that must remember those that may still change an incident."""
    return to_json([vars(answer) for answer in answers])


def answers_from_json(text: str) -> list[Finding | Recovery]:
    """The inverse of `answers_to_json`."""
    return [Finding(**item) if "kind" in item else Recovery(**item) for item in json.loads(text)]
