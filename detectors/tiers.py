"""Which metrics may call by themselves, and what becomes of the findings of the others.

First tier: at most SEATS whole-run metrics that have a statistical detector, in order of (first step, rank of the role,
name). Second tier: the others, and leaves with statistics of their own (evals by domain). A statistical finding of S2
or more there is told at S1 and gets its own severity when the false discovery rate (`fdr`) allows: one p-value per
metric and window, in order (step of the window's last sample, name). Leaves beyond these are never tested one by one:
detectors across metrics judge a family as one.

A window is CHUNK samples of a metric, for evaluations a single one. Its p-value is the smallest of its findings, 1 when
the detectors are silent: that can only make a p-value larger. A detector that looks at every sample has had CHUNK
chances in its window, which its p-value pays for. Findings without `p` or `z` (throughput, spread) cannot be tested and
keep their severity.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from detectors import fdr
from detectors.finding import Finding, Recovery
from detectors.noise import CHUNK
from detectors.series import Array
from detectors.suite import detectors_of

SEATS = 25
RANK = (
    "loss", "grad_norm", "update_norm", "param_norm", "mfu", "throughput", "step_time", "token_drop", "router_entropy",
    "eval_loss", "eval_score",
)  # fmt: skip
STATISTICAL = frozenset({"spikes", "shifts", "spread", "direction", "throughput", "evals"})
KINDS = frozenset({"spike", "level", "trend", "variance", "plateau"})
EVERY_SAMPLE = frozenset({"spikes", "shifts"})  # detectors that look at each sample of a window
YOUNG = 8  # samples before which a silent window is no test: nothing could have been said
LATE = 2  # windows that a metric may be overdue before nobody waits for it

Answers = list[Finding | Recovery]
Seat = list[Any]  # attempt, first step, rank of the role, name


def is_statistical(role: str, group: str) -> bool:
    """Whether a metric has a detector that can be wrong by chance."""
    return not STATISTICAL.isdisjoint(detectors_of(role, group))


def seated(seats: Sequence[Seat], attempt: int, begun: Iterable[tuple[float, str, str]]) -> list[Seat]:
    """The seats with whole-run metrics (first step, role, name) of an attempt that had none; later ones push nobody out."""
    have = {seat[3] for seat in seats}
    new = [[attempt, first, _rank(role), name] for first, role, name in begun if name not in have]
    return sorted([*map(list, seats), *new])[:SEATS]


def _rank(role: str) -> int:
    return RANK.index(role) if role in RANK else len(RANK)


def window(role: str) -> int:
    """Samples that one p-value is about."""
    return 1 if role in ("eval_loss", "eval_score") else CHUNK


def told(
    answers: Sequence[Finding | Recovery],
    lines: Mapping[str, tuple[str, Array]],
    newest: float,
    state: Mapping[str, Any],
) -> tuple[Answers, dict[str, Any]]:
    """The answers of a pass as they may be told, and the state of the second tier behind it.

    `lines` gives role and new steps of the metrics of the second tier, `newest` the newest step of the attempt. The state
    holds JSON values, and findings as dicts.
    """
    now = {"memory": {}, "lines": {}, "open": {}, "queue": [], **state}
    known = {name: line[:] for name, line in now["lines"].items()}
    ends = {name: _seen(known, name, role, steps) for name, (role, steps) in lines.items()}
    waits = {name: [dict(item) for item in items] for name, items in now["open"].items()}
    out: Answers = []
    for answer in answers:
        if isinstance(answer, Finding) and answer.metric in known and _is_tested(answer):
            item = _item(answer, held=answer.detected_step in ends.get(answer.metric, ()))
            waits.setdefault(answer.metric, []).append(item)
            out += [] if item["held"] else [Finding(**item["finding"])]
        else:
            out.append(answer)
    _recover([item for items in waits.values() for item in items], answers)
    queue = [*now["queue"], *(each for name in ends for each in _tests(name, ends[name], waits, known[name]))]
    _recover([item for each in now["queue"] for item in each[3]], answers)
    queue.sort(key=lambda each: (each[0], each[1]))
    ripe = _ripe(queue, known, newest)
    verdicts, memory = fdr.judged((fdr.Trial(*each[:3]) for each in queue[:ripe]), now["memory"])
    for each, verdict in zip(queue[:ripe], verdicts, strict=True):
        out += _spoken(each, verdict)
    opened = {name: items for name, items in waits.items() if items}
    return out, {"memory": memory, "lines": known, "open": opened, "queue": queue[ripe:]}


def carry(state: Mapping[str, Any]) -> dict[str, Any]:
    """What a new attempt keeps of its parent's: how many tests there were, and what was rejected."""
    return {"memory": state.get("memory", {})}


