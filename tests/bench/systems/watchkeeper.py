"""watchkeeper itself: pull and judge as `check` does, in a store in memory.

An event of the case is put into the store when the log has come to its `recorded_at_step`: the rows before it are
judged without it. An event recorded before its own step counts from that step on, as everywhere.

Every finding of an incident is an alarm at the step at which it was detected, with its own severity or that of the
incident, whichever is less (0 and 1 are no pages; the scorer tells); the finding with which the incident rises has the
incident's. So an annotation that joins a page is no second page. What was said is never taken back: where a later
event explains an incident, its earlier alarms keep their severity. A rise without a finding is an alarm of its own.
`patterns` are the incident's ranked ones as it stood when the rows up to the next event, or to the end, were judged:
the severity is causal to the step, the ranking to that.
"""

import json
from collections.abc import Mapping
from typing import Any

import polars as pl
from cases import Alarm, Case

from flows.playbook import load_playbook
from flows.records import SAMPLE_SCHEMA, Event
from flows.sources.catalogue import open_sources
from flows.sources.roles import role_of
from flows.stages.attempts import Tracker, assign
from flows.stages.judge import judge
from flows.store import Store, open_store
from systems.samples import in_order


def watchkeeper(case: Case) -> list[Alarm]:
    """The alarms of every incident, as they were known."""
    said: dict[tuple[Any, ...], Alarm] = {}
    judged(case, said)
    return in_order(list(said.values()))


def judged(case: Case, said: dict[tuple[Any, ...], Alarm] | None = None) -> tuple[Store, str]:
    """The store with the case judged in it and the run's name; `said` takes up what was said on the way."""
    said = {} if said is None else said
    store = open_store(":memory:", clock=lambda: 0.0)
    (source,) = open_sources(str(case.log))
    found = source.describe()
    store.register_run(found)
    rows = pl.concat([pl.DataFrame(schema=SAMPLE_SCHEMA), *(batch.rows for batch in source.pull(None))])
    tracker = Tracker()
    done = 0
    for event in sorted(case.events, key=lambda each: float(str(each["recorded_at_step"]))):
        reached = (rows["step"][done:] >= float(str(event["recorded_at_step"]))).arg_true()
        cut = done + int(reached[0]) if len(reached) else len(rows)
        if cut > done:
            _take(store, found.run, rows[done:cut], tracker)
            _say(store, found.run, said)
            done = cut
        store.add_event(found.run, _event(event))
    _take(store, found.run, rows[done:], tracker, final=True)
    _say(store, found.run, said)
    return store, found.run


def _take(store: Store, run: str, rows: pl.DataFrame, tracker: Tracker, *, final: bool = False) -> None:
    """What pull and judge do with rows that are new."""
    placed = assign(rows, tracker, final=final)
    store.append(run, placed, tracker.attempts, "", tracker.dump(), {}, role_of)
    judge(store, run, load_playbook, clock=lambda: 0.0)


def _event(given: Mapping[str, Any]) -> Event:
    end = given.get("end_step")
    return Event(
        str(given["kind"]), float(given["step"]), None if end is None else float(end), str(given.get("note", "")), 0.0
    )


def _say(store: Store, run: str, said: dict[tuple[Any, ...], Alarm]) -> None:
    """Add what was not said before: the findings, then the rises of severity that no finding tells."""
    incidents = {row["incident_id"]: row for row in store.incidents(run)}
    rises = {name: _rises(row) for name, row in incidents.items()}
    told: set[tuple[str, float]] = set()
    first: dict[str, dict[str, Any]] = {}
    for finding in store.findings(run):
        name, at = finding["incident_id"], finding["detected_step"]
        first.setdefault(name, finding)
        level = _severity(incidents[name], at)
        if (name, at) in told or at not in rises[name]:
            level = min(level, finding["severity"])
        told.add((name, at))
        said.setdefault(("finding", finding["finding_id"]), _alarm(finding, incidents[name], at, level))
    for name, finding in first.items():
        for step, level in rises[name].items():
            if (name, step) not in told:
                said.setdefault(("rise", name, step, level), _alarm(finding, incidents[name], step, level))


def _rises(incident: Mapping[str, Any]) -> dict[float, int]:
    """The steps at which an incident became louder, with the severity from then on."""
    before, out = 0, {}
    for level in _history(incident):
        if level["severity"] > before:
            out[level["step"]] = level["severity"]
        before = level["severity"]
    return out


def _history(incident: Mapping[str, Any]) -> list[dict[str, Any]]:
    text = incident["severity_history"]
    return json.loads(text) if isinstance(text, str) else text


def _severity(incident: Mapping[str, Any], step: float) -> int:
    """The last severity that was known at a step."""
    known = [level["severity"] for level in _history(incident) if level["step"] <= step]
    return known[-1] if known else incident["severity"]


def _alarm(finding: Mapping[str, Any], incident: Mapping[str, Any], step: float, severity: int) -> Alarm:
    text = incident["hypotheses"]
    ranked = json.loads(text) if isinstance(text, str) else text
    patterns = tuple(each["pattern"] for each in ranked) or (incident["pattern"],)
    return Alarm(
        int(step), int(finding["onset_step"]), finding["metric"], finding["role"], severity, finding["kind"], patterns
    )
