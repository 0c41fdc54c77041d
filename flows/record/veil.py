"""What of a run may leave the house: an allow-list of fields, and a veil over private words inside the sentences that remain.

Published are numbers, steps, names of metrics and runs, and our own sentences. People, notes, hosts, paths, sources and what the
configuration says stay private unless the policy shows them. New fields of a document stay private until they are listed here.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, cast

from flows.incidents.incident import OWN
from flows.incidents.people import QUIETLY
from flows.messages.document import FindingDoc, IncidentDoc, MetricDoc, OperationDoc
from flows.records import ANEW, Attempt, Event

HIDDEN = "[private]"
PEOPLE, NOTES, SOURCES = "people", "notes", "sources"
KINDS = frozenset({
    "data_mix", "batch_size", "sequence_length", "lr_schedule", "lr_decay", "warmup", "deploy", "restart", "checkpoint", "eval",
})  # fmt: skip
REASONS = frozenset({"start", "rewind", ANEW, "segment"})
_INCIDENT = (
    "id", "severity", "status", "pattern", "confidence", "onset_step", "detected_step", "resolved_step", "severity_history",
)  # fmt: skip
_FINDING = ("detector", "kind", "metric", "role", "direction", "onset_step", "detected_step", "magnitude", "unit")
_METRIC = ("name", "role", "samples", "last_step", "last_value", "unit")
_OPERATION = ("at", "what", "step", "severity", "until", "until_step", "silent")
_SUGGESTION = ("reversible", "goes_back", "back_to_step", "cost_steps", "again")
# what looks like a place on somebody's machine: paths, addresses, people at hosts
_PLACES = re.compile(
    r"\w[\w+.-]*://\S+|(?<![\w/.])(?:~|[A-Za-z]:)?[/\\](?:[\w.@+-]+[/\\])+[\w.@+-]*|[\w.+-]+@[\w-]+(?:\.[\w-]+)*|\b\d{1,3}(?:\.\d{1,3}){3}\b"
)


@dataclass(frozen=True)
class Policy:
    """What the owner publishes: shell patterns of runs and metrics, and which of people, notes, sources are shown.

    `names` maps a run to the name under which it is published.
    """

    runs: tuple[str, ...] = ("*",)
    metrics: tuple[str, ...] = ("*",)
    show: frozenset[str] = frozenset()
    names: Mapping[str, str] = field(default_factory=dict)

    def takes(self, run: str) -> bool:
        """Whether this run is published at all."""
        return any(fnmatchcase(run, each) for each in self.runs)

    def called(self, run: str) -> str:
        """The name under which a run is published."""
        return self.names.get(run, run)

    def shows(self, metric: str) -> bool:
        """Whether a metric is published; "" (the whole run) is."""
        return not metric or any(fnmatchcase(metric, each) for each in self.metrics)

    def tells(self, severity: int, metrics: Collection[str]) -> bool:
        """Whether an incident has a page: an annotation (S0) has none, and one of private metrics alone stays private."""
        return severity >= 1 and self.has_public(metrics)

    def has_public(self, metrics: Collection[str]) -> bool:
        """Whether any of the metrics of an incident is published, or it has none."""
        return not metrics or any(map(self.shows, metrics))


class Veil:
    """Publishes the documents of one run. `withheld` counts what was kept back, by kind."""

    def __init__(self, policy: Policy, run: str, metrics: Iterable[str]) -> None:
        self._policy = policy
        self._run = run
        self.name = policy.called(run)
        every = list(metrics)
        self._public = {name for name in every if policy.shows(name)}
        self._people: dict[str, str] = {}
        self._words: dict[str, str] = {}
        self.withheld: dict[str, int] = {}
        self._keep("metrics", [name for name in every if name not in self._public])
        if self.name != run:
            self._words[run] = self.name

    def learn(
        self, operations: Iterable[Any], events: Iterable[Event], attempts: Iterable[Attempt], sources: Iterable[str]
    ) -> None:
        """Take in what people wrote and where things lie, so that none of it shows through a sentence."""
        for each in operations:
            if each.kind not in ("opened", "escalated", "reopened", "resolved", "still", *QUIETLY):
                self._person(each.who)
                self._keep(NOTES, [each.why])
        for event in events:
            self._keep(NOTES, [event.note, *([] if event.kind in KINDS else [event.kind])])
        self._keep(SOURCES, [*sources, *(each.source for each in attempts)])
        self._keep(NOTES, [each.reason for each in attempts if each.reason not in REASONS])

    def learn_findings(self, incidents: Iterable[IncidentDoc]) -> None:
        """The user's own words inside findings of own bounds and checks: reasons, titles, names of checks, other columns."""
        for finding in (f for i in incidents for f in i.get("findings", []) if f.get("detector") in OWN):
            said = finding.get("evidence", {})
            row = said.get("row")
            texts = [said.get("why"), said.get("title"), said.get("check")]
            texts += list(row.values()) if isinstance(row, Mapping) else []
            self._keep("configuration", [each for each in texts if isinstance(each, str)])

    def _keep(self, kind: str, words: Iterable[str]) -> None:
        if kind in self._policy.show:
            return
        for word in words:
            if word and word not in self._words and word not in self._public:
                self._words[word] = HIDDEN
                self.withheld[kind] = self.withheld.get(kind, 0) + 1

    def _person(self, who: str) -> None:
        if PEOPLE not in self._policy.show and who and who not in self._people:
            self._people[who] = f"person {len(self._people) + 1}"
            self._words[who] = self._people[who]
            self.withheld[PEOPLE] = self.withheld.get(PEOPLE, 0) + 1

    def text(self, said: object) -> str:
        """A sentence without private words and places."""
        shown = str(said)
        for word in sorted(self._words, key=len, reverse=True):
            if word in shown:
                edge = r"(?<!\w)" if re.match(r"\w", word) else "", r"(?!\w)" if re.search(r"\w$", word) else ""
                shown = re.sub(f"{edge[0]}{re.escape(word)}{edge[1]}", self._words[word].replace("\\", r"\\"), shown)
        if SOURCES in self._policy.show:
            return shown
        return _PLACES.sub(lambda m: m[0] if m[0].rstrip(".,;:") in self._public else HIDDEN, shown)

    def metric(self, name: str) -> bool:
        """Whether a metric of this name is published; "" (the whole run) is."""
        return not name or name in self._public

    def incident(self, incident: IncidentDoc) -> IncidentDoc:
        """The incident as it may be published."""
        found = [self._finding(f) for f in incident.get("findings", []) if self.metric(f.get("metric", ""))]
        kept: dict[str, Any] = {key: incident[key] for key in _INCIDENT if key in incident}  # type: ignore[literal-required]
        kept |= {
            "title": self.text(incident["title"]),
            "pattern": self.text(incident.get("pattern", "")),
            "findings": found,
        }
        kept["hypotheses"] = [self._hypothesis(each) for each in incident.get("hypotheses", [])]
        kept["suggestions"] = [self._suggestion(each) for each in incident.get("suggestions", [])]
        kept["operations"] = [self._operation(each) for each in incident.get("operations", [])]
        return cast(IncidentDoc, kept)

    def _finding(self, finding: FindingDoc) -> FindingDoc:
        kept: dict[str, Any] = {key: finding[key] for key in _FINDING if key in finding}  # type: ignore[literal-required]
        own = finding.get("detector") in OWN
        said = {
            k: v
            for k, v in finding.get("evidence", {}).items()
            if _is_number(v) or v in ("NaN", "Infinity", "-Infinity")
        }
        # what the owner asked for himself may hold any column
        numbers = {k: v for k, v in said.items() if k in ("after", "limit", "samples")} if own else said
        return cast(FindingDoc, {**kept, "evidence": numbers})

    def _hypothesis(self, each: Mapping[str, Any]) -> Any:
        lists = {
            key: [self.text(said) for said in each.get(key) or ()] for key in ("matched", "contradicted", "missing")
        }
        apart = each.get("apart")
        told = (
            {key: self.text(value) for key, value in apart.items() if isinstance(value, str)}
            if isinstance(apart, Mapping)
            else None
        )
        names = {key: self.text(each.get(key) or "") for key in ("pattern", "title")}
        return {**names, "score": each.get("score", 0.0), **lists, "apart": told}

    def _suggestion(self, each: Mapping[str, Any]) -> Any:
        words = {key: self.text(each.get(key) or "") for key in ("do", "why", "cost")}
        lists = {key: [self.text(said) for said in each.get(key) or ()] for key in ("evidence", "counter_evidence")}
        return {**words, **lists, **{key: each[key] for key in _SUGGESTION if key in each}}

    def _operation(self, each: OperationDoc) -> OperationDoc:
        kept = {
            key: each[key] for key in ("at", "what", "step", "severity", "until", "until_step", "silent") if key in each
        }
        who = each.get("who", "")
        notes = each.get("why", "") if NOTES in self._policy.show else ""
        return cast(OperationDoc, {**kept, "who": self._people.get(who, who), "why": self.text(notes)})

    def metrics(self, metrics: Iterable[MetricDoc]) -> list[MetricDoc]:
        """Those that are published, by their listed fields."""
        return [cast(MetricDoc, {k: m[k] for k in _METRIC if k in m}) for m in metrics if m["name"] in self._public]  # type: ignore[literal-required]

    def events(self, events: Iterable[Event]) -> list[Event]:
        """Kind and steps; notes where they are shown."""
        noted = NOTES in self._policy.show
        return [
            Event(
                e.kind if e.kind in KINDS or noted else "event", e.step, e.end_step, self.text(e.note) if noted else ""
            )
            for e in events
        ]

    def attempts(self, attempts: Iterable[Attempt]) -> list[Attempt]:
        """Without their sources and reasons of the owner's own."""
        shown = NOTES in self._policy.show
        return [
            Attempt(
                a.attempt,
                a.first_step,
                a.parent,
                a.reason if a.reason in REASONS or shown else "segment",
                a.valid_until,
            )
            for a in attempts
        ]

    def coverage(self, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """What was and was not checked; of the owner's own bounds and checks only that there are some."""
        kept = []
        for row in rows:
            if not self.metric(row["metric"]):
                continue
            name, reason = row["check_name"], self.text(row["reason"])
            if name.split(" ")[0].rstrip("s") in ("bound", "check") and reason != "checked":
                name, reason = name.split(" ")[0], "one of the owner's own could not be looked at"
            kept.append(
                {"check_name": self.text(name), "metric": row["metric"], "reason": reason, "count": row["count"]}
            )
        return kept


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | int):
        return True
    return isinstance(value, float) and math.isfinite(value)


def links(given: Mapping[str, str], run: str) -> Sequence[tuple[str, str]]:
    """(label, address) of the owner's links, with {run} filled in; only web addresses without a password in them."""
    shown = []
    for label, address in given.items():
        url = address.replace("{run}", run)
        if re.fullmatch(r"https?://[^\s@/]+(/\S*)?", url):
            shown.append((label, url))
    return shown