def _seen(known: dict[str, list[Any]], name: str, role: str, steps: Array) -> dict[float, int]:
    """Takes the new samples of a metric into `known` (count, newest step, last gap, window); the window ends in them."""
    count, last, gap, size = known.get(name, [0, None, None, window(role)])
    if len(steps) > 1 or (len(steps) and last is not None):
        gap = float(steps[-1] - (steps[-2] if len(steps) > 1 else last))
    known[name] = [count + len(steps), float(steps[-1]) if len(steps) else last, gap, size]
    return {float(steps[k]): count + k + 1 for k in range(-(count + 1) % size, len(steps), size)}


def _is_tested(finding: Finding) -> bool:
    testable = "p" in finding.evidence or "z" in finding.evidence
    return finding.severity >= 2 and finding.detector in STATISTICAL and finding.kind in KINDS and testable


def _item(finding: Finding, *, held: bool) -> dict[str, Any]:
    """What waits for the end of its window: the finding at S1, its p-value, whether it is over, whether it is untold."""
    numbers = {
        key: value.tolist() if isinstance(value, np.generic) else value for key, value in finding.evidence.items()
    }
    quiet = replace(finding, severity=1, evidence={**numbers, "second_tier": {"severity": finding.severity}})
    return {"finding": {**vars(quiet)}, "p": p_value(finding), "over": None, "held": held}


def p_value(finding: Finding) -> float:
    """Of one finding: its `p`, or that of its `z` under heavy tails; a shift of n samples is a mean of n."""
    if "p" in finding.evidence:
        p = float(finding.evidence["p"])
    else:
        many = min(CHUNK, finding.evidence.get("samples_out", 1)) if finding.detector == "shifts" else 1
        p = fdr.two_sided(float(finding.evidence["z"]) * math.sqrt(many))
    return min(1.0, p * CHUNK) if finding.detector in EVERY_SAMPLE else p


def _episode(finding: Mapping[str, Any]) -> tuple[str, str, str]:
    return finding["detector"], finding["metric"], finding["episode"]


def _recover(items: Sequence[dict[str, Any]], answers: Sequence[Finding | Recovery]) -> None:
    """Marks what has recovered with the step of that."""
    steps: dict[tuple[str, str, str], list[float]] = {}
    for answer in answers:
        if isinstance(answer, Recovery):
            steps.setdefault((answer.detector, answer.metric, answer.episode), []).append(answer.step)
    for item in items:
        after = [s for s in steps.get(_episode(item["finding"]), ()) if s >= item["finding"]["detected_step"]]
        if item["over"] is None and after:
            item["over"] = min(after)


def _tests(name: str, ends: Mapping[float, int], waits: dict[str, list[dict[str, Any]]], line: list[Any]) -> list[Any]:
    """Complete windows of a metric as [step of the end, name, p, what waits for it]; takes that out of `waits`."""
    out = []
    for end, count in ends.items():
        mine = waits.get(name, [])
        items = [item for item in mine if item["finding"]["detected_step"] <= end]
        if items:
            waits[name] = mine[len(items) :]
        if items or count > max(YOUNG, line[3]):
            out.append([end, name, min((item["p"] for item in items), default=1.0), items])
    return out


def _ripe(queue: Sequence[list[Any]], known: Mapping[str, list[Any]], newest: float) -> int:
    """How many tests at the head of the queue may be judged: nothing that comes before them is still expected.

    That is so when every metric has passed the step; or when the run has, and no metric is due by then, but for those
    that are more than LATE windows overdue.
    """
    lines = [line for line in known.values() if line[1] is not None]
    passed = min((last for _, last, _, _ in lines), default=math.inf)
    due = min(
        (last + gap for _, last, gap, size in lines if gap is not None and newest <= last + (1 + LATE * size) * gap),
        default=math.inf,
    )
    ripe = (k for k, each in enumerate(queue) if each[0] > passed and not each[0] < min(due, newest))
    return next(ripe, len(queue))


def _spoken(test: Sequence[Any], verdict: fdr.Verdict) -> Answers:
    """What a verdict lets be told: the last finding of each episode that is not over, at the severity it came with."""
    end, _, p, items = test
    out: Answers = []
    last = {_episode(item["finding"]): item for item in items}
    for item in items:
        finding = Finding(**item["finding"])
        own = max(
            each["finding"]["evidence"]["second_tier"]["severity"]
            for each in items
            if _episode(each["finding"]) == _episode(item["finding"])
        )
        if verdict.rejected and last[_episode(item["finding"])] is item and (item["over"] or math.inf) > end:
            why = {"severity": own, "p": p, "alpha": verdict.alpha, "tests": verdict.tests}
            evidence = {**finding.evidence, "second_tier": why}
            out.append(replace(finding, severity=own, detected_step=end, evidence=evidence))
        elif item["held"]:
            out.append(finding)
    return out
