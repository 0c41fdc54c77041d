"""Numbers as people read them."""

import math


def amount(value: float) -> str:
    """Three significant digits: 3.41, 24.8, 0.0123, 1,650, 1.7e-05."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}" if abs(value) < 1e9 else f"{value:.3g}"
    return f"{value:.3g}"


def percent(fraction: float) -> str:
    """18 %, 4.2 %, 0.31 %."""
    value = 100 * fraction
    return f"{value:,.0f} %" if value >= 10 else f"{value:.2g} %"


def steps(value: float) -> str:
    """165,504 for whole steps, the number as it is for fractions."""
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e15 else f"{value:.6g}"


def duration(seconds: float) -> str:
    """45 s, 12 min, 3.4 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
