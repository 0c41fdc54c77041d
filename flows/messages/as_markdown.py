"""Markdown (CommonMark; Discord and Mattermost read the same): for chats and Prefect artifacts."""

import re

from flows.messages.blocks import Block, Code, Divider, Facts, Header, Image, Link, Message, Paragraph, side_by_side
from flows.messages.plain import plain, quiet

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&$])")
_AT_START = re.compile(r"^(\s*)([-+=]|\d+[.)])")


def as_markdown(message: Message, *, full: bool = False) -> str:
    """The chat form, or with `full` everything."""
    blocks = (*message.blocks, *message.more) if full else message.blocks
    return "\n".join(line for group in side_by_side(blocks) for line in _row([lines_of(block) for block in group]))


def _row(shown: list[list[str]]) -> list[str]:
    """One block's lines, or several links in one."""
    return shown[0] if len(shown) == 1 else [" | ".join(line for lines in shown for line in lines)]


def escape(text: str) -> str:
    """One line that Markdown shows as it stands and that calls nobody."""
    escaped = _SPECIAL.sub(r"\\\1", plain(text))
    escaped = _AT_START.sub(lambda m: f"{m[1]}{m[2][:-1]}\\{m[2][-1]}", escaped)
    return inert(escaped).replace("\\<", "\\<\u2060")


def inert(text: str) -> str:
    """What chats and GitHub make of plain text is not made of it: no link, no issue, no call."""
    text = re.sub(r"(?i)#(?=\d)|GH-(?=\d)", lambda m: f"{m[0]}\u2060", text)
    return quiet(re.sub(r"(?i)\b(https?|ftp)://", lambda m: f"{m[1]}:\u2060//", text))


def code(text: str) -> list[str]:
    """Code, inline when it is one line; its marks are longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    lines = quiet(text).split("\n")
    if len(lines) > 1:
        mark = "`" * max(3, longest + 1)
        return [mark, *lines, mark]
    mark, pad = "`" * (longest + 1), " " if "`" in text else ""
    return [f"{mark}{pad}{lines[0]}{pad}{mark}"] if text.strip() else []


def lines_of(block: Block) -> list[str]:
    """One block, a line each; nothing for a picture, which travels as an attachment."""
    shown: list[str] = []
    match block:
        case Header(text):
            shown = [f"**{escape(text)}**"]
        case Paragraph(text):
            shown = [escape(text)]
        case Facts(pairs):
            shown = [f"- **{escape(label)}:** {escape(value)}" for label, value in pairs]
        case Code(text):
            shown = code(text)
        case Link(text, url):
            target = re.sub(r"[^\w:/?#@!$&*+,;=%.~-]", lambda m: "".join(f"%{b:02X}" for b in m[0].encode()), url)
            shown = [f"[{escape(text)}](<{target}>)" if block.safe else f"{escape(text)}: {escape(url)}"]
        case Divider():
            shown = ["", "---", ""]
        case Image():
            pass  # travels as an attachment
    return shown
