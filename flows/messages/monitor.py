"""Messages about the watch itself. They never read like news of a run: a stale monitor says nothing of its health."""

from flows.messages.blocks import Facts, Header, Message, Paragraph
from flows.messages.plain import plain

_TITLES = {"stale": "monitor stale", "still": "monitor still stale", "recovered": "monitor recovered"}


def monitor_message(what: str, subject: str, text: str, *, passes: int, minutes: float, thread: str) -> Message:
    """`what` is stale, still or recovered; `subject` the run, channel or store; `text` the failure and its remedy."""
    title = f"watchkeeper: {_TITLES[what]}: {plain(subject, 80)}"
    facts = [("Failure" if what != "recovered" else "It was", plain(text, 600))]
    lasted = f"{passes} pass{'es' if passes != 1 else ''}, {minutes:.0f} min"
    facts.append(("For" if what != "recovered" else "It lasted", lasted))
    end = (
        "The watch reads and judges it again; what happened meanwhile is judged now."
        if what == "recovered"
        else "This is about the watch, not about the training: as long as it lasts, nobody is looking at it. "
        "`watchkeeper doctor` says more."
    )
    severity = "S1" if what == "recovered" else "S3"
    blocks = (Header(title), Facts(tuple(facts)), Paragraph(end))
    return Message(title, severity, subject, "resolved" if what == "recovered" else "opened", thread, blocks)


def test_message(channel: str) -> Message:
    """What `doctor --send-test` sends: nobody may take it for an alert."""
    title = f"watchkeeper: test of channel {plain(channel, 60)}"
    text = "Somebody asked for this with `watchkeeper doctor --send-test`. Nothing has happened to any run."
    return Message(title, "S1", "", "test", f"test-{channel}", (Header(title), Paragraph(text)))
