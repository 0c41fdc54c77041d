"""One chart of an incident: one Altair definition for PNG (chats, mail) and SVG (pages).

Every line is told apart by its dash and its label, never by its colour alone, so that it reads in grey too.
"""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from flows.messages.document import IncidentDoc
from flows.messages.plain import plain
from flows.record.curves import Curve, known_until, window
from flows.record.markers import GRID, INK, MUTED, PAPER, markers, onset_interval
from flows.records import Attempt, Event

MOST_PANELS = 4
# drawn in the font that vl-convert brings along (a list makes measuring each word a third slower); pages name its like, too
FONT = "Liberation Sans"
FONTS = f"{FONT}, Arial, Helvetica, DejaVu Sans, sans-serif"


def incident_chart(
    incident: IncidentDoc,
    curves: Sequence[Curve],
    events: Sequence[Event] = (),
    attempts: Sequence[Attempt] = (),
    width: int = 480,
    titled: bool = True,
) -> dict[str, Any]:
    """The first curve large, up to three more below it on the same steps, about `width` pixels wide: a Vega-Lite spec.

    `titled` puts the incident's sentence on top. Raises ValueError without a curve: there is nothing to draw.
    """
    import altair as alt

    from flows.record.axis import Frame
    from flows.record.panels import panel
    from flows.record.strip import strip

    if not curves:
        raise ValueError(f"incident {incident['id']}: no samples to draw")
    span = window(incident, curves[0])
    shown = curves[:MOST_PANELS]
    marks = tuple(markers(incident, events, attempts, span, known_until(shown)))
    frame = Frame(incident, tuple(attempts), marks, span, width - 74)
    # Altair holds each part against its schema as it is made (measured: half of the time); a test does so with the whole
    with alt.utils.schemapi.debug_mode(False):
        panels = [strip(frame)]
        for index, curve in enumerate(shown):
            panels.append(panel(frame, curve, height=150 if index == 0 else 84, lowest=index == len(shown) - 1))
        return {
            "$schema": alt.SCHEMA_URL,
            "title": alt.TitleParams(**_look(incident, shown, width, titled)).to_dict(validate=False),
            "background": PAPER,
            "padding": {"left": 8, "top": 8, "right": 8, "bottom": 6},
            "spacing": 6,
            "vconcat": panels,
            "resolve": {"scale": {"x": "shared"}},
            "config": _config(alt),
            "datasets": frame.data,
        }


def _look(incident: IncidentDoc, shown: Sequence[Curve], width: int, titled: bool) -> dict[str, Any]:
    """The title with the notes below it, or the notes alone."""
    moved = {f["metric"] for f in incident.get("findings", []) if f["metric"]} - {curve.name for curve in shown}
    notes = [line for note in _notes(incident, len(moved)) for line in wrap(note, max(int(width / 6.6), 20))]
    look: dict[str, Any] = {"anchor": "start", "frame": "bounds", "offset": 8}
    if not titled:
        return look | {"text": notes[1:], "fontSize": 12, "fontWeight": "normal", "color": MUTED}
    text = wrap(plain(incident["title"], 220), max(int(width / 7.8), 20))[:4]
    look |= {"text": text, "fontSize": 15, "color": INK}
    return look | {"subtitle": notes, "subtitleFontSize": 12, "subtitleColor": MUTED}


def _config(alt: Any) -> dict[str, Any]:
    axis = alt.AxisConfig(
        labelFontSize=11,
        titleFontSize=12,
        titleFontWeight="normal",
        labelColor=INK,
        titleColor=INK,
        gridColor=GRID,
        domainColor=MUTED,
        tickColor=MUTED,
    )
    config: dict[str, Any] = alt.Config(font=FONT, view=alt.ViewConfig(stroke=GRID), axis=axis).to_dict(validate=False)
    return config


def _notes(incident: IncidentDoc, left_out: int) -> list[str]:
    """Severity and status, then how to read the chart."""
    more = f"; {left_out} more metrics moved" if left_out > 1 else "; one more metric moved" if left_out == 1 else ""
    how = "grey band: 5–95 % range before it began"
    how += "; darker: where it may have begun" if onset_interval(incident) is not None else ""
    return [f"{incident['severity']}, {incident['status']}", how + more]


def png(chart: dict[str, Any], scale: float = 2.0) -> bytes:
    """The chart as a PNG with `scale` dots a pixel (480 px wide -> 960 dots)."""
    import vl_convert

    picture: bytes = vl_convert.vegalite_to_png(chart, vl_version=_version(), scale=scale)
    return picture


def svg(chart: dict[str, Any]) -> str:
    """The chart as one SVG element, its text still text."""
    import vl_convert

    drawing: str = vl_convert.vegalite_to_svg(chart, vl_version=_version())
    return drawing.replace(f'font-family="{FONT}"', f'font-family="{FONTS}"')


def _version() -> str:
    import altair as alt

    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
