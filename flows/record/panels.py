"""One panel of a chart: one metric. Loaded by charts.py on first use (Altair)."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import altair as alt
import numpy as np

from flows.messages.plain import number, plain, step
from flows.record import laddered
from flows.record.axis import Frame, Rows, on_steps
from flows.record.curves import Band, Curve, band_before, onset_of, standing, within
from flows.record.markers import ALARM, BAND, INK, LINE, MUTED, PAPER, onset_interval
from flows.record.scales import is_cut, level_before, near, scale
from flows.record.strip import joined, row_of, rules
from flows.record.traces import medians, points

# at the foot for NaN, at the edge that it left by for an infinity: shape, angle, whether at the top
ODD_LOOKS = {
    "NaN": ("cross", 45, False),
    "Infinity": ("triangle-up", 0, True),
    "-Infinity": ("triangle-down", 0, False),
}
ODD_SIGNS = {"NaN": "×", "Infinity": "▲", "-Infinity": "▼"}
FEW = 60  # samples that are shown as dots, too
MOST_ONSETS = 3
NEAR = 0.015  # of the width: two onsets that the eye takes for one
HOLD = "\u00a0"  # no line is broken behind a sign


def panel(frame: Frame, curve: Curve, height: int, lowest: bool) -> dict[str, Any]:
    """One metric: its range before, abandoned attempts dashed, the run as it stands, the marks, what is no number."""
    stands = standing(curve, frame.attempts)
    onset = onset_of(frame.incident, curve.name)
    band = band_before(curve.step[stands], curve.value[stands], onset, frame.span[1])
    current, odd = points(curve, stands, frame.span, frame.width)
    old, _ = points(curve, ~stands, frame.span, frame.width)
    known = level_before(frame.incident, curve.name)
    shown = near(frame, onset, [*current, *old])
    ladder = [laddered.rows_of(part) for part in within(curve.ladder, frame.span)]
    values, ticks, notes = scale(shown, band, known, ladder)
    if len(shown) < len(current) + len(old) and is_cut(values, current):
        notes.append("earlier values off the chart")

    is_smooth = laddered.is_smooth(current, values)
    smooth = [] if is_smooth else medians(curve, stands, frame.span, frame.width)

    def on(name: str) -> alt.Y:
        return alt.Y(f"{name}:Q", scale=values, axis=alt.Axis(title=None, **ticks))

    def rows(of: Rows) -> Any:
        return on_steps(frame, of, lowest)

    bases = [rows(part) for part in ladder]
    edges, lines = laddered.edges(bases, on), _lines(rows, on("value"), current, smooth)
    layers = [_trouble(frame, lowest), *_uncertain(frame, lowest), *_band(rows, on, band, frame)]
    layers += laddered.area(bases, on)
    # below the samples: a move of one sample lies where it began
    layers.append(rules(rows([row_of(mark) for mark in frame.marks])))
    layers += [*_abandoned(rows, on("value"), old), *_level(rows, on("value"), known, frame)]
    layers += [*edges, *lines] if is_smooth else [lines[0], *edges, *lines[1:]]
    own = _own_onsets(frame, curve.name)
    layers += [*_odd_marks(rows, odd, height), *_moved(rows, own, height)]
    notes += [f"◊{HOLD}moved from {' and '.join(map(step, own))}"] if own else []
    notes += [laddered.note(curve.ladder)] if ladder else []
    notes += ["thick: running median"] if smooth else []
    notes += ["dashed: abandoned attempt"] if old else []
    notes += [f"dotted: {number(known)} before"] if known is not None else []
    notes += [f"{ODD_SIGNS[name]}{HOLD}{name}" for name in sorted({str(row["name"]) for row in odd})]
    return {**joined(layers, frame.width, height), "title": _title(curve, notes, frame.width)}


def _title(curve: Curve, notes: Sequence[str], width: int) -> dict[str, Any]:
    unit = f" ({plain(curve.unit, 20)})" if curve.unit else ""
    lines = _broken(plain(curve.name) + unit, max(24, int(width / 7.4)))
    title: dict[str, Any] = {"text": lines, "anchor": "start", "frame": "group", "offset": 3}
    title |= {"fontSize": 13, "color": INK}
    if notes:
        told = [line.replace(HOLD, " ") for line in wrap(" · ".join(notes), max(int(width / 5.2), 20))]
        title |= {"subtitle": told, "subtitleColor": MUTED, "subtitleFontSize": 11}
    return alt.TitleParams(**title).to_dict(validate=False)


def _broken(name: str, most: int) -> list[str]:
    """A name in one line or two, whole: leaves differ by block and end. Of more than two lines the middle is left out."""
    if len(name) <= most:
        return [name]
    if len(name) > 2 * most:
        name = f"{name[:most]}…{name[1 - most :]}"
    # as late as the first line has room, behind a separator
    at = max((n + 1 for n in range(len(name) - most - 1, most) if name[n] in "/. _…"), default=most)
    return [name[:at].rstrip(), name[at:]]


def _lines(rows: Any, y: alt.Y, current: Rows, smooth: Rows) -> list[Any]:
    """The samples; where they are a hedge, pale, with their median on top."""
    dots = {"size": 22, "color": LINE} if len(current) <= FEW else False
    pale = {"opacity": 0.45, "strokeWidth": 1} if smooth else {"strokeWidth": 1.5}
    lines = [rows(current).mark_line(color=LINE, clip=True, point=dots, **pale)]
    if smooth:
        median = rows(smooth)
        lines += [median.mark_line(color=PAPER, strokeWidth=4, opacity=0.7, clip=True)]
        lines += [median.mark_line(color=LINE, strokeWidth=2, clip=True)]
    return [line.encode(y=y, detail=alt.Detail("part:N")) for line in lines]


def _abandoned(rows: Any, y: alt.Y, old: Rows) -> list[Any]:
    if not old:
        return []
    dashed = {"color": MUTED, "strokeDash": [4, 3], "strokeWidth": 1, "clip": True}
    return [rows(old).mark_line(**dashed).encode(y=y, detail=alt.Detail("part:N"))]


def _level(rows: Any, y: alt.Y, known: float | None, frame: Frame) -> list[Any]:
    if known is None:
        return []
    base = rows([{"step": frame.span[0], "end": frame.span[1], "value": known}])
    return [base.mark_rule(color=INK, strokeDash=[2, 3], strokeWidth=1).encode(y=y, x2=alt.X2("end:Q"))]


def _band(rows: Any, on: Any, band: Band | None, frame: Frame) -> list[Any]:
    """The range before, cut at the left edge of the chart."""
    if band is None:
        return []
    at = np.array([max(float(band.step[0]), frame.span[0]), *band.step[1:]])
    low, high = (np.interp(at, band.step, edge) for edge in (band.low, band.high))
    corners = [{"step": float(s), "value": float(a), "high": float(b)} for s, a, b in zip(at, low, high, strict=True)]
    return [rows(corners).mark_area(color=BAND, opacity=0.45, clip=True).encode(y=on("value"), y2=alt.Y2("high:Q"))]


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


def _own_onsets(frame: Frame, name: str) -> list[float]:
    """Where this metric moved, as far as that can be told apart from where the incident began, and from each other."""
    apart = NEAR * (frame.span[1] - frame.span[0])
    kept = [frame.incident["onset_step"]]
    for at in sorted(f["onset_step"] for f in frame.incident.get("findings", []) if f["metric"] == name):
        if frame.span[0] <= at <= frame.span[1] and min(abs(at - other) for other in kept) > apart:
            kept.append(at)
    return kept[1:][:MOST_ONSETS]


def _moved(rows: Any, own: Sequence[float], height: int) -> list[Any]:
    if not own:
        return []
    base = rows([{"step": at} for at in own]).encode(y=alt.value(height))
    return [base.mark_point(shape="diamond", size=70, fill=PAPER, stroke=ALARM, strokeWidth=1.8, opacity=1)]


def _odd_marks(rows: Any, odd: Rows, height: int) -> list[Any]:
    layers = []
    for name, (shape, angle, top) in ODD_LOOKS.items():
        if mine := [row for row in odd if row["name"] == name]:
            base = rows(mine).encode(y=alt.value(6 if top else height - 6))
            layers.append(base.mark_point(shape=shape, angle=angle, size=55, filled=True, color=ALARM, opacity=1))
    return layers
