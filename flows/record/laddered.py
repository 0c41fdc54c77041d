"""What smaller runs predict, in a panel: a band with dash-dotted edges. Loaded on first use (Altair)."""

from collections.abc import Callable, Sequence
from typing import Any

import altair as alt
import numpy as np

from flows.record.axis import Rows
from flows.record.curves import Predicted
from flows.record.markers import LADDER, PAPER

EDGE = [7, 3, 1, 3]  # as no other line
FAR = 2.0  # ranges of the samples: a band that reaches further is cut, so that they can still be seen


def rows_of(part: Predicted) -> Rows:
    """The rows that all layers of a part are drawn from."""
    columns = zip(part.step, part.low, part.centre, part.high, strict=True)
    return [{"step": float(s), "value": float(a), "centre": float(c), "high": float(b)} for s, a, c, b in columns]


def reach(drawn: Sequence[Rows], low: float, high: float) -> tuple[float, float]:
    """The scale with the band on it, as far as the samples between `low` and `high` can still be seen beside it."""
    rows = [row for part in drawn for row in part]
    if not rows:
        return low, high
    least, most = min(row["value"] for row in rows), max(row["high"] for row in rows)
    nearest = max(row["value"] for row in rows), min(row["high"] for row in rows)
    room = FAR * (high - low)
    # an edge is shown wherever the band is, however far that lies from the samples
    return min(low, max(least, min(low - room, nearest[1]))), max(high, min(most, max(high + room, nearest[0])))


def area(bases: Sequence[Any], y: Callable[[str], alt.Y]) -> list[Any]:
    """The tint of the band, below the samples; `bases` are charts of its rows, `y` the axis of a column."""
    look: dict[str, Any] = {"color": LADDER, "opacity": 0.16, "clip": True}
    return [base.mark_area(**look).encode(y=y("value"), y2=alt.Y2("high:Q")) for base in bases]


def edges(bases: Sequence[Any], y: Callable[[str], alt.Y]) -> list[Any]:
    """Its edges and, thinner, its middle, with a halo by which they are seen in front of noise."""
    layers = []
    for base in bases:
        for name, thick in (("value", 1.5), ("high", 1.5), ("centre", 1.0)):
            halo = base.mark_line(color=PAPER, strokeWidth=thick + 2, opacity=0.75, clip=True)
            line = base.mark_line(color=LADDER, strokeDash=EDGE, strokeWidth=thick, clip=True)
            layers += [each.encode(y=y(name)) for each in (halo, line)]
    return layers


def is_smooth(rows: Rows, scale: alt.Scale) -> bool:
    """Whether a line of samples is a line to the eye, which no band may hide, and no hedge, which would hide the band."""
    values = np.array([row["value"] for row in rows])
    low, high = scale.domain
    return len(values) < 3 or float(np.median(np.abs(np.diff(values)))) < 0.05 * (high - low)


def note(parts: Sequence[Predicted]) -> str:
    """How to read it."""
    blocks = max(part.blocks for part in parts)
    of = f"90 % of means of {blocks}" if blocks > 1 else "90 %"
    return f"dash-dotted: expected from the ladder ({of})"
