"""Text that is safe to show anywhere, and numbers and steps as people write them."""

import math
import re
import unicodedata

# categories that can move a cursor, hide text or reverse its direction: control, format, surrogate, private, unassigned
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_ANSI = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])")


def plain(text: object, limit: int = 0) -> str:
    """One line of visible text: no control, bidi or line characters, white space folded, cut at `limit` with an …."""
    visible = _ANSI.sub("", str(text))
    visible = "".join(" " if unicodedata.category(c) in _HIDDEN else c for c in visible)
    return cut(" ".join(visible.split()), limit)


def plain_lines(text: object, limit: int = 0) -> str:
    """As `plain`, but line breaks stay (for code)."""
    return cut("\n".join(plain(line) for line in str(text).splitlines()), limit)


def cut(text: str, limit: int) -> str:
    """At most `limit` characters (0 = any), the loss shown by an ellipsis."""
    return text if not limit or len(text) <= limit else text[: max(limit - 1, 0)].rstrip() + "…"


def quiet(text: str) -> str:
    """`@everyone` and `<!channel>` without their power: a word joiner after the sign that calls people."""
    return re.sub(r"(?<![\w.])@(?=\w)|@(?=everyone|here|channel)|<(?=[!@#])", lambda m: m.group() + "\u2060", text)


def number(value: object, digits: int = 3) -> str:
    """A value with `digits` significant digits; NaN and infinities by name, thousands with a comma."""
    if not isinstance(value, int | float):
        return plain(value, 40)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        shown = f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"
        return shown if "e" not in shown else f"{value:,.0f}"
    return f"{value:.{digits}g}"


def step(value: object) -> str:
    """A step as the source counts it: 81716 -> "81,716", 0.5 stays 0.5."""
    if isinstance(value, int | float) and math.isfinite(value):
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.6g}"
    return "unknown" if value is None else plain(value, 40)


def magnitude(value: float, unit: str) -> str:
    """A finding's magnitude in words: log ratios and fractions as percent or a factor, all else with its unit."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return number(value)
    ratio = math.exp(min(value, 700)) if unit == "log" else 1 + value if unit == "fraction" else None
    if ratio is None:
        return f"{number(value)} {plain(unit, 20)}".strip()
    if ratio >= 2 or 0 < ratio <= 0.5:
        return f"×{number(ratio)}"
    return f"{(ratio - 1) * 100:+.2g} %".replace("-", "−")
