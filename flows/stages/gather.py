"""What of a run is published: its documents behind the veil, and what they do not tell."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from flows.incidents.incident import OWN
from flows.messages.document import IncidentDoc, RunDoc, severity_number
from flows.record.board import board, reading
from flows.record.places import folder_name, incident_file
from flows.record.timeline import timeline
from flows.record.veil import REASONS, Policy, Veil, links
from flows.record.views import RunPage
from flows.records import Attempt, Event
from flows.sources.roles import role_of
from flows.stages.document import run_document
from flows.store import Store


@dataclass(frozen=True)
class Terms:
    """The owner's terms: what is published, under which title, with which links, and whether the samples are."""

    policy: Policy = field(default_factory=Policy)
    title: str = "Operating record"
    links: Mapping[str, str] = field(default_factory=dict)
    samples: bool = True


@dataclass(frozen=True)
class Gathered:
    """One run: `page` may leave the house; `told` are the incidents with a page, as they stand in the store, by id.

    `batch` is the newest append of the run, `replaced` counts the values that were written anew.
    """

    run: str
    veil: Veil
    page: RunPage
    told: Mapping[str, IncidentDoc]
    events: list[Event]
    attempts: list[Attempt]
    batch: int
    replaced: int
    counts: Mapping[str, int]


def gather(store: Store, run: str, terms: Terms) -> Gathered:
    """Everything of one run that its pages are made from. Raises LookupError for an unknown run."""
    whole = run_document(store, run)
    facts, log = store.facts(run), store.log(run)
    events, attempts = store.events(run), store.attempts(run)
    veil = Veil(terms.policy, run, [m["name"] for m in whole["metrics"]])
    veil.learn(log, events, attempts, [whole["source"]])
    veil.learn_findings(whole["incidents"])
    coverage = veil.coverage(store.coverage(run).iter_rows(named=True))
    shown = [veil.incident(i) for i in whole["incidents"] if terms.policy.has_public(_metrics(i))]
    public: RunDoc = {
        "run": veil.name, "format": whole["format"], "step_key": whole["step_key"], "first_step": whole["first_step"],
        "last_step": whole["last_step"], "samples": whole["samples"], "metrics": veil.metrics(whole["metrics"]),
        "incidents": shown,
        "not_checked": [
            {"check": row["check_name"], "reason": f"{row['metric']}: {row['reason']}" if row["metric"] else row["reason"]}
            for row in coverage if row["reason"] != "checked"
        ],
    }  # fmt: skip
    seen_events, seen_attempts = veil.events(events), veil.attempts(attempts)
    started = {number: _when(at) for number, at in facts.started.items()}
    folder = folder_name(veil.name)
    policy = terms.policy
    named = {
        i["id"]: incident_file(i["id"]) for i in shown if policy.tells(severity_number(i["severity"]), _metrics(i))
    }
    page: RunPage = {
        "run": public, "folder": folder, "pages": named, "board": board(coverage, shown), "reading": reading(coverage),
        "timeline": timeline(seen_attempts, facts.reached, started, seen_events, shown),
        "expectations": [_expected(store, run, row, veil) for row in facts.expectations],
        "links": links(terms.links, veil.name), "fresh": _when(facts.fresh_at).replace("T", " ").replace("Z", " UTC"),
        "samples": f"{folder}.parquet" if terms.samples else "", "caveats": _caveats(whole, events, attempts, veil),
    }  # fmt: skip
    told = {i["id"]: i for i in whole["incidents"] if i["id"] in named}
    counts = {
        "events": len(events),
        "operations": sum(len(i.get("operations", [])) for i in shown),
        "coverage": len(coverage),
    }
    return Gathered(run, veil, page, told, seen_events, seen_attempts, facts.batch, facts.replaced, counts)


def _metrics(incident: IncidentDoc) -> list[str]:
    return [finding.get("metric", "") for finding in incident.get("findings", [])]


def _when(moment: datetime | None) -> str:
    return "" if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _expected(store: Store, run: str, row: Mapping[str, Any], veil: Veil) -> dict[str, Any]:
    """A row of `expectations` beside what came: the value of its metric at its step, else the last one; numbers only."""
    body = _body(row["body"])
    metric = body.get("metric")
    known = isinstance(metric, str) and metric and veil.metric(metric)
    numbers = {key: value for key, value in body.items() if isinstance(value, int | float)}
    return {
        "name": f"{veil.text(row['name'])} of {metric}" if known else veil.text(row["name"]), "version": row["version"],
        "recorded_at": _when(row["recorded_at"]), "expected": numbers.get("value"), "low": numbers.get("low"),
        "high": numbers.get("high"), "result": _came(store, run, str(metric), numbers.get("step")) if known else None,
        "numbers": numbers,
    }  # fmt: skip


def _body(text: str) -> Mapping[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _came(store: Store, run: str, metric: str, step: float | None) -> float | None:
    seen = store.history(run, metric)
    if step is None:
        return float(seen["value"][-1]) if len(seen) else None
    at = seen.filter(seen["step"] >= step)
    return float(at["value"][0]) if len(at) else None


def _caveats(whole: RunDoc, events: list[Event], attempts: list[Attempt], veil: Veil) -> list[str]:
    """Why a check of the samples alone may come to something else."""
    told = []
    if events:
        told.append(f"{len(events)} planned or recorded events were taken into account; the samples do not hold them.")
    if any(f.get("detector") in OWN for i in whole["incidents"] for f in i.get("findings", [])):
        told.append("Some incidents come from limits or questions of the owner's own.")
    if any(f.get("detector") == "silence" for i in whole["incidents"] for f in i.get("findings", [])):
        told.append("Silence was judged by the clock of the watch.")
    if any(role_of(m["name"]).role != m["role"] for m in whole["metrics"]):
        told.append("The owner said of some metrics what they are; their names alone do not tell.")
    if any(a.reason not in REASONS or a.reason == "segment" for a in attempts):
        told.append("The run went on from other runs; the samples stand in one file, without saying where.")
    if veil.withheld.get("metrics"):
        told.append("Some metrics are not published.")
    return told
