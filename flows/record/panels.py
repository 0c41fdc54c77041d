"""The parts of a chart: the strip of labels on top, one panel a metric. Loaded by charts.py on first use (Altair)."""

import math
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from flows.messages.document import IncidentDoc
from flows.messages.plain import number, plain
from flows.record import laddered
from flows.record.axis import Frame, Rows, on_steps
from flows.record.curves import Band, Curve, band_before, onset_of, standing, thin, within
from flows.record.markers import ALARM, BAND, DASH, INK, LINE, MUTED, PAPER, TONE, Marker, onset_interval

ROW = 15  # height of one label
# at the foot for NaN, at the edge that it left by for an infinity: shape, angle, whether at the top
ODD_LOOKS = {
    "NaN": ("cross", 45, False),
    "Infinity": ("triangle-up", 0, True),
    "-Infinity": ("triangle-down", 0, False),
}


def strip(frame: Frame) -> dict[str, Any]:
    """A row a marker with its label on the side where there is room: labels never lie on each other."""
    foot = len(frame.marks) * ROW + 6
    rows = [_label(frame, mark, row) for row, mark in enumerate(frame.marks)]
    base = on_steps(frame, rows)
    across = alt.Scale(domain=[0, foot], range=[0, foot])
    rule = _rules(base).encode(y=alt.Y("top:Q", scale=across, axis=None), y2=alt.Y2("foot:Q"))
    words = base.encode(text=alt.Text("label:N"), y=alt.Y("middle:Q", scale=across, axis=None))
    look: dict[str, Any] = {key: alt.ExprRef(f"datum.{key}") for key in ("align", "dx", "fontWeight")}
    look |= {"baseline": "middle", "fontSize": 12}
    # a halo first, so that no line runs through the words
    halo = words.mark_text(**look, color=PAPER, stroke=PAPER, strokeWidth=4)
    layers = [rule, halo, words.mark_text(**look).encode(color=alt.Color("tone:N", scale=None))]
    return {**_joined(layers, frame.width, foot), "view": {"stroke": None}}


def _joined(layers: Sequence[Any], width: int, height: int) -> dict[str, Any]:
    specs = [layer.to_dict(validate=False, context={"top_level": False}) for layer in layers]
    return {"layer": specs, "width": width, "height": height}


def _label(frame: Frame, mark: Marker, row: int) -> dict[str, Any]:
    place = (mark.step - frame.span[0]) / max(frame.span[1] - frame.span[0], 1e-300) * frame.width
    left = place + 7 * len(mark.label) > frame.width + 8 and place > frame.width / 2
    return {
        **_mark(mark),
        "label": mark.label,
        "top": row * ROW + 2,
        "middle": row * ROW + 8,
        "foot": len(frame.marks) * ROW + 6,
        "align": "right" if left else "left",
        "dx": -5 if left else 5,
        "fontWeight": "normal" if mark.look in ("event", "attempt") else "bold",
    }


def _mark(mark: Marker) -> dict[str, Any]:
    return {"step": mark.step, "tone": TONE[mark.look], "dash": DASH[mark.look]}


def _rules(base: Any) -> Any:
    """Vertical lines, each with the tone and dash of its row."""
    drawn = base.mark_rule(strokeWidth=1.6, strokeDash=alt.ExprRef("datum.dash"))
    return drawn.encode(color=alt.Color("tone:N", scale=None))


