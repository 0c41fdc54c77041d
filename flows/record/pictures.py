"""A chart as it stands in a page: inline SVG that takes the page's theme, once for phones and once for wide screens.

Inline SVG and no Vega bundle: 50 kB instead of 0.9 MB, no script (so the page may forbid all of them), text that can be
read, searched and scaled, and one picture for light and dark.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from flows.messages.document import IncidentDoc
from flows.messages.plain import plain, step
from flows.record.charts import incident_chart, svg
from flows.record.curves import Curve
from flows.record.markers import ALARM, BAND, GRID, INK, LADDER, LINE, MUTED, PAPER
from flows.records import Attempt, Event

NARROW, WIDE = 370, 900
_THEME = {
    INK: "ink",
    MUTED: "muted",
    LINE: "line",
    ALARM: "alarm",
    BAND: "band",
    GRID: "grid",
    PAPER: "paper",
    LADDER: "ladder",
}


@dataclass(frozen=True)
class Picture:
    """One chart, drawn twice; `alt` says in words what it shows."""

    narrow: str
    wide: str
    alt: str


def draw(
    incident: IncidentDoc,
    curves: Sequence[Curve],
    events: Sequence[Event] = (),
    attempts: Sequence[Attempt] = (),
) -> Picture:
    """The picture of one incident. Raises ValueError without a curve."""
    alt = describe(incident, curves)
    charts = {w: incident_chart(incident, curves, events, attempts, width=w, titled=False) for w in (NARROW, WIDE)}
    narrow, wide = (inline(svg(chart), f"{incident['id']}-{width}", alt) for width, chart in charts.items())
    return Picture(narrow, wide, alt)


def describe(incident: IncidentDoc, curves: Sequence[Curve]) -> str:
    """What the chart shows, for who cannot see it."""
    names = ", ".join(plain(curve.name, 60) for curve in curves[:4])
    end = incident.get("resolved_step")
    told = f"Line charts of {names} over the steps. It began at step {step(incident['onset_step'])}"
    told += f" and was seen at step {step(incident['detected_step'])}"
    told += f"; resolved at step {step(end)}." if end is not None else "; it is still open."
    banded = ", ".join(plain(curve.name, 60) for curve in curves[:4] if curve.ladder)
    return told + (f" The band that is expected from the ladder is drawn for {banded}." if banded else "")


def inline(drawing: str, identity: str, alt: str) -> str:
    """An SVG for the middle of a page: scaling, themed, named, and with ids that are its own."""
    own = "p" + re.sub(r"[^A-Za-z0-9]", "-", identity) + "-"
    # Vega counts its ids on for as long as the process lives: number them anew
    names = {name: f"{own}{index}" for index, name in enumerate(dict.fromkeys(re.findall(r'\bid="([^"]+)"', drawing)))}
    drawing = re.sub(r'\bid="([^"]+)"', lambda m: f'id="{names[m[1]]}"', drawing)
    drawing = re.sub(r'(url\(#|href="#)([^")]+)', lambda m: f"{m[1]}{names.get(m[2], m[2])}", drawing)
    # inside an image nothing has a role of its own
    drawing = re.sub(r' (?:role|aria-[a-z]+)="[^"]*"', "", drawing)
    for colour, name in _THEME.items():
        drawing = drawing.replace(f'"{colour}"', f'"var(--{name})"')
    head = re.search(r'<svg[^>]*viewBox="([^"]+)"[^>]*>', drawing)
    if head is None:
        raise ValueError("no SVG with a viewBox")
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{head[1]}" role="img" aria-label="{escape(alt)}">'
    return start + drawing[head.end() :]
