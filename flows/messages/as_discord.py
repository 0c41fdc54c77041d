"""Discord: a line that a phone shows, and an embed with the rest. Every payload forbids all mentions."""

from typing import Any

from flows.messages.as_markdown import as_markdown, escape
from flows.messages.blocks import Message
from flows.messages.plain import cut
from flows.messages.split import split

MOST_DESCRIPTION = 4000  # of 4,096; the embeds of one message hold 6,000 together
_COLOURS = {"S4": 0x8B0000, "S3": 0xB3261E, "S2": 0xA15C00}
NOBODY: dict[str, list[str]] = {"parse": []}


def as_discord(message: Message) -> list[dict[str, Any]]:
    """Payloads for a webhook, several when one cannot hold it."""
    colour = _COLOURS.get(message.severity, 0x4A5568)
    pieces = split(cut(_body(message), 3 * MOST_DESCRIPTION), MOST_DESCRIPTION)  # more would meet the rate limit
    first, *more = [
        {"embeds": [{"color": colour, "description": piece}], "allowed_mentions": NOBODY} for piece in pieces
    ]
    return [{"content": headline(message), **first}, *more]


def headline(message: Message) -> str:
    """The sentence in bold, in what one message holds."""
    return f"**{escape(cut(message.title, 600))}**"  # escaped it may be three times as long


def _body(message: Message) -> str:
    title, _, rest = as_markdown(message).partition("\n")
    return rest or title
