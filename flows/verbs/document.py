"""The document of `check --json` (schema watchkeeper.check/1, see check.schema.json beside this file)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flows.incidents.incident import plain
from flows.records import Description
from flows.stages.coverage import CHECKED
from flows.store import Store

SCHEMA = "watchkeeper.check/1"


@dataclass(frozen=True)
class Checked:
    """One run of the document as plain data, and the highest severity that any of its incidents ever had."""

    data: dict[str, Any]
    worst: int


def checked(store: Store, found: Description) -> Checked:
    """What the store holds of a run, in the document's form."""
    run = found.run
    metrics = store.metrics(run)
    incidents = [_incident(store, run, row) for row in store.incidents(run)]
    data = {
        "run": run,
        "source": found.source,
        "format": found.format,
        "step_key": found.step_key,
        "first_step": metrics["first_step"].min(),
        "last_step": metrics["last_step"].max(),
        "samples": int(metrics["samples"].sum()),
        "metrics": [
            {"name": row["name"], "role": row["role"], "unit": row["unit"], "samples": row["samples"]}
            for row in metrics.iter_rows(named=True)
        ],
        "incidents": sorted(incidents, key=lambda item: (item["onset_step"], item["id"])),
        "not_checked": _not_checked(store, run),
    }
    return Checked(plain(data), max((_worst(item) for item in incidents), default=-1))


def _worst(incident: dict[str, Any]) -> int:
    return max(int(entry["severity"][1]) for entry in incident["severity_history"])


def _incident(store: Store, run: str, row: dict[str, Any]) -> dict[str, Any]:
    history = [{"step": e["step"], "severity": f"S{e['severity']}"} for e in json.loads(row["severity_history"])]
    return {
        "id": row["incident_id"],
        "severity": f"S{row['severity']}",
        "severity_history": history,
        **{
            k: row[k]
            for k in ("status", "title", "pattern", "confidence", "onset_step", "detected_step", "resolved_step")
        },
        "findings": [_finding(each) for each in store.findings(run, row["incident_id"])],
        "hypotheses": json.loads(row["hypotheses"]),
        "suggestions": json.loads(row["suggestions"]),
    }


def _finding(row: dict[str, Any]) -> dict[str, Any]:
    keys = ("detector", "kind", "metric", "role", "direction", "onset_step", "detected_step", "magnitude", "unit")
    return {
        **{key: row[key] for key in keys},
        "severity": f"S{row['severity']}",
        "evidence": json.loads(row["evidence"]),
    }


def _not_checked(store: Store, run: str) -> list[dict[str, Any]]:
    """Each check that was not made, and what the reader had to pass over."""
    out = []
    for row in store.coverage(run).iter_rows(named=True):
        if row["reason"] == CHECKED:
            continue
        reason = f"{row['count']} x {row['reason']}" if row["check_name"] == "pull" else row["reason"]
        out.append(
            {"check": row["check_name"], "reason": reason, **({"metric": row["metric"]} if row["metric"] else {})}
        )
    return out


def document(runs: Sequence[Checked]) -> str:
    """JSON text; non-finite numbers are the strings of the contract."""
    return json.dumps({"schema": SCHEMA, "runs": [each.data for each in runs]}, allow_nan=False, ensure_ascii=False)
