"""What one finding says: what moved, from where to where, since when, for how long."""

import math

from detectors.finding import Finding, number
from flows.incidents.held import held_against
from flows.incidents.incident import OWN
from flows.incidents.reach import SLOW
from flows.incidents.written import amount, duration, percent, steps

HALF = 0.5  # of a growth: who has less does not carry it


def headline(finding: Finding, resolved_step: float | None = None) -> str:
    """What one finding says: "train/loss jumped from 3.41 to 24.8 at step 165,504 and stayed for 90 samples"."""
    name, at = finding.metric or "the run", f"at step {steps(finding.onset_step)}"
    since = f"since step {steps(finding.onset_step)}"
    beside = _own(finding, name, since) if finding.detector in OWN else held_against(finding, name)
    if beside is not None:
        return beside
    if finding.role == "learning_rate" and number(finding, "after") == 0:
        return f"{name} is 0 {since}: nothing is learned"
    events, usual = number(finding, "events"), number(finding, "usual")
    if events is not None and usual is not None:
        return _counted(finding, name, events, usual)
    if finding.kind in SLOW:
        return _slowly(finding, name, since)
    sentences = {
        "nonfinite": f"became {_nonfinite(finding.evidence.get('value', finding.evidence.get('after')))} {at}",
        "rewind": f"went back to step {steps(finding.onset_step)}",
        "invariant": f"{_invariant(finding)} {at}",
    }
    if finding.kind in ("stall", "replay"):
        return _replayed(finding, name) if finding.kind == "replay" else _stall(finding, name, resolved_step)
    return f"{name} {sentences.get(finding.kind) or f'{_move(finding, resolved_step)} {at}{_stay(finding, resolved_step)}'}"


def _counted(finding: Finding, name: str, events: float, usual: float) -> str:
    span, rule = f"{number(finding, 'of_samples') or 0:,.0f}", f"{amount(usual)} times as a rule"
    if finding.detector == "restarts":
        return f"{name} restarted {amount(events)} times in {span} steps of work, {rule}"
    verb, since = "spiked" if finding.role == "loss" else "counted", f"since step {steps(finding.onset_step)}"
    return f"{name} {verb} {amount(events)} times in {span} samples {since}, {rule}"


def _replayed(finding: Finding, name: str) -> str:
    """ "train/loss is 0.53 % higher in the steps done again from 1,400 on than in the first pass (64 compared)"."""
    compared = f"({number(finding, 'pairs') or 0:,.0f} compared)"
    since = f"from {steps(finding.onset_step)} on"
    if finding.direction == "none":
        return f"{name} shows other data in the steps done again {since} {compared}"
    size = percent(abs(math.expm1(finding.magnitude)))
    more = "higher" if finding.direction == "up" else "lower"
    return f"{name} is {size} {more} in the steps done again {since} than in the first pass {compared}"


def _own(finding: Finding, name: str, since: str) -> str:
    """What a user asked for, and the reason in the user's own words."""
    value, why = number(finding, "after"), str(finding.evidence.get("why") or "")
    evidence, shown = finding.evidence, f" ({value:.6g})" if value is not None else ""
    if evidence.get("title"):
        what = str(evidence["title"])
    elif "bound" in evidence:
        what = f"{name} is {evidence['side']} {evidence['limit']:.6g}{shown} {since}"
    else:
        what = f"check {evidence.get('check', '')} found {name}{shown} {since}"
    return f"{what}: {why}" if why else what


def _stall(finding: Finding, name: str, resolved_step: float | None) -> str:
    before, peak = number(finding, "before"), value_to(finding)
    if finding.role == "checkpoint" and before is not None and peak is not None:
        return f"{name} has not moved since step {steps(finding.onset_step)}: {amount(peak)} old, {amount(before)} as a rule"
    if before is not None and peak is not None and before != peak:
        return f"{name} stalled at step {steps(finding.onset_step)}: {amount(before)} to {amount(peak)}"
    seconds = finding.magnitude if finding.unit == "seconds" and math.isfinite(finding.magnitude) else None
    length = f" for {duration(seconds)}" if seconds else ""
    ended = f", and came again at step {steps(resolved_step)}" if resolved_step is not None else ""
    return f"no sample of {name}{length} after step {steps(finding.onset_step)}{ended}"


def _slope(finding: Finding) -> str:
    """`slope_per_10k` is the change of the logarithm per 10,000 steps; short spans are told per 1,000 or 100 steps."""
    gap = number(finding, "gap_before"), number(finding, "gap_after")
    if gap[0] is not None and gap[1] is not None:
        return f"has moved away from the training loss: {percent(gap[1])} above it, and {percent(gap[0])} before,"
    slope, verb = number(finding, "slope_per_10k"), towards(finding, "has risen", "has fallen", "has drifted")
    if slope is None:
        return f"{verb}{_from_to(finding) or _relative(finding)}"
    span = finding.detected_step - finding.onset_step
    unit = next((size for size in (10_000, 1_000, 100) if span >= size / 4), 100)
    change = abs(math.expm1(min(slope * unit / 10_000, 20.0)))
    return f"{verb} {percent(change)} per {unit:,} steps"


