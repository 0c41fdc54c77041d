"""What is drawn of one metric's samples: lines, their running median, what is no number. Arrays in, rows out."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flows.incidents.course import WINDOW
from flows.record.curves import Curve, thin

Rows = list[dict[str, Any]]
Span = tuple[float, float]
DENSE = 200  # samples from which on noise is a hedge, in which a small change of level cannot be seen


def points(curve: Curve, chosen: NDArray[np.bool_], span: Span, pixels: int) -> tuple[Rows, Rows]:
    """Rows to draw as lines (a new part after every value that is no number), and the values that are none."""
    rows: Rows = []
    odd: dict[tuple[str, int], dict[str, Any]] = {}
    for attempt in np.unique(curve.attempt[chosen]):
        at, value = _in_order(curve, chosen, attempt)
        part = np.cumsum(~np.isfinite(value))
        kept = thin(at, value, *span, max(pixels // 2, 1))
        rows += [{"step": float(at[i]), "value": float(value[i]), "part": f"{attempt}.{part[i]}"} for i in kept]
        for i in np.flatnonzero(~np.isfinite(value) & (at >= span[0]) & (at <= span[1])):
            name = "NaN" if math.isnan(value[i]) else "Infinity" if value[i] > 0 else "-Infinity"
            bucket = int((at[i] - span[0]) / max(span[1] - span[0], 1e-300) * pixels / 4)
            odd.setdefault((name, bucket), {"step": float(at[i]), "name": name})
    return rows, list(odd.values())


def medians(curve: Curve, chosen: NDArray[np.bool_], span: Span, pixels: int) -> Rows:
    """The running median of each attempt's finite samples, over WINDOW of them or a sixtieth of what is shown.

    Empty with fewer than DENSE samples in `span`, which can be followed by eye. A median keeps a step where it is.
    """
    inside = chosen & np.isfinite(curve.value) & (curve.step >= span[0]) & (curve.step <= span[1])
    if inside.sum() < DENSE:
        return []
    width = max(WINDOW, int(inside.sum()) // 60) | 1  # odd, so that each has a middle
    rows: Rows = []
    for attempt in np.unique(curve.attempt[inside]):
        at, value = _in_order(curve, inside, attempt)
        if len(value) < width:
            continue
        middles = np.unique(np.linspace(0, len(value) - 1, min(len(value), pixels // 3)).astype(np.int64))
        around = middles[:, None] + np.arange(-(width // 2), width // 2 + 1)
        known = (around >= 0) & (around < len(value))
        smooth = np.nanmedian(np.where(known, value[np.clip(around, 0, len(value) - 1)], np.nan), axis=1)
        rows += [
            {"step": float(at[i]), "value": float(v), "part": str(attempt)}
            for i, v in zip(middles, smooth, strict=True)
        ]
    return rows


def _in_order(curve: Curve, chosen: NDArray[np.bool_], attempt: int) -> tuple[Any, Any]:
    mine = chosen & (curve.attempt == attempt)
    order = np.argsort(curve.step[mine], kind="stable")
    return curve.step[mine][order], curve.value[mine][order]
