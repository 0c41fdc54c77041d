"""Puts this run's numbers into what the playbook says: checks for the shell, the price of a way back, a bound to watch."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from detectors.finding import Finding, cadence, number
from detectors.pattern import Check, Hypothesis, Suggestion
from flows.incidents.title import leading
from flows.incidents.written import amount, steps

SPAN = 200  # samples on each side of the onset
MARGIN = 100  # steps before the first precursor that PaLM went back (arXiv:2204.02311)
AGAIN = (25, 150, 1000)  # samples after which a recovery, a new level and a slow consequence show (failure cases above)
WATCHED = 25  # samples in a row beyond a bound before it alarms


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


def priced(offered: Iterable[Suggestion], findings: Sequence[Finding], severity: int) -> tuple[Suggestion, ...]:
    """Suggestions with what they cost in this incident and when to look again, in steps.

    A way back leads to 100 steps before the first precursor (the earliest onset of any finding) and costs the steps from
    there to the last finding. A suggestion to wait carries the bound that alarms again, as a `[[bound]]` of the configuration.
    """
    main = leading(findings)
    again = tuple(main.detected_step + count * cadence(main) for count in AGAIN)
    first, last = min(item.onset_step for item in findings), max(item.detected_step for item in findings)
    return tuple(_priced(replace(item, again=again), first, last, main, severity) for item in offered)


def _priced(one: Suggestion, first: float, last: float, main: Finding, severity: int) -> Suggestion:
    if one.goes_back:
        back = max(first - MARGIN, 0.0)
        cost = f"{steps(last - back)} steps, from {steps(last)} back to {steps(back)}; {one.cost}"
        return replace(one, back_to_step=back, cost_steps=last - back, cost=cost)
    now = number(main, "after") if number(main, "after") is not None else number(main, "peak")
    if one.track is None or not now or main.direction not in ("up", "down"):
        return one
    further = one.track if (main.direction == "up") == (now > 0) else 1 / one.track  # whatever the sign
    limit = float(f"{now * further:.4g}")
    side = "above" if main.direction == "up" else "below"
    bound = _bound(main.metric, side, limit, min(severity + 1, 4))
    return replace(one, do=f"{one.do} Look again when it is {side} {amount(limit)}.", bound=bound)


def _bound(metric: str, side: str, limit: float, severity: int) -> str:
    name = "".join(f"[{letter}]" if letter in "[*?" else letter for letter in metric)  # a bound takes shell patterns
    told = json.dumps(name, ensure_ascii=False)
    return f'[[bound]]\nmetric = {told}\n{side} = {limit!r}\nsamples = {WATCHED}\nseverity = "S{severity}"\n'
