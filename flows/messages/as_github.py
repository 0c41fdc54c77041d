"""The comment on a tracking issue: the newest word in full, those before it folded away below."""

from collections.abc import Sequence
from html import escape as escape_html

from flows.messages.as_markdown import inert, lines_of
from flows.messages.blocks import Message
from flows.messages.plain import cut

MOST = 65_000  # GitHub takes 65,536 characters


def as_github(message: Message, before: Sequence[Message], mark: str) -> str:
    """`before` are the earlier words of the thread, oldest first; `mark` is a hidden line to know the comment by.

    Too long, it loses the details of the oldest words first, then what follows the chat form, then its end.
    """
    newest, folded = _spaced(message, True), [_folded(each) for each in before]
    if len(mark) + len(newest) > MOST - 100:
        newest = cut(_spaced(message, False), MOST - len(mark) - 100)
    room = MOST - 100 - len(mark) - len(newest)
    kept: list[str] = []
    for each in reversed(folded):
        room -= len(each) + 2
        if room < 0:
            break
        kept.append(each)
    left = [f"…and {len(folded) - len(kept)} earlier"] if len(kept) < len(folded) else []
    return "\n\n".join([mark, newest, *kept, *left])


def _folded(message: Message) -> str:
    """A message behind a line that opens it."""
    title = escape_html(inert(cut(message.title, 300)))
    return f"<details><summary>{title}</summary>\n\n{_spaced(message, True)}\n\n</details>"


def _spaced(message: Message, full: bool) -> str:
    """Markdown with an empty line between the blocks: GitHub takes what follows a list at once as a part of it."""
    blocks = (*message.blocks, *message.more) if full else message.blocks
    return "\n\n".join("\n".join(lines).strip("\n") for block in blocks if (lines := lines_of(block)))
