"""The one line at the top: what was found in a run, in words."""

from collections.abc import Sequence

from flows.messages.document import SEVERITIES, IncidentDoc, RunDoc, severity_number
from flows.messages.plain import plain, step


def worst(incidents: Sequence[IncidentDoc]) -> str:
    """The highest severity, "S0" where there is none."""
    return SEVERITIES[max((severity_number(i["severity"]) for i in incidents), default=0)]


def ranked(incidents: Sequence[IncidentDoc]) -> list[IncidentDoc]:
    """Open before resolved, severe before mild, then by onset."""
    return sorted(incidents, key=_rank)


def _rank(incident: IncidentDoc) -> tuple[bool, int, float, str]:
    over = incident.get("status") == "resolved"
    return over, -severity_number(incident["severity"]), incident["onset_step"], incident["id"]


def verdict(run: RunDoc) -> str:
    """One sentence on one run; never green without what it does not cover."""
    told = [i for i in ranked(run.get("incidents", [])) if severity_number(i["severity"]) >= 2]
    going = [i for i in told if i.get("status") != "resolved"]
    missing = len(run.get("not_checked", []))
    unsaid = f" Checks that could not be made: {missing}." if missing else ""
    if not run.get("samples", 1):
        return "Nothing to judge: no samples were read."
    if going:
        more = f" ({len(going) - 1} more open)" if len(going) > 1 else ""
        return f"{going[0]['severity']}: {plain(going[0]['title'], 300)}{more}"
    until = f"up to step {step(run.get('last_step'))}"
    if told:
        first = f"the worst: {told[0]['severity']}, {plain(told[0]['title'], 240)}"
        return f"Nothing is open {until}; {len(told)} earlier {'incident' if len(told) == 1 else 'incidents'}, {first}"
    return f"Nothing that needs anybody {until}.{unsaid}"
