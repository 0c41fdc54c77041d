"""An incident and what stands around it -> one message, the twelve fields of an alert in their order.

The chat form has at most 12 lines: the sentence, the decision, the explanation, the chart, what moved, the
hypotheses, the reference, one check, the first option, the way back, the limits, the history. The rest is `more`.
"""

from collections.abc import Sequence

from flows.messages import facts
from flows.messages.blocks import Block, Code, Divider, Facts, Header, Image, Message, Paragraph
from flows.messages.document import IncidentDoc, severity_number
from flows.messages.facts import URGENCY, Context
from flows.messages.plain import plain, step

CHART_NAME = "chart.png"
TOP_INCIDENTS = 6
_WORDS = {
    "reopened": "Open again: ",
    "escalated": "Worse: ",
    "lowered": "Less severe: ",
    "resolved": "Resolved: ",
    "still": "Still open: ",
    "acknowledged": "In hand: ",
    "followed": "How it goes on: ",
    "worked": "It helped: ",
    "failed": "It did not help: ",
}
COURSE = frozenset({"followed", "worked", "failed"})  # words of the stage that looks how an incident goes on


def compose(run: str, incident: IncidentDoc, transition: str, context: Context | None = None) -> Message:
    """The message that tells of one transition: opened, escalated, reopened or resolved."""
    context = context or Context()
    title = headline(run, incident, transition)
    lines = _lines(incident, context, transition)
    chart = Image(CHART_NAME, f"{incident['title']} (chart of the metrics around step {step(incident['onset_step'])})")
    query = Code(facts.evidence_query(run, incident))
    blocks: list[Block] = [Header(title), Facts(tuple(lines)), query, _history(incident, context), chart]
    return Message(
        title=title,
        severity=incident["severity"],
        run=run,
        transition=transition,
        thread=incident["id"],
        blocks=tuple(blocks),
        more=tuple(_more(run, incident, context)) if transition not in ("resolved", *COURSE) else (),
        incidents=(incident["id"],),
        over=(incident["id"],) if transition == "resolved" or _over(incident) else (),
    )


def compose_all(run: str, told: Sequence[tuple[IncidentDoc, str]], context: Context | None = None) -> list[Message]:
    """All transitions of one pass as messages: up to three one by one, more as ONE message with a count and the worst.

    The bigger the disaster, the fewer and the surer the messages. Nothing told gives no message.
    """
    told = _once(told)
    if len(told) <= 3:
        return [compose(run, incident, transition, context) for incident, transition in told]
    ordered = sorted(told, key=lambda t: (_over(t[0]), -severity_number(t[0]["severity"]), t[0]["onset_step"]))
    worst, transition = ordered[0]
    title = f"{worst['severity']} {plain(run, 60)}: {_count([incident for incident, _ in ordered])}"
    rows = tuple((_mark(what, i), f"{plain(i['title'], 200)} (from {step(i['onset_step'])})") for i, what in ordered)
    left = len(rows) - TOP_INCIDENTS
    blocks: list[Block] = [Header(title)]
    if not _over(worst):
        needed = ("Needed", _decision(worst, context or Context(), transition))
        blocks.append(Facts((needed, ("Option", facts.option(worst)))))
    blocks.append(Facts(rows[:TOP_INCIDENTS]))
    if left > 0:
        blocks.append(Paragraph(f"and {left} more: watchkeeper incidents list"))
    blocks.append(Image(CHART_NAME, f"{worst['title']} (chart of the worst of them)"))
    return [
        Message(
            title=title,
            severity=worst["severity"],
            run=run,
            transition=transition,
            thread=worst["id"],
            blocks=tuple(blocks),
            more=(Divider(), Facts(rows[TOP_INCIDENTS:])) if left > 0 else (),
            incidents=tuple(incident["id"] for incident, _ in ordered),
            over=tuple(incident["id"] for incident, what in ordered if what == "resolved" or _over(incident)),
        )
    ]


def headline(run: str, incident: IncidentDoc, transition: str) -> str:
    """The one sentence: severity, run, what moved."""
    return f"{incident['severity']} {plain(run, 60)}: {_WORDS.get(transition, '')}{plain(incident['title'], 240)}"


def _once(told: Sequence[tuple[IncidentDoc, str]]) -> list[tuple[IncidentDoc, str]]:
    """Each incident once, as it stands at the end of the pass: what opened and ended within it is no two messages."""
    last: dict[str, tuple[IncidentDoc, str]] = {}
    for incident, what in told:
        before = last.get(incident["id"], (incident, what))[1]
        last[incident["id"]] = (incident, what if before == "resolved" else before)
    return list(last.values())


def _over(incident: IncidentDoc) -> bool:
    return incident.get("status") == "resolved"


