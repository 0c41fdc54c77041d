"""Plain text: for terminals, SMS-like services, and the text part of a mail."""

from flows.messages.blocks import Block, Code, Divider, Facts, Header, Image, Link, Message, Paragraph, side_by_side
from flows.messages.plain import quiet


def as_text(message: Message, *, full: bool = False) -> str:
    """The chat form, or with `full` everything, a line each. Calls nobody: @ and <! lose their power."""
    blocks = (*message.blocks, *message.more) if full else message.blocks
    return "\n".join(line for group in side_by_side(blocks) for line in _row([_lines(block) for block in group]))


def _row(shown: list[list[str]]) -> list[str]:
    """One block's lines, or several links in one."""
    return shown[0] if len(shown) == 1 else [" | ".join(line for lines in shown for line in lines)]


def _lines(block: Block) -> list[str]:
    match block:
        case Header(text) | Paragraph(text):
            return [quiet(text)]
        case Facts(pairs):
            return [quiet(f"{label}: {value}") for label, value in pairs]
        case Code(text):
            return ["  " + quiet(line) for line in text.split("\n")]
        case Link(text, url):
            return [f"{quiet(text)}: {quiet(url)}"]
        case Divider():
            return ["----"]
        case Image():
            return []  # the attachment is its own line
