"""The sentence of an incident: what its leading finding says, and what moved with it."""

from collections.abc import Sequence
from dataclasses import replace

from detectors.finding import Finding, cadence, number
from flows.incidents.headline import carries, headline, share_of, towards, value_to
from flows.incidents.reach import NEAR, is_slow
from flows.incidents.written import amount, percent, steps

LEADING = ("loss", "eval_loss", "learning_rate", "eval_score", "grad_norm", "mfu", "throughput", "step_time")
LOUD = ("nonfinite", "divergence", "schedule", "overfit", "replay", "level", "spike", "plateau", "trend", "stall")


def title(findings: Sequence[Finding], resolved_step: float | None, rolled_back: bool = False) -> str:
    """The sentence of an incident; `findings` in canonical order. Missing evidence only makes it shorter."""
    main = _with_peak(leading(findings), findings)
    sentence = (
        headline(main, resolved_step) + _company(main, findings) + _carrier(main, findings) + _rate(main, findings)
    )
    if rolled_back:
        return f"{sentence}; rolled back"
    if resolved_step is not None and "removed" in findings[-1].evidence:
        return f"{sentence}; no longer asked for"
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


def _with_peak(main: Finding, findings: Sequence[Finding]) -> Finding:
    """A level with the height of the spike that it began with, so that the sentence tells what the chart shows."""
    if main.kind != "level" or main.direction != "up" or number(main, "peak") is not None:
        return main
    peaks = [
        peak
        for item in findings
        if item.metric == main.metric and item.kind == "spike" and item.direction == "up"
        if abs(item.onset_step - main.onset_step) <= NEAR * cadence(main) and (peak := number(item, "peak")) is not None
        if amount(number(item, "before") or 0.0) == amount(number(main, "before") or 0.0)  # measured from one level
    ]
    return replace(main, evidence={**main.evidence, "peak": max(peaks)}) if peaks else main


def _key(finding: Finding) -> tuple[str, str, str]:
    return finding.detector, finding.metric, finding.episode


def _place(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)


def _company(main: Finding, findings: Sequence[Finding]) -> str:
    """The first other metric by name with its factor and lead, the rest as a count."""
    back = next((item for item in findings if item.kind == "rewind" and item is not main), None)
    after = f", after the run went back to step {steps(back.onset_step)}" if back is not None else ""
    others: dict[str, Finding] = {}
    for item in sorted(findings, key=lambda item: (_place(item.role, LEADING), item.onset_step, item.metric)):
        if item.metric not in (main.metric, "") and share_of(item) is None:  # a rewind has no metric
            others.setdefault(item.metric, item)
    if not others:
        return after
    first = next(iter(others.values()))
    rest = len(others) - 1
    more = f", and {rest} other metric{'s' if rest > 1 else ''} moved with it" if rest else ""
    return f", with {first.metric}{_factor(first)}{_lead(main, first)}{more}{after}"


def _carrier(main: Finding, findings: Sequence[Finding]) -> str:
    """Which leaf carries the rise of a gradient norm, by the latest word on it."""
    last = max(
        (item for item in findings if share_of(item) is not None), key=lambda item: item.detected_step, default=None
    )
    return f"; {carries(last)}" if last is not None and last is not main and main.role == last.role else ""


def _rate(main: Finding, findings: Sequence[Finding]) -> str:
    """That the learning rate fell while a gradient norm rose, by the latest word on it."""
    words = [item for item in findings if item.metric == main.metric and number(item, "cap") is not None]
    last = max(words, key=lambda item: item.detected_step, default=None)
    fell = number(last, "rate_fell") if last is not None and last.evidence["cap"] < 4 else None
    return f"; the learning rate fell by {percent(fell)} meanwhile" if fell is not None else ""


def _factor(finding: Finding) -> str:
    before, to = number(finding, "before"), value_to(finding)
    if finding.kind == "nonfinite":
        return " not finite"
    if finding.kind == "trend" or before is None or to is None or before <= 0 or to <= 0:
        return towards(finding, " up", " down", "")
    if amount(to / before) == "1":
        return f"{towards(finding, ' up', ' down', '')} {percent(abs(to / before - 1))}"
    return f" x{amount(to / before)}"


def _lead(main: Finding, other: Finding) -> str:
    gap = main.onset_step - other.onset_step
    if gap == 0 or is_slow(main) or is_slow(other):
        return ""
    return f" {steps(abs(gap))} step{'s' if abs(gap) != 1 else ''} {'earlier' if gap > 0 else 'later'}"