def _count(incidents: Sequence[IncidentDoc]) -> str:
    going = [incident for incident in incidents if not _over(incident)]
    pages = sum(severity_number(incident["severity"]) >= 3 for incident in going)
    parts = [f"{len(going)} open" if going else "", f"{pages} to page" if pages else ""]
    parts.append(f"{len(incidents) - len(going)} over by now" if len(going) < len(incidents) else "")
    return f"{len(incidents)} incidents at once: " + ", ".join(part for part in parts if part)


def _mark(transition: str, incident: IncidentDoc) -> str:
    words = [incident["severity"], *([transition] if transition not in ("opened", "resolved") else [])]
    return " ".join([*words, *(["over"] if _over(incident) else [])])


def _lines(incident: IncidentDoc, context: Context, transition: str) -> list[tuple[str, str]]:
    if transition in COURSE:
        return _course(incident, transition)
    return _resolved(incident, context) if transition == "resolved" else _alarm(incident, context, transition)


def _course(incident: IncidentDoc, transition: str) -> list[tuple[str, str]]:
    """What became of it: the newest word, what was seen before that, and what to do where it is no better."""
    log = [each for each in incident.get("operations", []) if each["what"] in COURSE]
    lines = [("Now", plain(each["why"], 240)) for each in log[-1:]]
    lines += [("Before", plain(each["why"], 240)) for each in log[-3:-1]]
    lines.append(("Had moved", facts.moved(incident.get("findings", []))))
    return lines if transition == "worked" else [*lines, ("Option", facts.option(incident))]


def _alarm(incident: IncidentDoc, context: Context, transition: str) -> list[tuple[str, str]]:
    lines = [
        ("Needed", _decision(incident, context, transition)),
        ("Explained by", facts.explained(incident, context.events)),
        ("Moved", f"{facts.moved(incident.get('findings', []))}; not moved: {facts.stayed(incident, context.metrics)}"),
        ("Likely", facts.hypotheses(incident)),
    ]
    if context.reference:
        lines.append(("Reference", plain(context.reference, 200)))
    lines.append(("Option", facts.option(incident)))
    if severity_number(incident["severity"]) >= 2:
        lines.append(("Way back", facts.rollback(incident, context.events, context.tokens_per_step)))
    limits = facts.limits(incident, context)
    return [*lines, ("Limits", limits)] if limits else lines


def _resolved(incident: IncidentDoc, context: Context) -> list[tuple[str, str]]:
    onset, resolved = incident["onset_step"], incident.get("resolved_step")
    lasted = "" if resolved is None else f", {step(resolved - onset)} steps after it began at {step(onset)}"
    by_hand = facts.by_hand(incident)
    return [
        ("Closed", by_hand) if by_hand else ("Back", f"since step {step(resolved)}{lasted}"),
        ("Had moved", facts.moved(incident.get("findings", []))),
        ("Explained by", facts.explained(incident, context.events)),
    ]


def _decision(incident: IncidentDoc, context: Context, transition: str) -> str:
    told = f"{URGENCY[incident['severity']]}; began at step {step(incident['onset_step'])}"
    told += f", seen at {step(incident['detected_step'])}"
    if _over(incident):
        told += f", over by step {step(incident.get('resolved_step'))}"
    if context.decide_by_step is not None:
        told += f"; decide before step {step(context.decide_by_step)}"
    past = incident.get("severity_history", [])
    if transition == "escalated" and len(past) > 1:
        told += f"; was {past[-2]['severity']}, {past[-1]['severity']} since step {step(past[-1]['step'])}"
    return told


def _history(incident: IncidentDoc, context: Context) -> Facts:
    told = [f"incident {incident['id']}"]
    told += [plain(context.similar, 120)] if context.similar else []
    owner = context.owner or facts.acknowledged_by(incident)
    told += [f"in charge: {plain(owner, 60)}"] if owner else []
    return Facts((("Record", "; ".join(told)),))


def _more(run: str, incident: IncidentDoc, context: Context) -> list[Block]:
    """What the chat form had no room for."""
    blocks: list[Block] = [Divider()]
    for index in range(1, len(incident.get("suggestions", []))):
        blocks.append(Facts(((f"Option {index + 1}", facts.option(incident, index)),)))
    blocks += [Code(each["bound"].strip()) for each in incident.get("suggestions", []) if each.get("bound")]
    every = [
        (
            plain(f["metric"], 80) or "the run",
            f"{facts.movement(f)}; onset {step(f['onset_step'])}, seen {step(f['detected_step'])}",
        )
        for f in incident.get("findings", [])[:40]
    ]
    blocks += [Facts(tuple(every))] if every else []
    unchecked = tuple((plain(check, 60), plain(why, 160)) for check, why in context.not_checked[:20])
    if unchecked:
        blocks += [Paragraph("Not checked:"), Facts(unchecked)]
    blocks.append(Code(f"watchkeeper incidents show {plain(incident['id'], 40)}"))
    if incident.get("findings"):
        blocks.append(Code(facts.replay_command(run, incident)))
    return blocks