def _slowly(finding: Finding, name: str, since: str) -> str:
    if share_of(finding) is not None:
        return f"the gradient norm of all groups {_slope(finding)} {since}; {carries(finding)}"
    return f"{name} {_slopes(finding) or f'{_slow(finding)} {since}'}"


def _slopes(finding: Finding) -> str:
    """ "changed its slope from +5 % to +12 % per 10,000 steps at step 81,716 (deploy)"; nothing for other findings."""
    before, event = number(finding, "slope_before_per_10k"), finding.evidence.get("event")
    if before is None:
        return ""
    span = finding.detected_step - finding.onset_step
    unit = next((size for size in (10_000, 1_000, 100) if span >= size / 4), 100)
    told = []
    for slope in (before, number(finding, "slope_per_10k") or 0.0):
        change = math.expm1(max(-20.0, min(slope * unit / 10_000, 20.0)))
        told.append(f"{'-' if change < 0 else '+'}{percent(abs(change))}")
    why = f" ({event})" if event else ""
    return f"changed its slope from {told[0]} to {told[1]} per {unit:,} steps at step {steps(finding.onset_step)}{why}"


def _slow(finding: Finding) -> str:
    if finding.kind == "trend":
        return _slope(finding)
    if finding.kind == "plateau":
        level = number(finding, "after")
        return f"has not improved{f' from {amount(level)}' if level is not None else ''}"
    if finding.kind == "overfit":
        train = (number(finding, "train_before"), number(finding, "train_after"))
        falls = f" from {amount(train[0])} to {amount(train[1])}" if train[0] and train[1] else ""
        return f"climbs{_from_to(finding)} while the training loss falls{falls},"
    if finding.kind == "variance":
        ratio = number(finding, "ratio")
        return f"has {amount(ratio)} times its spread" if ratio is not None else "has another spread than before"
    return f"is {towards(finding, 'above', 'below', 'off')} what smaller runs predict{_relative(finding)}"


def _invariant(finding: Finding) -> str:
    before, after = number(finding, "before"), number(finding, "after")
    if finding.detector == "accounts":
        return f"counts {amount(after or 0.0)} tokens a step where the logged sizes say {amount(before or 0.0)},"
    if finding.role == "tokens":
        return f"fell{_from_to(finding)}" if finding.severity else f"counts{_from_to(finding)} tokens a step"
    if after == 0:
        return f"became exactly 0{f' (was {amount(before)})' if before is not None else ''}"
    return f"left its constant value{_from_to(finding).replace(' from', ':', 1)}"


def _move(finding: Finding, resolved_step: float | None) -> str:
    if finding.kind == "schedule":
        return f"was set{_from_to(finding)}" if _from_to(finding) else "left its schedule"
    share, usual = number(finding, "share"), number(finding, "before")
    if share is not None and usual is not None:
        return f"takes {percent(share)} of the step and not {percent(usual)}"
    verb = "diverged" if finding.kind == "divergence" else towards(finding, "jumped", "dropped", "moved")
    peak, after = number(finding, "peak"), number(finding, "after")
    if finding.kind == "level" and peak is not None and after is not None and peak > 1.05 * abs(after):
        before = number(finding, "before")
        start = f" from {amount(before)}" if before is not None else ""
        settled = f" and settled at {amount(after)}," if resolved_step is None else ""
        return f"{verb}{start} to {amount(peak)}{settled}"
    return f"{verb}{_from_to(finding) or _relative(finding)}"


def _stay(finding: Finding, resolved_step: float | None) -> str:
    out = number(finding, "samples_out")
    if finding.kind == "spike" and out is not None:
        return " for one sample" if out <= 1 else f" and stayed for {amount(out)} samples"
    return " and has stayed" if finding.kind == "level" and resolved_step is None else ""


def towards(finding: Finding, up: str, down: str, neither: str) -> str:
    return {"up": up, "down": down}.get(finding.direction, neither)


def value_to(finding: Finding) -> float | None:
    order = ("after", "peak") if finding.kind in ("level", "schedule", "invariant") else ("peak", "after")
    return next((value for key in order if (value := number(finding, key)) is not None), None)


def _from_to(finding: Finding) -> str:
    before, to = number(finding, "before"), value_to(finding)
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


def share_of(finding: Finding) -> float | None:
    """The part of the growth of the squared norm that this leaf carries; None for other findings."""
    return number(finding, "growth_share")


def carries(finding: Finding) -> str:
    """ "lm_head carries 95 % of the rise", or over how many groups a rise is spread."""
    share, groups = min(share_of(finding) or 0.0, 1.0), number(finding, "groups")
    if share < HALF and groups:
        return f"spread over {amount(groups)} groups, {finding.metric} first with {percent(share)} of the rise"
    return f"{finding.metric} carries {percent(share)} of the rise"


def _nonfinite(value: object) -> str:
    if isinstance(value, float) and math.isinf(value):
        return "infinite"
    return {"NaN": "NaN", "Infinity": "infinite", "-Infinity": "infinite", "inf": "infinite"}.get(str(value), "NaN")
