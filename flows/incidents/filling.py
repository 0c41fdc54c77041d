"""Puts run, metric and steps into the checks of a hypothesis, so that they can be pasted into a shell."""

from collections.abc import Iterable
from dataclasses import replace

from detectors.finding import Finding, cadence
from detectors.pattern import Check, Hypothesis

SPAN = 200  # samples on each side of the onset


def fill(hypotheses: Iterable[Hypothesis], finding: Finding, run: str) -> list[Hypothesis]:
    """Hypotheses whose checks carry a whole `watchkeeper sql "..."` line for this run and finding."""
    span = SPAN * cadence(finding)
    values = {
        "run": _literal(run),
        "metric": _literal(finding.metric),
        "onset": f"{finding.onset_step:.15g}",
        "before": f"{finding.onset_step - span:.15g}",
        "after": f"{finding.onset_step + span:.15g}",
    }
    return [replace(item, checks=tuple(_filled(check, values) for check in item.checks)) for item in hypotheses]


def _filled(check: Check, values: dict[str, str]) -> Check:
    if not check.sql:
        return check
    return replace(check, sql=f'watchkeeper sql "{_in_double_quotes(" ".join(check.sql.split()).format(**values))}"')


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _in_double_quotes(text: str) -> str:
    for special in ("\\", '"', "$", "`"):
        text = text.replace(special, "\\" + special)
    return text