def panel(frame: Frame, curve: Curve, height: int, lowest: bool) -> dict[str, Any]:
    """One metric: its range before, abandoned attempts dashed, the run as it stands, the marks, what is no number."""
    stands = standing(curve, frame.attempts)
    onset = onset_of(frame.incident, curve.name)
    band = band_before(curve.step[stands], curve.value[stands], onset, frame.span[1])
    current, odd = points(curve, stands, frame.span, frame.width)
    old, _ = points(curve, ~stands, frame.span, frame.width)
    known = _level_before(frame.incident, curve.name)
    shown = _near(frame, onset, [*current, *old])
    ladder = [laddered.rows_of(part) for part in within(curve.ladder, frame.span)]
    scale, ticks, notes = _scale(shown, band, known, ladder)
    notes += (
        ["earlier values off the chart"] if len(shown) < len(current) + len(old) and _is_cut(scale, current) else []
    )

    def on(name: str) -> alt.Y:
        return alt.Y(f"{name}:Q", scale=scale, axis=alt.Axis(title=None, **ticks))

    y = on("value")
    layers = [_trouble(frame, lowest), *_uncertain(frame, lowest)]
    if band is not None:
        layers.append(on_steps(frame, _corners(band, frame), lowest).mark_area(color=BAND, opacity=0.45, clip=True))
        layers[-1] = layers[-1].encode(y=y, y2=alt.Y2("high:Q"))
    bases = [on_steps(frame, rows, lowest) for rows in ladder]
    layers += laddered.area(bases, on)
    notes += [laddered.note(curve.ladder)] if ladder else []
    if old:
        notes.append("dashed: abandoned attempt")
        dashed = {"color": MUTED, "strokeDash": [4, 3], "strokeWidth": 1, "clip": True}
        layers.append(on_steps(frame, old, lowest).mark_line(**dashed).encode(y=y, detail=alt.Detail("part:N")))
    if known is not None:
        level = on_steps(frame, [{"step": frame.span[0], "end": frame.span[1], "value": known}], lowest).encode(y=y)
        layers.append(level.mark_rule(color=INK, strokeDash=[2, 3], strokeWidth=1).encode(x2=alt.X2("end:Q")))
        notes.append(f"dotted: {number(known)} before")
    points_too = {"size": 22, "color": LINE} if len(current) <= 60 else False
    line = on_steps(frame, current, lowest).mark_line(color=LINE, strokeWidth=1.5, clip=True, point=points_too)
    samples = line.encode(y=y, detail=alt.Detail("part:N"))
    edges = laddered.edges(bases, on)
    layers += [*edges, samples] if laddered.is_smooth(current, scale) else [samples, *edges]
    layers.append(_rules(on_steps(frame, [_mark(mark) for mark in frame.marks], lowest)))
    layers += _odd_marks(frame, odd, height, lowest)
    notes += [f"{'×' if name == 'NaN' else '▲' if name == 'Infinity' else '▼'} {name}" for name in _names(odd)]
    text = plain(curve.name, max(24, int(frame.width / 7.6))) + (f" ({plain(curve.unit, 20)})" if curve.unit else "")
    title: dict[str, Any] = {"text": text, "anchor": "start", "frame": "group", "offset": 3}
    title |= {"fontSize": 13, "color": INK}
    if notes:
        told = wrap(" · ".join(notes), max(int(frame.width / 5.2), 20))
        title |= {"subtitle": told, "subtitleColor": MUTED, "subtitleFontSize": 11}
    return {**_joined(layers, frame.width, height), "title": alt.TitleParams(**title).to_dict(validate=False)}


