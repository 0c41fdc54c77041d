"""A run as `check --json` writes it, read from the store: what pages, charts and messages are made from."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from flows.incidents.pending import from_rows, in_words
from flows.incidents.people import of
from flows.incidents.written import steps
from flows.messages.document import IncidentDoc, MetricDoc, RunDoc, incident_doc, operation_doc
from flows.messages.facts import Context
from flows.record.curves import Curve, Predicted
from flows.records import Operation
from flows.stages.predicted import predicted
from flows.store import Store

CHECKED = "checked"
MOST_CURVES = 8
FEW = 3  # metrics of one reason that are named each in a line of its own


def run_document(store: Store, run: str) -> RunDoc:
    """The `runs` entry of watchkeeper.check/1. Raises LookupError for a run that the store does not have."""
    about = next((row for row in store.runs().iter_rows(named=True) if row["run"] == run), None)
    if about is None:
        raise LookupError(f"no run {run!r} in the store")
    metrics = store.metrics(run)
    return {
        "run": run,
        "source": about["source"],
        "format": about["format"],
        "step_key": about["step_key"],
        "first_step": _edge(metrics["first_step"].min()),
        "last_step": _edge(metrics["last_step"].max()),
        "samples": int(metrics["samples"].sum()),
        "metrics": [_metric(row) for row in metrics.iter_rows(named=True)],
        "incidents": incidents_of(store, run),
        "not_checked": [{"check": check, "reason": reason} for check, reason in not_checked(store, run)],
    }


def incidents_of(store: Store, run: str) -> list[IncidentDoc]:
    """Every incident of a run with its findings, oldest onset first."""
    findings: dict[str, list[dict[str, Any]]] = {}
    for row in store.findings(run):
        findings.setdefault(row["incident_id"], []).append(row)
    log = store.log(run)
    rows = store.incidents(run)
    return [with_log(incident_doc(row, findings.get(row["incident_id"], [])), log) for row in rows]


def with_log(incident: IncidentDoc, log: Sequence[Operation]) -> IncidentDoc:
    """The document with what people did and what was told; without a log as it is."""
    lines = of(log, incident["id"])
    return {**incident, "operations": [operation_doc(each) for each in lines]} if lines else incident


def pending(store: Store, run: str | None = None) -> list[tuple[str, str]]:
    """(run, in words) of what is pending in a run or in all: no incidents, so they stand in no document of a run."""
    out = []
    for name in (each for each in store.runs()["run"] if run in (None, each)):
        for each in from_rows(json.loads(store.run_state(name) or "{}").get("pending", [])):
            out.append((name, f"{in_words(each.what)}, since step {steps(each.what.onset_step)}"))
    return out


def last_step(store: Store, run: str) -> float:
    """The highest step that was stored of any metric."""
    return _edge(store.metrics(run)["last_step"].max())


def not_checked(store: Store, run: str) -> list[tuple[str, str]]:
    """(check, reason) of everything that was not checked; the metric is part of the reason, of many the first ones."""
    alike: dict[tuple[str, str], list[str]] = {}
    for row in store.coverage(run).filter(pl.col("reason") != CHECKED).iter_rows(named=True):
        alike.setdefault((row["check_name"], row["reason"]), []).append(row["metric"])
    out = []
    for (check, reason), names in alike.items():
        shown = names if len(names) <= FEW else [f"{len(names):,} metrics ({', '.join(names[:FEW])} ...)"]
        out += [(check, f"{name}: {reason}" if name else reason) for name in shown]
    return sorted(out)


def context_of(store: Store, run: str) -> Context:
    """What a message says beside its incident."""
    metrics = store.metrics(run)
    whole = metrics.filter(metrics["group_name"] == "")
    return Context(
        events=store.events(run),
        metrics=dict(zip(whole["name"], whole["role"], strict=True)),
        not_checked=not_checked(store, run),
        last_step=_edge(metrics["last_step"].max()),
        tokens_per_step=_tokens_per_step(whole),
    )


def _tokens_per_step(metrics: pl.DataFrame) -> float | None:
    """From a count of all tokens so far; None where none is logged."""
    for row in metrics.filter(metrics["role"] == "tokens").iter_rows(named=True):
        if row["last_value"] and row["last_step"] and math.isfinite(row["last_value"]) and row["last_value"] > 0:
            return float(row["last_value"] / row["last_step"])
    return None


def curves_of(
    store: Store, run: str, incident: IncidentDoc, metrics: pl.DataFrame, ladder: Sequence[Mapping[str, Any]] = ()
) -> list[Curve]:
    """The samples to draw, every attempt: the metrics of the findings, by onset, the one the title speaks of first.

    `metrics` are those of the run (`store.metrics`), `ladder` the expectations that it was held to. Without findings none.
    Reads only as far back as a chart can show.
    """
    names = _names(incident)[:MOST_CURVES]
    if not names:
        return []
    known = {row["name"]: row for row in metrics.filter(pl.col("name").is_in(names)).iter_rows(named=True)}
    lead = known.get(names[0])
    onset, end = incident["onset_step"], incident.get("resolved_step") or incident["detected_step"]
    cadence = (lead["last_step"] - lead["first_step"]) / max(lead["samples"] - 1, 1) if lead else 1.0
    reach = max(6 * max(end - onset, 0.0), 800 * cadence)
    # to a power of two: what is shown of an incident that is over stays the same while the run, and its cadence, go on
    reach = 2.0 ** math.ceil(math.log2(reach)) if reach > 0 else 0.0
    rows = store.samples(run, names, onset - reach, end + reach)
    parts = {name: rows.filter(rows["name"] == name) for name in names}
    bands = {name: predicted(store, run, ladder, known[name]) for name in parts if name in known}
    return [_curve(name, part, known[name]["unit"], bands[name]) for name, part in parts.items() if len(part)]


def _curve(name: str, part: pl.DataFrame, unit: str, band: tuple[Predicted, ...]) -> Curve:
    step, value = part["step"].to_numpy(), part["value"].to_numpy()
    return Curve(name, step, value, part["attempt"].cast(pl.Int64).to_numpy(), unit, band)


def _names(incident: IncidentDoc) -> list[str]:
    """Metrics of the findings in order of onset; a metric that the title names comes first."""
    found = sorted(incident.get("findings", []), key=lambda f: f["onset_step"])
    ordered = dict.fromkeys(f["metric"] for f in found if f["metric"])
    places = {name: incident["title"].find(name) for name in ordered}
    return sorted(ordered, key=lambda name: places[name] if places[name] >= 0 else len(incident["title"]))


def _metric(row: dict[str, Any]) -> MetricDoc:
    return {
        "name": row["name"],
        "role": row["role"],
        "unit": row["unit"],
        "samples": row["samples"],
        "last_step": _edge(row["last_step"]),
        "last_value": _value(row),
    }


def _edge(step: Any) -> float:
    return float(step) if step is not None else 0.0


def _value(row: dict[str, Any]) -> float | str | None:
    value = row["last_value"]
    if value is None or math.isfinite(value):
        return None if value is None else float(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
