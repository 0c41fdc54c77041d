"""Escaped text and tables for pages."""

from collections.abc import Sequence
from html import escape

from flows.messages.plain import cut, number, plain


def text(value: object, limit: int = 0) -> str:
    """Text for HTML: one line, escaped; numbers as people read them."""
    shown = "" if value is None else number(value, 4) if isinstance(value, int | float) else plain(value)
    return escape(cut(shown, limit))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str, numbers: Sequence[int] = ()) -> str:
    """A table that scrolls by itself on a narrow screen; cells are HTML already. Without rows nothing."""
    if not rows:
        return ""
    number_class = [' class="number"' if index in numbers else "" for index in range(len(head))]
    top = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(head, number_class, strict=True))
    body = "\n".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row, number_class, strict=True)) + "</tr>"
        for row in rows
    )
    label = escape(caption)
    return (
        f'<div class="scroll" role="region" aria-label="{label}" tabindex="0"><table>'
        f"<thead><tr>{top}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )
