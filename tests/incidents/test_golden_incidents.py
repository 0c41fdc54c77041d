"""A folder of answer lists with the incidents that must come of them; a changed sentence is a changed file."""

import json
from pathlib import Path

import pytest

from flows.incidents import fold
from flows.incidents.incident import answers_from_json, plain
from flows.playbook import load_playbook
from flows.records import Event

CASES = sorted((Path(__file__).parent / "golden").glob("*.json"))
SHOWN = ("title", "severity", "status", "pattern", "onset_step", "detected_step", "resolved_step", "severity_history")


def run_case(case):
    answers = answers_from_json(json.dumps(case["answers"]))
    events = [Event(**event) for event in case["events"]]
    return fold("run", 0, answers, events, load_playbook(), horizon_step=1e9, roles=case["roles"])


def summary(incidents):
    return [
        {key: plain(getattr(item, key)) for key in SHOWN}
        | {"findings": len(item.findings), "second": item.hypotheses[1].pattern if len(item.hypotheses) > 1 else None}
        | {"do": [suggestion.do for suggestion in item.suggestions]}
        for item in incidents
    ]


def test_there_are_cases():
    assert len(CASES) >= 9


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_incidents_are_those_of_the_file(path):
    case = json.loads(path.read_text(encoding="utf-8"))
    assert summary(run_case(case)) == case["incidents"]
