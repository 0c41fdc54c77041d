"""What a pass leaves in Prefect: Markdown and table rows. Text only; the flow file makes the artifact."""

from collections.abc import Sequence
from typing import Any

from flows.messages.as_markdown import escape
from flows.messages.document import RunDoc
from flows.messages.plain import plain, step
from flows.record.verdict import ranked, verdict

MOST_INCIDENTS = 20


def markdown(runs: Sequence[RunDoc], errors: Sequence[str] = ()) -> str:
    """The state of every run in a few lines; failures of the pass itself come first."""
    lines = ["# watchkeeper"]
    lines += [f"- **Failed:** {escape(error)}" for error in errors]
    for run in runs:
        lines += ["", f"## {escape(run['run'])}", "", escape(verdict(run)), ""]
        shown = ranked(run.get("incidents", []))
        lines += [f"- **{i['severity']} {i.get('status', '')}** {escape(i['title'])}" for i in shown[:MOST_INCIDENTS]]
        lines += [f"- and {len(shown) - MOST_INCIDENTS} more"] if len(shown) > MOST_INCIDENTS else []
        missing = run.get("not_checked", [])
        lines += ["", f"Not checked: {len(missing)}; up to step {step(run.get('last_step'))}."]
    return "\n".join(lines) + "\n"


def rows(runs: Sequence[RunDoc]) -> list[dict[str, Any]]:
    """A row an incident (or one that says that there is none) for a table artifact."""
    table: list[dict[str, Any]] = []
    for run in runs:
        name = plain(run["run"], 120)
        found = ranked(run.get("incidents", []))
        if not found:
            table.append(_row(name, "", "", "nothing found", run.get("last_step"), None, ""))
        for i in found:
            title = plain(i["title"], 300)
            table.append(
                _row(name, i["severity"], i.get("status", ""), title, i["onset_step"], i.get("resolved_step"), i["id"])
            )
    return table


def _row(
    run: str, severity: str, status: str, title: str, onset: float | None, resolved: float | None, identity: str
) -> dict[str, Any]:
    return {
        "run": run,
        "severity": severity,
        "status": status,
        "what": title,
        "step": step(onset),
        "resolved": "" if resolved is None else step(resolved),
        "id": identity,
    }
