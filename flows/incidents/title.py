"""One sentence with numbers: what moved, from where to where, since when, for how long, and what moved with it."""

import math
from collections.abc import Sequence

from detectors.finding import Finding
from flows.incidents.grouping import cadence, is_slow, number

LEADING = ("loss", "eval_loss", "learning_rate", "eval_score", "grad_norm", "mfu", "throughput", "step_time")
LOUD = ("nonfinite", "divergence", "schedule", "overfit", "level", "spike", "plateau", "trend", "stall")


def title(findings: Sequence[Finding], resolved_step: float | None, rolled_back: bool = False) -> str:
    """The sentence of an incident; `findings` in canonical order. Missing evidence only makes it shorter."""
    main = leading(findings)
    sentence = headline(main, resolved_step) + _company(main, findings)
    if rolled_back:
        return f"{sentence}; rolled back"
    long_enough = resolved_step is not None and resolved_step - main.onset_step > 8 * cadence(main)
    return f"{sentence}; back by step {steps(resolved_step or 0)}" if long_enough else sentence


def leading(findings: Sequence[Finding]) -> Finding:
    """The finding that names the incident: the most severe, then by role and kind, then the earliest."""
    ranked = sorted(
        enumerate(findings),
        key=lambda pair: (-pair[1].severity, _place(pair[1].role, LEADING), _place(pair[1].kind, LOUD), pair[0]),
    )
    first = ranked[0][1]
    same = [item for item in findings if (item.detector, item.metric, item.episode) == _key(first)]
    return max(same, key=lambda item: (item.severity, item.detected_step))  # its latest word has the latest numbers


def _key(finding: Finding) -> tuple[str, str, str]:
    return finding.detector, finding.metric, finding.episode


def _place(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)


def headline(finding: Finding, resolved_step: float | None = None) -> str:
    """What one finding says: "train/loss jumped from 3.41 to 24.8 at step 165,504 and stayed for 90 samples"."""
    name, at = finding.metric, f"at step {steps(finding.onset_step)}"
    since = f"since step {steps(finding.onset_step)}"
    if finding.kind == "nonfinite":
        value = finding.evidence.get("value", finding.evidence.get("after"))
        return f"{name} became {_nonfinite(value)} {at}"
    if finding.kind == "stall":
        return _stall(finding, at, since)
    if finding.kind == "rewind":
        back = number(finding, "after")
        return f"{name} went back{f' to step {steps(back)}' if back is not None else ''} {at}"
    if finding.kind == "trend":
        return f"{name} {_slope(finding)} {since}"
    if finding.kind in ("plateau", "overfit", "variance", "ladder"):
        return _slow(finding, since)
    return f"{name} {_move(finding)} {at}{_stay(finding, resolved_step)}"


def _stall(finding: Finding, at: str, since: str) -> str:
    before, peak = number(finding, "before"), _to(finding)
    if before is not None and peak is not None and before != peak:
        return f"{finding.metric} stalled {at}: {amount(before)} to {amount(peak)}"
    seconds = number(finding, "seconds")
    if seconds is not None:
        return f"no sample of {finding.metric} for {duration(seconds)} {since}"
    return f"{finding.metric} stalled {at}"


def _slope(finding: Finding) -> str:
    """`slope_per_10k` is a fraction of the level per 10,000 steps."""
    slope, verb = number(finding, "slope_per_10k"), _verb(finding, "has risen", "has fallen", "has drifted")
    if slope is not None:
        return f"{verb} {percent(abs(slope))} per 10,000 steps"
    return f"{verb}{_from_to(finding)}"


