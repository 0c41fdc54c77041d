"""The sentence of a finding that holds a run against something beside its own past: its plan, a reference run, the ladder."""

import math

from detectors.finding import Finding, number
from flows.incidents.written import amount, percent, steps


def held_against(finding: Finding, name: str) -> str | None:
    """What it says of the metric `name`; None for a finding of another kind."""
    at, since = f"at step {steps(finding.onset_step)}", f"since step {steps(finding.onset_step)}"
    if finding.detector == "plan":
        return _unplanned(finding, name, at, since)
    if finding.detector == "reference":
        return _beside(finding, name, since)
    if finding.detector == "departure":
        return _departed(finding, name, since)
    if finding.detector == "given_loss":
        better = "lower" if finding.direction == "down" else "higher"
        return f"{name} is {better} than smaller runs have it at the same training loss{_by(finding)}, {since}"
    return None


def _by(finding: Finding) -> str:
    return f", by {percent(abs(math.expm1(finding.magnitude)))}" if finding.unit == "log" else ""


def _departed(finding: Finding, name: str, since: str) -> str:
    """ "train/loss drifts above what smaller runs predict, by 2.1 %, worth 14 % of the tokens so far, since step 700"."""
    way, how = "above" if finding.direction == "up" else "below", str(finding.evidence.get("how"))
    if how == "peak":
        return f"{name} still rises {since}: smaller runs had its peak at {percent(number(finding, 'peak_at') or 0)}"
    verb = {"offset": "runs", "drift": "drifts"}.get(how, "went")
    share = number(finding, "behind")
    worth = f", worth {percent(abs(share))} of the tokens so far" if share is not None else ""
    early = number(finding, "extrapolated_from")
    known = f" (extrapolated: a rung ended at {percent(early)})" if early is not None else ""
    return f"{name} {verb} {way} what smaller runs predict{_by(finding)}{worth}, {since}{known}"


def _beside(finding: Finding, name: str, since: str) -> str:
    """ "train/loss is 0.5 % higher than the reference run since step 700 (the same data)"."""
    if finding.kind == "replay":
        lost = "no longer shows" if number(finding, "order_lost") else "does not show"
        return f"{name} {lost} the data of the reference run {since}"
    size = percent(abs(math.expm1(finding.magnitude)))
    data = " (the same data)" if number(finding, "equal_order") else " (other data)"
    beside = "than before beside the reference run" if number(finding, "offset_before") else "than the reference run"
    more = "higher" if finding.direction == "up" else "lower"
    return f"{name} is {size} {more} {beside} {since}{data}"


def _unplanned(finding: Finding, name: str, at: str, since: str) -> str:
    """ "optim/learning_rate is 0.0482 since step 1,400, and 0.00482 in the plan"."""
    planned, actual = number(finding, "plan") or 0.0, number(finding, "after")
    if actual is not None:
        left, right = amount(actual), amount(planned)
        left, right = (f"{actual:.6g}", f"{planned:.6g}") if left == right else (left, right)
        return f"{name} is {left} {since}, and {right} in the plan"
    if finding.kind == "stall":
        return f"{name} {at} is older than the {amount(planned)} steps that the plan allows"
    return f"{name} goes on {at}, behind the {steps(planned - 1)} steps of the plan"
