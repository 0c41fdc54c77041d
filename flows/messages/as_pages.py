"""What a pager shows: labelled facts, links, and the whole text, each within a limit. Plain, and calling nobody."""

from flows.messages.as_text import as_text
from flows.messages.blocks import Facts, Link, Message
from flows.messages.plain import cut, quiet

MOST_FACTS = 20


def title_of(message: Message, limit: int) -> str:
    """The sentence."""
    return cut(quiet(message.title), limit)


def facts_of(message: Message, limit: int) -> dict[str, str]:
    """The facts of the chat form by label, in their order; a label that comes again is numbered."""
    told: dict[str, str] = {}
    for block in message.blocks:
        for label, value in block.pairs if isinstance(block, Facts) else ():
            name = cut(quiet(label), 100)
            same = sum(each == name or each.startswith(f"{name} (") for each in told)
            told[f"{name} ({same + 1})" if same else name] = cut(quiet(value), limit)
    return dict(list(told.items())[:MOST_FACTS])


def links_of(message: Message) -> list[tuple[str, str]]:
    """(text, address) of what may be clicked."""
    return [(each.text, each.url) for each in message.blocks if isinstance(each, Link) and each.safe]


def text_of(message: Message, limit: int) -> str:
    """Everything, cut at `limit`."""
    return cut(as_text(message, full=True), limit)
