"""The report of a benchmark as Markdown: what a person reads of detection.json."""

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
HALVES = ("all", "tuning", "held_out")


def markdown(report: Mapping[str, Any]) -> str:
    """All tables: systems by half, false alarms, delays, recall by fault; what was broken, at the end."""
    systems: Mapping[str, Mapping[str, Row]] = report["systems"]
    halves = [half for half in HALVES if any(half in rows for rows in systems.values())]
    lines = [f"{report['date']}, `{report['command']}`, watchkeeper {report['versions']['watchkeeper']}", ""]
    for title, columns in (("Detection", DETECTION), ("Quiet", QUIET), ("Delay", DELAY)):
        lines += [f"## {title}", ""]
        head = ["system", "half", *columns]
        body = [[name, half.replace("_", " "), *(show(rows[half]) for show in columns.values())]
                for name, rows in systems.items() for half in halves if half in rows]  # fmt: skip
        lines += [*_table(head, body), ""]
    for half in halves:
        lines += [f"## Recall by fault, {half.replace('_', ' ')}", "", *_faults(systems, half), ""]
    return "\n".join([*lines, *_broken(report)])


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _pair(values: Mapping[str, float] | None) -> str:
    return "-" if values is None else f"{_number(values['median'])} / {_number(values['p90'])}"


def _rate(quiet: Row) -> str:
    if not quiet["samples"]:
        return "-"
    return f"{_number(quiet['per_100k'])} (< {_number(quiet['upper_95'])}; {quiet['alarms']:,} in {quiet['samples']:,})"


DETECTION = {
    "score": lambda r: _percent(r["score"]),
    "recall": lambda r: f"{_percent(r['recall'])} ({r['found']}/{r['truths']})",
    "precision": lambda r: _percent(r["precision"]),
    "F1": lambda r: _percent(r["f1"]),
    "false alarms": lambda r: f"{r['alarms']['false']:,}",
    "duplicates": lambda r: f"{r['alarms']['duplicates']:,}",
    "twins paged": lambda r: f"{r['twins']['paged']}/{r['twins']['runs']}",
    "cause first": lambda r: _percent(r["patterns"]["top1"]),
    "cause in three": lambda r: _percent(r["patterns"]["top3"]),
    "cases (broken)": lambda r: f"{r['cases']:,} ({r['broken']})",
    "CPU min": lambda r: _number(r["seconds"] / 60),
}
QUIET = {
    "healthy: alarms per 100,000 samples": lambda r: _rate(r["healthy"]),
    "null: alarms per 100,000 samples": lambda r: _rate(r["null"]),
    "healthy: notes per 1,000": lambda r: _number(r["healthy"]["notes_per_1000"]),
    "null: notes per 1,000": lambda r: _number(r["null"]["notes_per_1000"]),
}
DELAY = {
    "found": lambda r: f"{r['delay']['found']:,}",
    "missed": lambda r: f"{r['delay']['missed']:,}",
    "samples": lambda r: _pair(r["delay"]["samples"]),
    "steps": lambda r: _pair(r["delay"]["steps"]),
    "minutes": lambda r: _pair(r["delay"]["minutes"]),
    "steps from visible": lambda r: _pair(r["delay"]["from_visible"]),
    "confirmation, steps": lambda r: _pair(r["delay"]["confirmation"]),
    "onset wrong by, steps": lambda r: _pair(r["delay"]["onset_error"]),
}


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---", *("---:" for _ in head[1:])]
    return ["| " + " | ".join(cells) + " |" for cells in (head, rule, *body)]


def _faults(systems: Mapping[str, Mapping[str, Row]], half: str) -> list[str]:
    """A line a fault and amplitude, a column a system: found of truths."""
    found: dict[tuple[str, float], dict[str, str]] = {}
    for name, rows in systems.items():
        for each in rows.get(half, {}).get("by_fault", ()):
            key = each["fault"], -1.0 if each["amplitude"] is None else each["amplitude"]
            found.setdefault(key, {})[name] = f"{each['found']}/{each['truths']}"
    body = [
        [fault, "" if amplitude == -1.0 else f"{amplitude:g}", *(cells.get(name, "") for name in systems)]
        for (fault, amplitude), cells in sorted(found.items())
    ]
    return _table(["fault", "amplitude", *systems], body)


def _broken(report: Mapping[str, Any]) -> list[str]:
    lines = [
        f"- {name}: {each['case']}: {each['error']}" for name, errors in report["errors"].items() for each in errors
    ]
    notes = [f"- {note}" for note in report["notes"]]
    return [*(["## Broken", "", *lines[:50], ""] if lines else []), *(["## Notes", "", *notes, ""] if notes else [])]
