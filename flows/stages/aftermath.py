"""How an incident goes on: follow-ups 25, 150 and 1,000 samples after it was seen, and what came of what people did.

Both go by the leading metric's own samples, so they do not depend on how often a pass runs: the n-th sample is looked at
with nothing later known. Each is a line of the log, written with its message in one transaction, and so told once. When
several are due at once (a run that was read in one go) the last one is told, and the others are kept.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from detectors.finding import Finding, cadence
from flows.incidents.course import PAST, WINDOW, course
from flows.incidents.filling import AGAIN
from flows.incidents.incident import OWN, Incident, Transition
from flows.incidents.outcomes import ACTIONS, FOLLOWED, ROLLBACK, WAIT, in_words, told_of, verdict
from flows.incidents.people import JUDGE, of, said, silence, standing
from flows.incidents.title import leading
from flows.records import Attempt, Event, Operation
from flows.stages.announce import Takes, told_as
from flows.stages.judge import stored
from flows.store import Store

PROVEN = 150  # samples behind the onset after which an action is judged: an apparent recovery of some ten is common
WORTH = 2  # the least severity that is followed


@dataclass(frozen=True)
class _Line:
    """The samples of the leading metric from some way before the onset on, all attempts."""

    attempt: np.ndarray
    step: np.ndarray
    value: np.ndarray

    def of(self, attempts: Sequence[int], first: float, last: float = np.inf) -> tuple[np.ndarray, np.ndarray]:
        """step and value of some attempts between two steps, the first excluded."""
        kept = np.isin(self.attempt, attempts) & (self.step > first) & (self.step <= last)
        return self.step[kept], self.value[kept]


def aftermath(store: Store, run: str, channels: Mapping[str, Takes], *, clock: Callable[[], float]) -> list[Transition]:
    """Put what is due into the log and the outbox; gives what was told.

    `channels` is as `announcer` takes it. Incidents that nobody was told of, or below S2, have none.
    """
    log, now = store.log(run), clock()
    grave = [row["incident_id"] for row in store.incidents(run) if row["severity"] >= WORTH]
    heard = {name for name in grave if standing(of(log, name)).told}
    lines: list[Operation] = []
    told: list[Transition] = []
    for incident in stored(store, run, heard):
        due = list(_due(store, run, incident, log, now))
        if due:
            last = due[-1]
            # that it is over, or what was told of a later step, says more
            over = last.kind == FOLLOWED and (
                incident.resolved_step is not None or _told_later(of(log, incident.id), last)
            )
            quiet = over or silence(incident, log, last.step or 0.0, now) is not None
            lines += [*(_silent(each) for each in due[:-1]), _silent(last) if quiet else last]
            told += [] if quiet else [Transition(incident, last.kind, last.step or 0.0)]
    if lines:
        store.save_told(run, told_as(store, run, channels, told, [*log, *lines], now), [], lines)
    return told


def _told_later(mine: Sequence[Operation], line: Operation) -> bool:
    said = [each for each in mine if each.who == JUDGE and not each.silent and each.step is not None]
    return any((each.step or 0.0) >= (line.step or 0.0) for each in said)


def _silent(line: Operation) -> Operation:
    return Operation(**{**vars(line), "silent": True})


def _due(store: Store, run: str, incident: Incident, log: Sequence[Operation], now: float) -> Iterator[Operation]:
    """The lines that are due and not yet written, in order."""
    # as it stood when it was first worth a look: what is found later must not move the samples that are looked at
    seen = next((step for step, severity in incident.severity_history if severity >= WORTH), incident.detected_step)
    main = leading([each for each in incident.findings if each.detected_step <= seen] or incident.findings)
    mine = of(log, incident.id)
    if not main.metric or main.detector in OWN:  # a user's own word says itself how it goes on
        return
    line, attempts = _samples(store, run, incident, main), store.attempts(run)
    own = _lineage(attempts, incident.attempt)
    usual = line.of(own, -np.inf, main.onset_step)
    later = line.of([incident.attempt], seen)
    struck = line.of([incident.attempt], main.onset_step - cadence(main) / 2, seen)[1]
    events = [e for e in store.events(run) if e.kind in ACTIONS and e.source != "detected"]
    acted = min((e.step for e in events if e.kind != ROLLBACK and e.step > seen), default=np.inf)
    for count in AGAIN:
        if len(later[0]) < count or later[0][count - 1] > acted:
            break
        at = float(later[0][count - 1])
        over = incident.resolved_step is not None and incident.resolved_step <= at
        found = None if over else course(usual, main.onset_step, struck, (later[0][:count], later[1][:count]))
        if found is not None and not any(each.kind == FOLLOWED and each.step == at for each in mine):
            text = f"{count:,} samples later {in_words(main.metric, found, seen)}"
            yield _line(incident, FOLLOWED, at, now, text)
            if count == AGAIN[-1]:
                yield _line(incident, verdict(found), at, now, f"waiting: {text}", WAIT)
    for event in events:
        after = _after(event, line, attempts, incident, main.onset_step, seen)
        if len(after[0]) < PROVEN or any(each.why.startswith(told_of(event)) for each in mine):
            continue
        after = after[0][:PROVEN], after[1][:PROVEN]
        hurt = line.of([incident.attempt], main.onset_step - cadence(main) / 2)[1][: PROVEN * 8][-WINDOW:]
        found = course(usual, main.onset_step, hurt, after)
        if found is not None:
            text = f"{told_of(event)}: {in_words(main.metric, found, event.step)}"
            yield _line(incident, verdict(found), float(after[0][-1]), now, text, event.kind)


def _line(incident: Incident, kind: str, step: float, now: float, why: str, action: str = "") -> Operation:
    line = said(incident, kind, step, now, why)
    return Operation(**{**vars(line), "metric": action, "pattern": incident.pattern})


def _after(
    event: Event, line: _Line, attempts: Sequence[Attempt], incident: Incident, onset: float, seen: float
) -> tuple[np.ndarray, np.ndarray]:
    """The samples that show what an action did: behind the onset in the attempt that a rollback began, else behind it.

    What was done before the incident was seen, or went back to after its onset, is no answer to it.
    """
    none = np.empty(0), np.empty(0)
    if event.kind != ROLLBACK:
        return line.of([incident.attempt], event.step) if event.step > seen else none
    later = [a.attempt for a in attempts if a.attempt > incident.attempt and a.parent is not None]
    return line.of(later[:1], onset) if event.step <= onset and later else none


def _lineage(attempts: Sequence[Attempt], attempt: int) -> list[int]:
    """An attempt and those that it goes on from; abandoned tails are behind the onset or cut by the next attempt."""
    parents = {a.attempt: a.parent for a in attempts}
    out = [attempt]
    while (parent := parents.get(out[-1])) is not None:
        out.append(parent)
    return out


def _samples(store: Store, run: str, incident: Incident, main: Finding) -> _Line:
    first = main.onset_step - 2 * PAST * cadence(main)
    rows: pl.DataFrame = store.samples(run, [main.metric], first, float("inf"))
    return _Line(*(rows[name].to_numpy() for name in ("attempt", "step", "value")))
