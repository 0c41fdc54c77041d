"""Slack's Block Kit. Foreign text stands only in `plain_text` and `rich_text`, where Slack reads no markup."""

import json
from typing import Any

from flows.messages.as_text import as_text
from flows.messages.blocks import Block, Code, Divider, Facts, Header, Image, Link, Message, Paragraph, side_by_side
from flows.messages.plain import cut

MOST_BLOCKS = 45  # Slack takes 50
MOST_TEXT = 2800  # of 3,000 in one text object
MOST_PAGES = 4  # more would meet the rate limit half way, and begin again
SHORTENED = "… shortened: watchkeeper incidents show has the rest"
MOST_TOGETHER = 12_000  # of 13,200 in all blocks of a message, where Slack says `msg_blocks_too_long`


def as_slack(message: Message, *, full: bool = False) -> list[dict[str, Any]]:
    """Payloads for chat.postMessage or a webhook, several when one cannot hold it; `text` is the notification line."""
    blocks = (*message.blocks, *message.more) if full else message.blocks
    shown = [kit for group in side_by_side(blocks) for kit in _row([_kit(block) for block in group])]
    text = escape(cut(as_text(message).split("\n")[0], 300))
    return [{"text": text, "mrkdwn": False, "unfurl_links": False, "blocks": page} for page in _pages(shown)]


def _pages(shown: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """As many blocks a message as Slack takes, by their number and by their text together."""
    pages: list[list[dict[str, Any]]] = [[]]
    held = 0
    for kit in shown:
        size = len(json.dumps(kit, ensure_ascii=False))
        if pages[-1] and (len(pages[-1]) >= MOST_BLOCKS or held + size > MOST_TOGETHER):
            pages.append([])
            held = 0
        pages[-1].append(kit)
        held += size
    if len(pages) > MOST_PAGES:
        pages = [*pages[: MOST_PAGES - 1], _sections([_span(SHORTENED)])]
    return pages


def escape(text: str) -> str:
    """Text for a field that Slack parses: its three control characters as entities."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _row(shown: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """One block's kit, or several links in one section."""
    if len(shown) == 1:
        return shown[0]
    links = [kit["elements"][0]["elements"] for kits in shown for kit in kits]
    return _sections([part for index, each in enumerate(links) for part in ([_span(" | ")] if index else []) + each])


def _kit(block: Block) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    match block:
        case Header(text) if len(text) <= 150:
            shown = [{"type": "header", "text": {"type": "plain_text", "text": text, "emoji": False}}]
        case Header(text):  # cut in a header and whole below it, it would be read twice
            shown = _sections([{**piece, "style": {"bold": True}} for piece in _pieces(text)])
        case Paragraph(text):
            shown = _sections(_pieces(text))
        case Facts(pairs):
            shown = [kit for k, v in pairs for kit in _sections([_span(f"{cut(k, 300)}: ", bold=True), *_pieces(v)])]
        case Code(text):
            shown = [_rich({"type": "rich_text_preformatted", "elements": [piece]}) for piece in _pieces(text)]
        case Link(text, url):
            link = {"type": "link", "url": url, "text": cut(text, 300)}
            shown = _sections([link] if block.safe and len(url) < 3000 else _pieces(f"{text}: {url}"))
        case Divider():
            shown = [{"type": "divider"}]
        case Image():
            pass  # a file of its own: a block would need a public address
    return shown


def _span(text: str, bold: bool = False) -> dict[str, Any]:
    span: dict[str, Any] = {"type": "text", "text": text or " "}
    return {**span, "style": {"bold": True}} if bold else span


def _pieces(text: str) -> list[dict[str, Any]]:
    return [_span(text[start : start + MOST_TEXT]) for start in range(0, max(len(text), 1), MOST_TEXT)]


def _sections(elements: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [_rich({"type": "rich_text_section", "elements": elements})]


def _rich(element: dict[str, Any]) -> dict[str, Any]:
    return {"type": "rich_text", "elements": [element]}
