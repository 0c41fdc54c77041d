"""The rules that mark steps, and the strip of their labels on top of a chart. Loaded on first use (Altair)."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from flows.messages.plain import cut
from flows.record.axis import Frame, on_steps
from flows.record.markers import DASH, PAPER, TONE, Marker

ROW = 15  # height of one label
BOLD, SLIM = 6.6, 6.1  # pixels of a letter, at the most


def strip(frame: Frame) -> dict[str, Any]:
    """A row a marker with its label on the side where there is room: labels never lie on each other."""
    foot = len(frame.marks) * ROW + 6
    rows = [_label(frame, mark, row) for row, mark in enumerate(frame.marks)]
    base = on_steps(frame, rows)
    across = alt.Scale(domain=[0, foot], range=[0, foot])
    rule = rules(base).encode(y=alt.Y("top:Q", scale=across, axis=None), y2=alt.Y2("foot:Q"))
    words = base.encode(text=alt.Text("label:N"), y=alt.Y("middle:Q", scale=across, axis=None))
    look: dict[str, Any] = {key: alt.ExprRef(f"datum.{key}") for key in ("align", "dx", "fontWeight")}
    look |= {"baseline": "middle", "fontSize": 12}
    # a halo first, so that no line runs through the words
    halo = words.mark_text(**look, color=PAPER, stroke=PAPER, strokeWidth=4)
    layers = [rule, halo, words.mark_text(**look).encode(color=alt.Color("tone:N", scale=None))]
    return {**joined(layers, frame.width, foot), "view": {"stroke": None}}


def joined(layers: Sequence[Any], width: int, height: int) -> dict[str, Any]:
    """One view of several layers, the first at the bottom."""
    specs = [layer.to_dict(validate=False, context={"top_level": False}) for layer in layers]
    return {"layer": specs, "width": width, "height": height}


def row_of(mark: Marker) -> dict[str, Any]:
    """The row that a rule is drawn from."""
    return {"step": mark.step, "tone": TONE[mark.look], "dash": DASH[mark.look]}


def rules(base: Any) -> Any:
    """Vertical lines, each with the tone and dash of its row."""
    drawn = base.mark_rule(strokeWidth=1.6, strokeDash=alt.ExprRef("datum.dash"))
    return drawn.encode(color=alt.Color("tone:N", scale=None))


def _label(frame: Frame, mark: Marker, row: int) -> dict[str, Any]:
    place = (mark.step - frame.span[0]) / max(frame.span[1] - frame.span[0], 1e-300) * frame.width
    slim = mark.look in ("event", "attempt", "ladder")
    letter = SLIM if slim else BOLD
    right = frame.width + 8 - place - 5
    left = letter * len(mark.label) > right and place > frame.width / 2
    return {
        **row_of(mark),
        "label": cut(mark.label, max(int((place - 5 if left else right) / letter), 12)),
        "top": row * ROW + 2,
        "middle": row * ROW + 8,
        "foot": len(frame.marks) * ROW + 6,
        "align": "right" if left else "left",
        "dx": -5 if left else 5,
        "fontWeight": "normal" if slim else "bold",
    }
