"""What was too small to be told at once, in one message."""

from collections.abc import Sequence

from flows.messages.blocks import Block, Divider, Facts, Header, Message, Paragraph
from flows.messages.document import IncidentDoc, severity_number
from flows.messages.plain import plain, step

SHOWN = 8  # the chat form has at most 12 lines


def compose_digest(run: str, incidents: Sequence[IncidentDoc]) -> Message:
    """One line an incident, those that go on first, the rest below the chat form; `incidents` holds at least one."""
    ordered = sorted(
        incidents, key=lambda i: (i["status"] == "resolved", -severity_number(i["severity"]), i["onset_step"])
    )
    going = sum(each["status"] != "resolved" for each in ordered)
    count = f"{len(ordered)} note{'s' * (len(ordered) != 1)}"
    worst = max((each["severity"] for each in ordered), key=severity_number)
    title = f"{worst} {plain(run, 60)}: digest: {count}, {going} of them open"
    rows = tuple(
        (
            f"{i['severity']} {'over' if i['status'] == 'resolved' else 'open'}",
            f"{plain(i['title'], 200)} ({_since(i)})",
        )
        for i in ordered
    )
    blocks: list[Block] = [Header(title), Facts(rows[:SHOWN])]
    if len(rows) > SHOWN:
        blocks.append(Paragraph(f"and {len(rows) - SHOWN} more: watchkeeper incidents list --status all"))
    more = (Divider(), Facts(rows[SHOWN:])) if len(rows) > SHOWN else ()
    return Message(title, worst, run, "digest", "digest", tuple(blocks), more)


def _since(incident: IncidentDoc) -> str:
    return f"incident {incident['id']}, from {step(incident['onset_step'])}"
