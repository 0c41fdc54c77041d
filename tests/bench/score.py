"""From alarms to numbers: one record a case, one row a system.

Definitions (docs/benchmark.md says them to the reader):

- recall: answered truths of all truths, benign twins apart;
- precision: alarms that answer a truth of all alarms, duplicates apart (neither right nor wrong);
- delay: from the truth's onset to the answer. Only over answered truths, so the misses stand beside it. A rewind has
  none: its step runs back;
- confirmation: the part of the delay between the onset that the system names and the step at which it spoke;
- a rate's upper limit is the exact 95 % limit of a Poisson count (one-sided);
- score: the area under the FROC curve with a logarithmic axis, as the CPM of lung nodule detection averages the
  sensitivity over false-positive rates that double from 1/8 to 8 a scan (Niemeijer et al. 2011; Setio et al. 2017). Here
  the budgets run over six decades, from 0.1 to 100,000 false pages per 100,000 steps, the last being one at every step. A
  system with one operating point meets each budget above its rate with its recall, and none below: the area is recall times
  the share of the decades that it meets. Whoever never speaks has no recall, whoever always speaks meets no budget: both
  get 0. False pages are false alarms and pages on benign twins. Unlike F1 it still tells 1 false alarm from 100 where both
  outnumber the faults, and unlike a cost it needs no price of a page, over which no two teams agree.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from cases import INVESTIGATE, Alarm, Case, Truth
from match import match
from readings import Readings
from scipy.stats import chi2

BUDGETS = (0.1, 100_000.0)  # false pages per 100,000 steps
CLOCKS = ("steps", "samples", "minutes", "from_visible", "confirmation", "onset_error")


@dataclass(frozen=True)
class Answer:
    """A truth and what answered it. Delays are None for what was missed, or has no clock."""

    fault: str
    kind: str
    amplitude: float | None
    found: bool
    steps: float | None = None
    samples: float | None = None
    minutes: float | None = None
    from_visible: float | None = None
    confirmation: float | None = None
    onset_error: float | None = None  # steps between the onset that the system names and the true one
    top1: bool | None = None  # None: nothing was asked, or not found
    top3: bool | None = None


@dataclass(frozen=True)
class Judged:
    """What one system made of one case."""

    case: str
    family: str
    half: str
    healthy: bool
    log_samples: int
    log_steps: int
    answers: tuple[Answer, ...]
    twins: tuple[tuple[str, bool], ...] = ()  # benign truths: their fault, and whether they were paged
    matched: int = 0
    duplicates: int = 0
    false: int = 0
    twin_pages: int = 0
    notes: int = 0
    seconds: float = 0.0
    error: str = ""


def is_healthy(truths: Iterable[Truth]) -> bool:
    """Nothing happens in the case that anybody should be paged for, and nothing that looks like it."""
    return not any(t.benign or t.severity >= INVESTIGATE for t in truths)


def judge(case: Case, alarms: Sequence[Alarm], log: Readings, seconds: float = 0.0) -> Judged:
    """Match the alarms of one case and put numbers on the answers."""
    said = match(case.truths, alarms)
    return Judged(
        case.name,
        case.family,
        case.half,
        is_healthy(case.truths),
        log.samples,
        len(log.all_steps),
        tuple(_answer(truth, alarm, log) for truth, alarm in said.answered),
        tuple((truth.fault, pages > 0) for truth, pages in said.twins),
        said.matched,
        said.duplicates,
        len(said.false),
        sum(pages for _, pages in said.twins),
        said.notes,
        seconds,
    )


def broken(case: Case, error: str, seconds: float = 0.0) -> Judged:
    """A case on which the system failed: its truths are missed, its samples count for nothing."""
    missed = tuple(Answer(t.fault, t.kind, t.amplitude, False) for t in case.truths if not t.benign)
    return Judged(
        case.name,
        case.family,
        case.half,
        is_healthy(case.truths),
        0,
        0,
        missed,
        seconds=seconds,
        error=error or "failed",
    )


def _answer(truth: Truth, alarm: Alarm | None, log: Readings) -> Answer:
    if alarm is None:
        return Answer(truth.fault, truth.kind, truth.amplitude, False)
    right = [pattern in truth.patterns for pattern in alarm.patterns]
    causes = (any(right[:1]), any(right[:3])) if truth.patterns else (None, None)
    if truth.kind == "rewind":
        return Answer(truth.fault, truth.kind, truth.amplitude, True, top1=causes[0], top3=causes[1])
    delay = alarm.step - truth.onset
    pace = log.seconds_per_step
    return Answer(
        truth.fault,
        truth.kind,
        truth.amplitude,
        True,
        delay,
        log.samples_from(alarm.metric, truth.onset, alarm.step),
        None if pace is None else delay * pace / 60,
        alarm.step - truth.visible,
        alarm.step - alarm.onset,
        abs(alarm.onset - truth.onset),
        *causes,
    )


def upper_limit(count: int, exposure: float, per: float = 100_000.0, level: float = 0.95) -> float:
    """The one-sided upper limit of a Poisson rate: 0 in 72,000 is at most 4.2 per 100,000."""
    return float(chi2.ppf(level, 2 * (count + 1))) / 2 / exposure * per if exposure else math.inf


def froc_area(recall: float, false_pages: int, steps: int) -> float:
    """The share 0..1 of `recall` that is left when the budgets of false pages are gone through by decades."""
    low, high = (math.log10(budget) for budget in BUDGETS)
    rate = false_pages / steps * 100_000 if steps else BUDGETS[1]
    met = high - min(max(math.log10(max(rate, BUDGETS[0])), low), high)
    return recall * met / (high - low)


def _rate(count: int, exposure: int) -> dict[str, Any]:
    per = count / exposure * 100_000 if exposure else None
    limit = upper_limit(count, exposure) if exposure else None
    return {"samples": exposure, "alarms": count, "per_100k": per, "upper_95": limit}


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _quiet(judged: Sequence[Judged]) -> dict[str, Any]:
    """Rates on runs in which nothing happens."""
    samples, notes = sum(j.log_samples for j in judged), sum(j.notes for j in judged)
    rate = _rate(sum(j.false for j in judged), samples)
    return {"runs": len(judged), **rate, "notes_per_1000": notes / samples * 1_000 if samples else None}


def _delays(answers: Sequence[Answer]) -> dict[str, Any]:
    timed = [a for a in answers if a.kind != "rewind"]
    out: dict[str, Any] = {"found": sum(a.found for a in timed), "missed": sum(not a.found for a in timed)}
    for clock in CLOCKS:
        values = [v for a in timed if (v := getattr(a, clock)) is not None]
        out[clock] = {"median": float(np.median(values)), "p90": float(np.percentile(values, 90))} if values else None
    return out


def _by_fault(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, float], list[Answer]] = {}
    for a in answers:
        groups.setdefault((a.fault, -1.0 if a.amplitude is None else a.amplitude), []).append(a)
    return [
        {
            "fault": fault,
            "amplitude": members[0].amplitude,
            "found": sum(a.found for a in members),
            "truths": len(members),
            "delay": _delays(members)["steps"],
        }
        for (fault, _), members in sorted(groups.items())
    ]


def row(judged: Sequence[Judged]) -> dict[str, Any]:
    """Everything that is said about one system on some cases."""
    runs, null = [j for j in judged if j.family != "null"], [j for j in judged if j.family == "null"]
    answers = [a for j in runs for a in j.answers]
    found, matched, false = sum(a.found for a in answers), sum(j.matched for j in runs), sum(j.false for j in runs)
    pages = false + sum(j.twin_pages for j in runs)
    recall, precision = _share(found, len(answers)), _share(matched, matched + pages)
    twins = [paged for j in runs for _, paged in j.twins]
    asked = [a for a in answers if a.top1 is not None]
    both = (recall or 0.0) + (precision or 0.0)
    return {
        "cases": len(judged),
        "broken": sum(bool(j.error) for j in judged),
        "seconds": sum(j.seconds for j in judged),
        "truths": len(answers),
        "found": found,
        "recall": recall,
        "alarms": {
            "matched": matched,
            "duplicates": sum(j.duplicates for j in runs),
            "false": false,
            "twins": pages - false,
        },
        "precision": precision,
        "f1": 2 * (recall or 0.0) * (precision or 0.0) / both if both else 0.0,
        "score": froc_area(recall or 0.0, pages, sum(j.log_steps for j in runs)),
        "delay": _delays(answers),
        "healthy": _quiet([j for j in runs if j.healthy]),
        "null": _quiet(null),
        "twins": {"runs": len(twins), "paged": sum(twins)},
        "patterns": {
            "asked": len(asked),
            "top1": _share(sum(bool(a.top1) for a in asked), len(asked)),
            "top3": _share(sum(bool(a.top3) for a in asked), len(asked)),
        },
        "by_fault": _by_fault(answers),
    }
