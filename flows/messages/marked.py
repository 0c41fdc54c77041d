"""A message that says what has changed since it was written: in front of its sentence, where no channel cuts it off."""

from collections.abc import Sequence
from dataclasses import replace

from flows.messages.blocks import Header, Message
from flows.messages.plain import plain


def marked(message: Message, marks: Sequence[str]) -> Message:
    """The message with `[...]` before its title; as it was without marks."""
    if not marks:
        return message
    front = f"[{plain('; '.join(marks), 160)}] "
    first, *rest = message.blocks
    head = Header(front + first.text) if isinstance(first, Header) else first
    return replace(message, title=front + message.title, blocks=(head, *rest))
