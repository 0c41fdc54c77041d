"""The sentence of a finding that holds a run against something beside its own past: its plan."""

from detectors.finding import Finding, number
from flows.incidents.written import amount, steps


def held_against(finding: Finding, name: str) -> str | None:
    """What it says of the metric `name`; None for a finding of another kind."""
    at, since = f"at step {steps(finding.onset_step)}", f"since step {steps(finding.onset_step)}"
    if finding.detector == "plan":
        return _unplanned(finding, name, at, since)
    return None


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
