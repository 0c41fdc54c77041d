"""The board of a run: every health check with its state, and why one was not made. Rows in, rows out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.messages.document import IncidentDoc, severity_number
from flows.messages.plain import plain

CHECKED = "checked"
# what stands in coverage and is no check of the run's health
READING = ("pull", "samples", "judge", "second tier", "sentinels", "retention")
QUANTITIES = {
    "loss": "training loss", "grad_norm": "gradient norm", "param_norm": "parameter norms", "update_norm": "update norm",
    "learning_rate": "learning rate", "eval_loss": "evaluation loss", "eval_score": "evaluation score",
    "mfu": "model FLOPs utilisation", "throughput": "throughput", "step_time": "time of a step", "token_drop": "dropped tokens",
    "router_entropy": "router entropy", "router_load": "router load", "router_bias": "router bias",
    "router_logit": "router logits", "max_logit": "attention logits", "logsumexp": "log-sum-exp", "batch_size": "batch size",
    "sequence_length": "sequence length", "tokens": "tokens", "memory": "memory", "data_wait": "waiting for data",
    "clipped": "clipped steps",
    "skipped_steps": "skipped steps", "link_errors": "link errors", "gpu": "GPUs",
}  # fmt: skip
DETECTORS = {
    "spikes": "sudden excursions", "shifts": "lasting changes of level", "direction": "slow trends",
    "spread": "noise that grows or shrinks", "nonfinite": "NaN and infinity", "divergence": "runaway loss",
    "schedule": "the learning-rate schedule", "silence": "samples that stop coming", "evals": "evaluations that get worse",
    "overfit": "training and evaluation part", "invariants": "quantities that must not change", "curve": "the shape of the loss",
    "kinks": "slopes that bend", "rates": "rates of counters", "lineage": "restarts and rewinds",
    "restarts": "how often the run restarts", "replays": "steps done again", "groups": "layers and leaves that leave the crowd",
    "layers": "layers side by side", "stragglers": "machines that lag", "counters": "counters of errors",
    "checkpoints": "age of the checkpoint", "bounds": "limits of the owner's own", "checks": "questions of the owner's own",
    "stopped": "metrics that are not logged any more", "saturation": "values at their limit",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """`state` is open, partly, not checked, past or fine; `severity` of the gravest incident; `metrics` were looked at."""

    check: str
    about: str
    quantity: bool  # a quantity that is watched; else a way of watching
    state: str
    severity: str
    metrics: int
    why: tuple[str, ...]  # "not checked, because"
    incidents: tuple[str, ...]


def board(coverage: Iterable[Mapping[str, Any]], incidents: Sequence[IncidentDoc]) -> list[Row]:
    """One row a check, what needs somebody first. `coverage` are rows check_name, metric, reason, count."""
    seen: dict[str, list[Mapping[str, Any]]] = {}
    for row in coverage:
        if row["check_name"] not in READING:
            seen.setdefault(row["check_name"], []).append(row)
    for each in incidents:
        for finding in each.get("findings", []):
            if finding.get("detector"):
                seen.setdefault(finding["detector"], [])
    return sorted((_row(name, rows, incidents) for name, rows in seen.items()), key=_rank)


def reading(coverage: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    """(what, reason, count) of what was passed over while reading, or stands apart from the checks."""
    return [
        (row["check_name"], ": ".join(filter(None, [row["metric"], row["reason"]])), int(row["count"]))
        for row in coverage
        if row["check_name"] in READING and row["reason"] != CHECKED
    ]


def _row(name: str, rows: Sequence[Mapping[str, Any]], incidents: Sequence[IncidentDoc]) -> Row:
    mine = [i for i in incidents if any(name in (f.get("detector"), f.get("role")) for f in i.get("findings", []))]
    mine = [i for i in mine if severity_number(i["severity"]) >= 1]
    going = [i for i in mine if i.get("status") != "resolved"]
    made = sum(row["reason"] == CHECKED for row in rows)
    missing = [row for row in rows if row["reason"] != CHECKED]
    if going:
        state = "open"
    elif missing:
        state = "partly" if made else "not checked"
    else:
        state = "past" if mine else "fine"
    worst = max((i["severity"] for i in going or mine), default="")
    ids = tuple(
        i["id"] for i in sorted(going or mine, key=lambda i: (-severity_number(i["severity"]), i["onset_step"]))
    )
    about = QUANTITIES.get(name) or DETECTORS.get(name) or name.replace("_", " ")
    return Row(name, about, name in QUANTITIES, state, worst, made, _reasons(missing), ids)


def _gravest(incident: IncidentDoc) -> tuple[int, float]:
    return -severity_number(incident["severity"]), incident["onset_step"]


def _reasons(missing: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Each reason once, with the metrics that it holds for."""
    grouped: dict[str, list[str]] = {}
    for row in missing:
        grouped.setdefault(plain(row["reason"], 200), []).append(plain(row["metric"], 80))
    told = []
    for reason, names in grouped.items():
        known = [name for name in names if name]
        some = ", ".join(known[:3]) + (f" and {len(known) - 3} more" if len(known) > 3 else "")
        told.append(f"{some}: {reason}" if some else reason)
    return tuple(told)


_ORDER = ("open", "not checked", "partly", "past", "fine")


def _rank(row: Row) -> tuple[int, int, str]:
    return _ORDER.index(row.state), -severity_number(row.severity or "S0"), row.check
