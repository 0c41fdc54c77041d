"""A console on which what a log calls its metrics cannot move the cursor, hide text or colour it."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

# control characters as pictures of themselves; line breaks and tabs stay
_PICTURES = {c: 0x2400 + c for c in range(0x20) if c not in (0x09, 0x0A)}
_PICTURES |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


class Terminal(Console):
    """Rich's console; every text that it is given shows its control characters."""

    def render(self, *what: Any, **how: Any) -> Iterable[Segment]:
        """The pieces of what is shown; those that control the terminal are Rich's own."""
        for piece in super().render(*what, **how):
            yield piece if piece.control else Segment(piece.text.translate(_PICTURES), piece.style)
