"""What people decided about an incident, and what came of it, in words. HTML as text."""

from flows.messages import facts
from flows.messages.document import IncidentDoc
from flows.messages.plain import step
from flows.record.tables import text
from flows.record.timeline import SAID


def decision(incident: IncidentDoc) -> str:
    """What people said and did, oldest first; that nobody did is said, too."""
    done = [each for each in incident.get("operations", []) if each["what"] in SAID]
    if not done:
        return "<p>Nobody has put on record what was decided.</p>"
    return "<ul>" + "".join(f"<li>{text(facts.operation(each), 500)}</li>" for each in done) + "</ul>"


def outcome(incident: IncidentDoc) -> str:
    """How it went on: its severities, and whether, when and by whom it was over."""
    history = incident.get("severity_history", [])
    told = [f"{text(each['severity'], 4)} from step {step(each['step'])}" for each in history]
    grew = f"<p>{', then '.join(told)}.</p>" if told else ""
    end = incident.get("resolved_step")
    if incident.get("status") != "resolved":
        return f"{grew}<p>It is still {text(incident.get('status', 'open'), 20)}.</p>"
    who = facts.by_hand(incident)
    how = f"Resolved {text(who, 300)}." if who else "It ended by itself: what had moved came back."
    lasted = f" It lasted {step(end - incident['onset_step'])} steps." if end is not None else ""
    return f"{grew}<p>{how}{lasted}</p>"
