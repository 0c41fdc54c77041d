"""Which of a user's bounds a metric has, and what becomes of an open one when a restart or the configuration takes over.

A bound is known by its side, limit and samples: with another reason or severity its episodes go on.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import polars as pl

from detectors.bounds import DETECTOR, Bound, key_of
from detectors.finding import Finding, Recovery
from flows.incidents.incident import Episode, canonical, episode_of
from flows.incidents.pending import Waits
from flows.incidents.written import steps
from flows.records import Attempt

Said = Finding | Recovery


@dataclass(frozen=True)
class Watched:
    """A bound and what it is about: metrics by name or shell pattern, or by role; the other one is ""."""

    bound: Bound
    metric: str = ""
    role: str = ""

    @property
    def label(self) -> str:
        """`role mfu below 40`, as it is called in what was not checked."""
        about = f"role {self.role}" if self.role else self.metric
        return f"{about} {self.bound.side} {self.bound.limit:g}"

    def takes(self, name: str, role: str) -> bool:
        """Whether it is about a metric of this name and role."""
        return role == self.role if self.role else name == self.metric or fnmatchcase(name, self.metric)


def bounds_of(watched: Iterable[Watched], name: str, role: str) -> list[Bound]:
    """The bounds of one metric; of two that are the same the more severe one."""
    mine: dict[str, Bound] = {}
    for each in watched:
        if each.takes(name, role):
            known = mine.setdefault(each.bound.key, each.bound)
            mine[each.bound.key] = max(known, each.bound, key=lambda bound: bound.severity)
    return list(mine.values())


def still_asked(
    attempts: Sequence[Attempt], metrics: pl.DataFrame, watched: Sequence[Watched]
) -> Callable[[Waits], str]:
    """Why something is no longer pending though no sample says so: its attempt was cut off, or its bound is gone."""
    ended = {each.attempt: each.valid_until for each in attempts}
    roles = dict(metrics.select("name", "role").iter_rows())

    def why(each: Waits) -> str:
        until = ended.get(each.attempt)
        if until is not None:
            return f"the run goes on from step {steps(until)} in another attempt"
        if each.what.detector != DETECTOR[0]:
            return ""
        keys = {bound.key for bound in bounds_of(watched, each.what.metric, roles.get(each.what.metric, ""))}
        return "" if key_of(each.what.episode) in keys else "no longer asked for"

    return why


def open_episodes(answers: Iterable[Said], detector: str) -> dict[Episode, Finding]:
    """The newest finding of each episode of a detector that nothing has ended."""
    found: dict[Episode, Finding] = {}
    for answer in sorted((a for a in answers if a.detector == detector), key=canonical):
        if isinstance(answer, Finding):
            found[episode_of(answer)] = answer
        else:
            found.pop(episode_of(answer), None)
    return found


def no_longer_asked(finding: Finding, step: float) -> list[Said]:
    """The end of an open episode of the user's own whose bound or check was taken away: told as that, not as health."""
    at = max(finding.detected_step, step)
    evidence = {**finding.evidence, "removed": True}
    # an episode of its own: at the step of the finding itself it would be that finding
    note = replace(finding, severity=0, detected_step=at, episode=f"{finding.episode} removed", evidence=evidence)
    return [note, *(Recovery(each.detector, each.metric, each.episode, at) for each in (finding, note))]


def settle(
    new: dict[int, list[Said]],
    remembered: Mapping[int, Sequence[Said]],
    attempts: Sequence[Attempt],
    metrics: pl.DataFrame,
    watched: Sequence[Watched],
) -> None:
    """Add to `new` (answers by attempt) the ends that no detector can say. `metrics` are the metrics of the run.

    An episode that goes on over a restart ends in the attempt in which it was told; one whose bound stands no longer in
    the configuration ends now.
    """
    numbers = sorted({*remembered, *new})
    still = {n: open_episodes([*remembered.get(n, ()), *new.get(n, ())], DETECTOR[0]) for n in numbers}
    if not any(still.values()):
        return
    by_number = {each.attempt: each for each in attempts}
    for number, answers in list(new.items()):
        for back in [a for a in answers if isinstance(a, Recovery) and a.detector == DETECTOR[0]]:
            parent = by_number[number].parent
            while parent is not None:
                for finding in still.get(parent, {}).values():
                    if (finding.metric, key_of(finding.episode)) == (back.metric, key_of(back.episode)):
                        step = max(back.step, finding.detected_step)
                        new.setdefault(parent, []).append(replace(back, episode=finding.episode, step=step))
                parent = by_number[parent].parent
    rows = {row["name"]: row for row in metrics.iter_rows(named=True)}
    for number, findings in still.items():
        for finding in findings.values():
            row = rows[finding.metric]
            keys = {bound.key for bound in bounds_of(watched, row["name"], row["role"])}
            if key_of(finding.episode) not in keys:
                new.setdefault(number, []).extend(no_longer_asked(finding, row["last_step"]))
