"""The step axis that all panels of one chart share. Loaded on first use (Altair)."""

from dataclasses import dataclass, field
from typing import Any

import altair as alt

from flows.messages.document import IncidentDoc
from flows.record.markers import Marker
from flows.records import Attempt

Rows = list[dict[str, Any]]
APART = 8  # pixels between labels, or the first two of a narrow chart touch


@dataclass(frozen=True)
class Frame:
    """What all panels of one chart share: `span` in steps, `width` in pixels.

    `data` gathers the rows of every layer; layers only name theirs. Altair copies and checks everything again at each
    join of layers (measured: four fifths of the time), so layers are joined as plain specs here, and channels are given
    as objects: Altair looks for the class of a bare "field:Q" in all of its schema (measured: half of the rest).
    """

    incident: IncidentDoc
    attempts: tuple[Attempt, ...]
    marks: tuple[Marker, ...]
    span: tuple[float, float]
    width: int
    data: dict[str, Rows] = field(default_factory=dict)


def on_steps(frame: Frame, rows: Rows, axis: bool = False) -> Any:
    """A chart of `rows` on the common step axis; every layer of a panel must want the same axis, else Vega drops it."""
    ticks = (
        alt.Axis(format=",.12~r", title="step", tickCount=5, grid=False, labelOverlap="greedy", labelSeparation=APART)
        if axis
        else None
    )
    x = alt.X("step:Q", scale=alt.Scale(domain=list(frame.span), nice=False, zero=False), axis=ticks)
    name = f"rows{len(frame.data)}"
    frame.data[name] = rows
    return alt.Chart(alt.NamedData(name=name)).encode(x=x)
