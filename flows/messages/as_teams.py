"""An Adaptive Card for a Teams webhook (Workflows). Foreign text stands only in text runs, which read no Markdown."""

import json
from typing import Any

from flows.messages.blocks import Block, Code, Divider, Facts, Header, Image, Link, Message, Paragraph
from flows.messages.plain import cut

MOST_BYTES = 27_000  # Teams takes 28 KB
_COLOURS = {"S4": "attention", "S3": "attention", "S2": "warning"}
_TEXT_LIMITS = (4000, 1000, 300, 100)


def as_teams(message: Message) -> dict[str, Any]:
    """One payload. What is too long is shortened, text by text, then from its end."""
    for limit in _TEXT_LIMITS:
        payload = _payload(message, message.blocks, limit)
        if _fits(payload):
            return payload
    kept = list(message.blocks)
    while not _fits(payload) and len(kept) > 1:
        kept.pop()
        payload = _payload(message, [*kept, Paragraph("… shortened: watchkeeper incidents show has the rest")], 100)
    return payload


def _fits(payload: dict[str, Any]) -> bool:
    return len(json.dumps(payload)) <= MOST_BYTES


def _payload(message: Message, blocks: Any, limit: int) -> dict[str, Any]:
    links = [block for block in blocks if isinstance(block, Link) and block.safe and len(block.url) <= 2000][:4]
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "fallbackText": cut(message.title, 200),
        "body": [part for block in blocks for part in _parts(block, message, limit)],
    }
    if links:
        card["actions"] = [{"type": "Action.OpenUrl", "title": cut(each.text, 60), "url": each.url} for each in links]
    kind = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": kind, "contentUrl": None, "content": card}]}


def _parts(block: Block, message: Message, limit: int) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    match block:
        case Header(text):
            colour = _COLOURS.get(message.severity, "default")
            shown = [_line(_run(text, limit, weight="bolder", size="medium", color=colour))]
        case Paragraph(text):
            shown = [_line(_run(text, limit))]
        case Facts(pairs):
            shown = [_line(_run(f"{k}: ", limit, weight="bolder"), _run(v, limit)) for k, v in pairs]
        case Code(text):
            shown = [_line(_run(line, limit, fontType="monospace", size="small")) for line in text.split("\n")]
        case Link(text, url):
            shown = [] if block.safe else [_line(_run(f"{text}: {url}", limit))]  # a safe one is a button
        case Divider():
            shown = [{**_line(_run(" ", limit)), "separator": True}]
        case Image():
            pass  # a card takes pictures by public address only
    return shown


def _line(*runs: dict[str, Any]) -> dict[str, Any]:
    return {"type": "RichTextBlock", "spacing": "small", "inlines": list(runs)}


def _run(text: str, limit: int, **style: str) -> dict[str, Any]:
    return {"type": "TextRun", "text": cut(text, limit) or " ", **style}