def _slow(finding: Finding, since: str) -> str:
    ratio = number(finding, "ratio")
    if finding.kind == "plateau":
        level = number(finding, "after")
        return f"{finding.metric} has not improved{f' from {amount(level)}' if level is not None else ''} {since}"
    if finding.kind == "overfit":
        return f"{finding.metric} climbs{_from_to(finding)} while the training loss falls, {since}"
    if finding.kind == "variance":
        change = f"{amount(ratio)} times its spread" if ratio is not None else "another spread than before"
        return f"{finding.metric} has {change} {since}"
    side = _verb(finding, "above", "below", "off")
    return f"{finding.metric} is {side} what smaller runs predict{_relative(finding)} {since}"


def _move(finding: Finding) -> str:
    if finding.kind == "schedule":
        return f"was set{_from_to(finding)}" if _from_to(finding) else "left its schedule"
    if finding.kind == "invariant" and finding.direction == "none":
        return f"changed, which it should not{_from_to(finding)}"
    verb = _verb(finding, "jumped", "dropped", "moved")
    if finding.kind == "divergence":
        verb = "diverged"
    return f"{verb}{_from_to(finding) or _relative(finding)}"


def _stay(finding: Finding, resolved_step: float | None) -> str:
    out = number(finding, "samples_out")
    if out is not None:
        return " for one sample" if out <= 1 else f" and stayed for {amount(out)} samples"
    return " and has stayed" if finding.kind == "level" and resolved_step is None else ""


def _verb(finding: Finding, up: str, down: str, neither: str) -> str:
    return {"up": up, "down": down}.get(finding.direction, neither)


def _to(finding: Finding) -> float | None:
    order = ("after", "peak") if finding.kind in ("level", "schedule", "invariant") else ("peak", "after")
    return next((value for key in order if (value := number(finding, key)) is not None), None)


def _from_to(finding: Finding) -> str:
    before, to = number(finding, "before"), _to(finding)
    if before is None or to is None:
        return f" to {amount(to)}" if to is not None else ""
    left, right = amount(before), amount(to)
    if left == right and before != to:
        left, right = f"{before:.6g}", f"{to:.6g}"
    return f" from {left} to {right}"


def _relative(finding: Finding) -> str:
    if not math.isfinite(finding.magnitude) or finding.magnitude == 0:
        return ""
    if finding.unit == "log":
        return f" by {percent(abs(math.expm1(min(finding.magnitude, 700.0))))}"
    if finding.unit == "fraction":
        return f" by {percent(abs(finding.magnitude))}"
    return f" by {amount(abs(finding.magnitude))} {finding.unit}".rstrip()


def _company(main: Finding, findings: Sequence[Finding]) -> str:
    """The first other metric by name with its factor and lead, the rest as a count."""
    others: dict[str, Finding] = {}
    for item in sorted(findings, key=lambda item: (_place(item.role, LEADING), item.onset_step, item.metric)):
        if item.metric != main.metric:
            others.setdefault(item.metric, item)
    if not others:
        return ""
    first = next(iter(others.values()))
    rest = len(others) - 1
    more = f", and {rest} other metric{'s' if rest > 1 else ''} moved with it" if rest else ""
    return f", with {first.metric}{_factor(first)}{_lead(main, first)}{more}"


def _factor(finding: Finding) -> str:
    before, to = number(finding, "before"), _to(finding)
    if finding.kind == "nonfinite":
        return " not finite"
    if finding.kind == "trend" or before is None or to is None or before <= 0 or to <= 0:
        return _verb(finding, " up", " down", "")
    return f" x{amount(to / before)}"


def _lead(main: Finding, other: Finding) -> str:
    gap = main.onset_step - other.onset_step
    if gap == 0 or is_slow(main) or is_slow(other):
        return ""
    return f" {steps(abs(gap))} step{'s' if abs(gap) != 1 else ''} {'earlier' if gap > 0 else 'later'}"


def _nonfinite(value: object) -> str:
    if isinstance(value, float) and math.isinf(value):
        return "infinite"
    return {"NaN": "NaN", "Infinity": "infinite", "-Infinity": "infinite", "inf": "infinite"}.get(str(value), "NaN")


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