def points(curve: Curve, chosen: NDArray[np.bool_], span: tuple[float, float], pixels: int) -> tuple[Rows, Rows]:
    """Rows to draw as lines (a new part after every value that is no number), and the values that are none."""
    rows: Rows = []
    odd: dict[tuple[str, int], dict[str, Any]] = {}
    for attempt in np.unique(curve.attempt[chosen]):
        mine = chosen & (curve.attempt == attempt)
        order = np.argsort(curve.step[mine], kind="stable")
        at, value = curve.step[mine][order], curve.value[mine][order]
        part = np.cumsum(~np.isfinite(value))
        kept = thin(at, value, *span, max(pixels // 2, 1))
        rows += [{"step": float(at[i]), "value": float(value[i]), "part": f"{attempt}.{part[i]}"} for i in kept]
        for i in np.flatnonzero(~np.isfinite(value) & (at >= span[0]) & (at <= span[1])):
            name = "NaN" if math.isnan(value[i]) else "Infinity" if value[i] > 0 else "-Infinity"
            bucket = int((at[i] - span[0]) / max(span[1] - span[0], 1e-300) * pixels / 4)
            odd.setdefault((name, bucket), {"step": float(at[i]), "name": name})
    return rows, list(odd.values())


def _near(frame: Frame, onset: float, rows: Rows) -> Rows:
    """The rows that the scale goes by: not the steep start of a run, beside which a slow move cannot be seen."""
    first = onset - min(max(frame.span[1] - onset, 0.0), max(onset - frame.span[0], 0.0) / 2)
    near = [row for row in rows if row["step"] >= first]
    return near if len(near) >= 3 else rows


def _is_cut(scale: alt.Scale, rows: Rows) -> bool:
    low, high = scale.domain
    return any(not low <= row["value"] <= high for row in rows)


def _level_before(incident: IncidentDoc, name: str) -> float | None:
    """The level that a detector measured its change from, which may lie long before the chart."""
    for finding in incident.get("findings", []):
        level = finding.get("evidence", {}).get("before")
        of_level = finding["kind"] != "variance" and finding.get("detector") != "rates"  # else a spread, or a count
        if finding["metric"] == name and of_level and isinstance(level, int | float) and math.isfinite(level):
            return float(level)
    return None


def _scale(
    rows: Rows, band: Band | None, known: float | None, ladder: Sequence[Rows]
) -> tuple[alt.Scale, dict[str, Any], list[str]]:
    """Linear around what is there; logarithmic when all is positive and the top is 30 times the middle.

    With it the axis' ticks (powers of ten on the latter, all others only clutter) and what to tell the reader.
    """
    values = np.array([row["value"] for row in rows] or [0.0, 1.0])
    low, high, middle = float(values.min()), float(values.max()), float(np.median(values))
    if low > 0 and high > 30 * middle:
        powers = [10.0**k for k in range(math.ceil(math.log10(low / 1.1)), math.floor(math.log10(high * 1.1)) + 1)]
        return (
            alt.Scale(type="log", domain=[low / 1.1, high * 1.1], nice=False),
            {"values": powers, "format": ".3~g"},
            ["log scale"],
        )
    if known is not None:
        low, high = min(low, known), max(high, known)
    if band is not None:
        low, high = min(low, float(band.low[1:].min())), max(high, float(band.high[1:].max()))
    low, high = laddered.reach(ladder, low, high)
    style = ".3~s" if max(abs(low), abs(high)) >= 1e4 else ".4~g"
    pad = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return alt.Scale(domain=[low - pad, high + pad], nice=False, zero=False), {"tickCount": 4, "format": style}, []


def _corners(band: Band, frame: Frame) -> Rows:
    """The band cut at the left edge of the chart."""
    first = max(float(band.step[0]), frame.span[0])
    at = np.array([first, *band.step[1:]])
    low, high = (np.interp(at, band.step, edge) for edge in (band.low, band.high))
    return [{"step": float(s), "value": float(a), "high": float(b)} for s, a, b in zip(at, low, high, strict=True)]


def _trouble(frame: Frame, axis: bool) -> Any:
    """A tint from the onset to the resolution, or to the edge while it is open."""
    end = frame.incident.get("resolved_step")
    stop = frame.span[1] if end is None else min(end, frame.span[1])
    rows = [{"step": max(frame.incident["onset_step"], frame.span[0]), "end": stop}]
    return on_steps(frame, rows, axis).mark_rect(color=ALARM, opacity=0.07).encode(x2=alt.X2("end:Q"))


def _uncertain(frame: Frame, axis: bool) -> list[Any]:
    """A darker tint over the steps in which it may have begun, where that is an estimate."""
    between = onset_interval(frame.incident)
    if between is None:
        return []
    first, last = max(between[0], frame.span[0]), min(between[1], frame.span[1])
    if last - first < 0.01 * (frame.span[1] - frame.span[0]):
        return []
    rows = [{"step": first, "end": last}]
    return [on_steps(frame, rows, axis).mark_rect(color=ALARM, opacity=0.13).encode(x2=alt.X2("end:Q"))]


def _odd_marks(frame: Frame, odd: Rows, height: int, axis: bool) -> list[Any]:
    layers = []
    for name, (shape, angle, top) in ODD_LOOKS.items():
        rows = [row for row in odd if row["name"] == name]
        if rows:
            base = on_steps(frame, rows, axis).encode(y=alt.value(6 if top else height - 6))
            layers.append(base.mark_point(shape=shape, angle=angle, size=55, filled=True, color=ALARM, opacity=1))
    return layers


def _names(odd: Sequence[dict[str, Any]]) -> list[str]:
    return sorted({str(row["name"]) for row in odd})
