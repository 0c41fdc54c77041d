"""A store with a secret in every field that may hold one, and the terms under which none may leave."""

import json
from datetime import datetime

import numpy as np
import polars as pl

from flows.record.veil import Policy
from flows.records import STORED_SCHEMA, Attempt, Description, Event, Operation, Role
from flows.stages.gather import Terms
from flows.store import open_store

NOW = 1_700_000_000.0
# a secret a field, each of a shape of its own; none may leave
SECRETS = {
    "source": "/srv/canary-one/run.jsonl", "segment": "canary-two@login7", "reason": "canary-three moved racks",
    "note": "canary-four mixture",
    "who": "Canary Five", "why": "canary-six said so", "detail": "canary-seven", "event_source": "canary-eight",
    "kind": "canary-nine", "check": "canary-ten", "own_why": "canary-eleven budget", "column": "canary-twelve",
    "channel": "canary-thirteen", "host": "canary-fourteen", "error": "canary-fifteen", "cursor": "canary-sixteen",
    "message": "canary-seventeen", "metric": "canary-eighteen/loss", "bound": "canary-nineteen", "parameters": "canary-twenty",
    "label": "canary-21", "field": "canary-22",
}  # fmt: skip


def role_of(name):
    return Role("loss", "nats", "down") if "loss" in name else Role("other")


def finding(name, incident, metric, onset, detector="shifts", **evidence):
    return {
        "run": "hero", "finding_id": name, "incident_id": incident, "attempt": 1, "detector": detector, "version": "1",
        "parameters": json.dumps({"x": SECRETS["parameters"]}), "kind": "level", "metric": metric, "role": "loss",
        "direction": "up", "onset_step": onset, "detected_step": onset + 8, "magnitude": 0.5, "unit": "log", "severity": 2,
        "episode": name,
        "evidence": json.dumps({"before": 1.0, "after": 2.0, "label": SECRETS["label"], **evidence}),
        "recorded_at": datetime(2026, 1, 1),
    }  # fmt: skip


def incident(name, severity, onset, title, status="open", resolved=None):
    said = {
        "matched": [f"loss up after {SECRETS['note']}"],
        "contradicted": [],
        "missing": [],
        "checks": [{"sql": SECRETS["bound"]}],
    }
    offered = {"do": f"ask {SECRETS['who']}", "why": "because", "cost": "none", "bound": SECRETS["bound"],
               "secret": SECRETS["field"],
               "evidence": [f"seen in {SECRETS['source']}"], "counter_evidence": [], "reversible": True}  # fmt: skip
    return {
        "run": "hero", "incident_id": name, "attempt": 1, "severity": severity, "status": status, "title": title,
        "pattern": "loss_divergence", "confidence": 0.8, "onset_step": onset, "detected_step": onset + 8,
        "resolved_step": resolved, "severity_history": json.dumps([{"step": onset + 8, "severity": severity}]),
        "hypotheses": json.dumps([{"pattern": "x", "score": 1.0, **said}]), "suggestions": json.dumps([offered]),
        "opened_at": datetime(2026, 1, 1), "updated_at": datetime(2026, 1, 1),
    }  # fmt: skip


def frame(*columns):
    rows = [(float(s), None, name, float(v), attempt, False) for name, attempt, steps, values in columns
            for s, v in zip(steps, values, strict=True)]  # fmt: skip
    return pl.DataFrame(rows, schema=STORED_SCHEMA, orient="row")


def made_store():
    """Two runs, three incidents (one open, one over, one of private metrics alone) and a secret in every field."""
    chance = np.random.default_rng(3)
    kept = open_store(":memory:", clock=lambda: NOW)
    kept.register_run(Description("hero", SECRETS["source"], "jsonl", "step"))
    kept.register_run(Description("other-run", "x", "jsonl", "step"))
    line = [
        Attempt(1, 0.0, None, "start", 300.0, SECRETS["segment"]),
        Attempt(2, 300.0, 1, SECRETS["reason"], source=SECRETS["segment"]),
    ]
    steps, again = np.arange(400.0), np.arange(300.0, 500.0)
    rows = frame(
        ("train/loss", 1, steps, chance.normal(2, 0.1, 400)), (SECRETS["metric"], 1, steps, steps),
        ("train/loss", 2, again, chance.normal(2, 0.1, 200)),
    )  # fmt: skip
    kept.append("hero", rows, line, SECRETS["cursor"], SECRETS["cursor"], {}, role_of)
    kept.append("other-run", frame(("train/loss", 1, steps[:9], steps[:9])), line[:1], "", "", {}, role_of)
    kept.add_event(
        "hero",
        Event("deploy", 250.0, note=SECRETS["note"], source=SECRETS["event_source"], detail={"x": SECRETS["detail"]}),
    )
    kept.add_event("hero", Event(SECRETS["kind"], 260.0))
    own = {
        "check": SECRETS["check"],
        "why": SECRETS["own_why"],
        "title": "",
        "row": {"x": SECRETS["column"]},
        SECRETS["field"]: 3.0,
    }
    message = {
        "delivery_id": "d", "run": "hero", "incident_id": "aaa", "transition": "opened", "channel": SECRETS["channel"],
        "message": SECRETS["message"], "message_id": "m",
    }  # fmt: skip
    coverage = [
        {"check_name": "mfu", "metric": "", "reason": "no metric with this role", "count": 0},
        {"check_name": "spikes", "metric": "train/loss", "reason": "checked", "count": 1},
        {"check_name": "bounds", "metric": "", "reason": f"no such metric: {SECRETS['bound']}", "count": 1},
        {"check_name": "shifts", "metric": SECRETS["metric"], "reason": "checked", "count": 1},
        {"check_name": "pull", "metric": "", "reason": f"{SECRETS['source']}: lines without a step", "count": 2},
    ]
    kept.save_judgement(
        "hero", upto_batch=1, run_state="", states={}, coverage=coverage, deliveries=[message],
        incidents=[
            incident("aaa", 3, 305.0, f"train/loss rose at step 305 with {SECRETS['metric']}; see {SECRETS['source']}"),
            incident("bbb", 2, 100.0, f"check {SECRETS['check']} found train/loss: {SECRETS['own_why']}", "resolved", 200.0),
            incident("ccc", 2, 50.0, f"{SECRETS['metric']} rose"),
        ],
        findings=[
            finding("f1", "aaa", "train/loss", 305.0), finding("f2", "aaa", SECRETS["metric"], 306.0),
            finding("f3", "bbb", "train/loss", 100.0, "checks", **own), finding("f4", "ccc", SECRETS["metric"], 50.0),
        ],
    )  # fmt: skip
    for number, kind in enumerate(("ack", "note", "resolve")):
        kept.operate(
            Operation(
                "hero", kind, SECRETS["who"], NOW + number, SECRETS["why"], "aaa" if number < 2 else "bbb", step=310.0
            )
        )
    return kept


PRIVATE = Terms(Policy(metrics=("train/*",)))


def everything(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
