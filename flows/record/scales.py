"""The value axis of a panel: what it goes by, where it ends, how its numbers are written. Rows in, axis out."""

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from flows.messages.document import IncidentDoc
from flows.record import laddered
from flows.record.axis import Frame, Rows
from flows.record.curves import Band


def near(frame: Frame, onset: float, rows: Rows) -> Rows:
    """The rows that the scale goes by: not the steep start of a run, beside which a slow move cannot be seen."""
    first = onset - min(max(frame.span[1] - onset, 0.0), max(onset - frame.span[0], 0.0) / 2)
    late = [row for row in rows if row["step"] >= first]
    return late if len(late) >= 3 else rows


def is_cut(scale: alt.Scale, rows: Rows) -> bool:
    """Whether rows lie off the scale."""
    low, high = scale.domain
    return any(not low <= row["value"] <= high for row in rows)


def level_before(incident: IncidentDoc, name: str) -> float | None:
    """The level that a detector measured its change from, which may lie long before the chart."""
    for finding in incident.get("findings", []):
        level = finding.get("evidence", {}).get("before")
        of_level = finding["kind"] != "variance" and finding.get("detector") != "rates"  # else a spread, or a count
        if finding["metric"] == name and of_level and isinstance(level, int | float) and math.isfinite(level):
            return float(level)
    return None


def scale(
    rows: Rows, band: Band | None, known: float | None, ladder: Sequence[Rows]
) -> tuple[alt.Scale, dict[str, Any], list[str]]:
    """Linear around what is there; logarithmic when all is positive and the top is 30 times the middle.

    With it the axis' ticks (powers of ten on the latter, all others only clutter) and what to tell the reader.
    """
    values = np.array([row["value"] for row in rows] or [0.0, 1.0])
    low, high, middle = float(values.min()), float(values.max()), float(np.median(values))
    if low > 0 and high > 30 * middle:
        powers = [10.0**k for k in range(math.ceil(math.log10(low / 1.1)), math.floor(math.log10(high * 1.1)) + 1)]
        style = ",.4~f" if not powers or (powers[0] >= 1e-4 and powers[-1] < 1e6) else "~e"
        looks = {"values": powers, "format": style}
        return alt.Scale(type="log", domain=[low / 1.1, high * 1.1], nice=False), looks, ["log scale"]
    if known is not None:
        low, high = min(low, known), max(high, known)
    if band is not None:
        low, high = min(low, float(band.low[1:].min())), max(high, float(band.high[1:].max()))
    low, high = laddered.reach(ladder, low, high)
    pad = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    low, high = low - pad, high + pad
    return alt.Scale(domain=[low, high], nice=False, zero=False), {"tickCount": 4, "format": _style(low, high)}, []


def _style(low: float, high: float) -> str:
    """Enough digits that neighbouring ticks differ: 81,716 and 81,718 are not both 81.7k."""
    top = max(abs(low), abs(high), 1e-300)
    apart = math.ceil(math.log10(top)) - math.floor(math.log10(max((high - low) / 5, top * 1e-9)))
    return (
        f".{max(3, apart)}~s"
        if top >= 1e4 and apart <= 4
        else f",.{max(4, apart)}~g"
        if top < 1e9
        else f".{max(3, apart)}~s"
    )
