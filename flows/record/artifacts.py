"""What a pass leaves in Prefect of incidents: lines of Markdown that lead to their pages."""

from collections.abc import Sequence
from dataclasses import dataclass

from flows.messages.as_markdown import escape, lines_of
from flows.messages.blocks import Link

MOST = 20


@dataclass(frozen=True)
class Told:
    """One incident: `mark` says what it is (S3 opened), `page` is its address, "" for none."""

    mark: str
    run: str
    title: str
    page: str = ""


def listed(told: Sequence[Told]) -> list[str]:
    """A line an incident, the first MOST of them."""
    lines = [f"- **{escape(each.mark)}** {escape(each.run)}: {_title(each)}" for each in told[:MOST]]
    return lines + ([f"- and {len(told) - MOST} more"] if len(told) > MOST else [])


def _title(each: Told) -> str:
    return lines_of(Link(each.title, each.page))[0] if each.page else escape(each.title)
