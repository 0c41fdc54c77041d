"""Judge: what is new, with what is remembered, through the detectors, into findings and incidents, in one transaction.

The findings do not depend on how the samples were cut into passes: every metric is judged on its own sample index, and
what needs two metrics waits until both have passed the step.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import polars as pl

from detectors.finding import Recovery
from detectors.pattern import Pattern
from flows.incidents import Incident, Transition, fold, may_change, remembered, superseded, transitions
from flows.incidents.incident import finding_row, incident_from_rows, incident_row
from flows.incidents.outcomes import ranked
from flows.incidents.pending import Ends, follow
from flows.incidents.people import by_hand
from flows.records import Operation
from flows.stages.against import Against, of_against
from flows.stages.answers import collect, roles_of
from flows.stages.bounds import Watched, settle, still_asked
from flows.stages.coverage import coverage, of_bounds
from flows.stages.heard import dated, hear, restarts, step_of
from flows.stages.past import Answers
from flows.stages.runstate import RunState
from flows.store import Store, Waiting

ROWS = 3_000_000  # samples that one transaction judges: fewer cost more a sample, more take more memory

Playbook = Callable[[], Sequence[Pattern]]  # called only when there is something to explain
# changes and the log of the run -> rows of the outbox, and lines for the log
Announced = tuple[Sequence[Mapping[str, Any]], Sequence[Operation]]
Announce = Callable[[Sequence[Transition], Sequence[Operation]], Announced]


@dataclass(frozen=True)
class Judged:
    """What judging gave: samples judged, transitions of incidents, and messages put into the outbox."""

    run: str
    samples: int = 0
    transitions: tuple[Transition, ...] = ()
    messages: int = 0


def judge(
    store: Store,
    run: str,
    playbook: Playbook,
    *,
    clock: Callable[[], float],
    live: bool = False,
    announce: Announce | None = None,
    watched: Sequence[Watched] = (),
    against: Against = Against(),  # noqa: B008  # frozen
    rows: int = ROWS,
) -> Judged:
    """Judge everything that is not judged yet.

    `clock` gives unix seconds; with `live` the silence of a run up to now is judged too. `announce` turns transitions
    into rows of the outbox and lines of the log, which are written with them. `watched` are the user's own bounds, `against`
    what the run is held against beside its past.
    """
    total = Judged(run)
    while True:
        found = store.waiting(run, rows)
        # only when nothing waits any more is silence silence
        heard_until = clock() if live and not len(found.rows) else None
        done = _pass(store, run, found, playbook, heard_until, clock(), announce, watched, against)
        total = Judged(
            run, total.samples + len(found.rows), total.transitions + done.transitions, total.messages + done.messages
        )
        if not len(found.rows):
            return total


def _pass(
    store: Store,
    run: str,
    waiting: Waiting,
    playbook: Playbook,
    heard_until: float | None,
    now: float,
    announce: Announce | None,
    watched: Sequence[Watched],
    against: Against,
) -> Judged:
    """One transaction's worth of judging; without rows only silence, and bounds that are gone, can be found."""
    state = RunState.load(waiting.run_state)
    hear(waiting.rows, waiting.events, state)
    found = collect(store, run, waiting, state, heard_until, watched, against)
    settle(found.new, state.answers, waiting.attempts, waiting.metrics, watched)
    ends = still_asked(waiting.attempts, waiting.metrics, watched)
    quiet = not found.new and not found.pending and not any(ends(each) for each in state.pending)
    if not len(waiting.rows) and quiet:
        return Judged(run)
    seated = [seat[3] for seat in state.seats]
    checked = [*coverage(waiting.metrics, found, seated), *of_bounds(waiting.metrics, watched, state)]
    checked += of_against(against, store, roles_of(waiting.metrics), state)
    return _save(store, run, found, waiting, state, playbook, now, announce, checked, ends)


def tell(
    store: Store,
    run: str,
    find: Callable[[RunState], Answers],
    playbook: Playbook,
    *,
    clock: Callable[[], float],
    announce: Announce | None = None,
) -> Judged:
    """Put what was found outside of the detectors through the same incidents and messages, in one transaction.

    `find` is given what the judge remembers of the run.
    """
    text = store.run_state(run)
    state = RunState.load(text)
    found = find(state)
    if not found.new:
        return Judged(run)
    # no rows and batch 0: what waits to be judged goes on waiting
    standing = Waiting(pl.DataFrame(), 0, store.attempts(run), store.metrics(run), store.events(run), text, {})
    return _save(store, run, found, standing, state, playbook, clock(), announce, (), lambda each: "")


def _save(
    store: Store,
    run: str,
    found: Answers,
    waiting: Waiting,
    state: RunState,
    playbook: Playbook,
    now: float,
    announce: Announce | None,
    checked: Iterable[Mapping[str, Any]],
    ends: Ends,
) -> Judged:
    before = _known(store, run, state)
    log = store.log(run)
    folded = [by_hand(each, log) for each in _folded(run, found, waiting, state, before, playbook)]
    # what helped against the same cause, in any run of this store, comes first
    tried = store.log(None) if folded else ()
    after = [replace(each, suggestions=ranked(each, tried)) for each in folded]
    changes = transitions(before, after)
    closed = superseded(before, after)
    moment = datetime.fromtimestamp(now, UTC).replace(tzinfo=None)
    state.pending, waits = follow(run, state.pending, found.pending, after, ends, now)
    messages, lines = announce(changes, log) if announce is not None and changes else ((), ())
    store.save_judgement(
        run,
        upto_batch=waiting.upto_batch,
        run_state=state.dump(),
        states=found.states(),
        findings=_finding_rows(run, after, moment),
        incidents=[incident_row(each, moment, moment) for each in [*after, *closed]],
        deliveries=messages,
        coverage=checked,
        log=[*waits, *lines],
    )
    return Judged(run, len(waiting.rows), tuple(changes), len(messages))


def _known(store: Store, run: str, state: RunState) -> list[Incident]:
    """The incidents that may still change, as they were told."""
    return stored(store, run, set(state.live))


def stored(store: Store, run: str, ids: Collection[str]) -> list[Incident]:
    """Incidents of a run as the store has them."""
    if not ids:
        return []
    findings: dict[str, list[dict[str, Any]]] = {}
    for row in store.findings(run):
        if row["incident_id"] in ids:
            findings.setdefault(row["incident_id"], []).append(row)
    return [
        incident_from_rows(run, row, findings.get(row["incident_id"], []))
        for row in store.incidents(run)
        if row["incident_id"] in ids
    ]


def _folded(
    run: str,
    found: Answers,
    waiting: Waiting,
    state: RunState,
    before: Sequence[Incident],
    playbook: Playbook,
) -> list[Incident]:
    """Incidents of every attempt that has live answers; drops from the state what cannot change any more."""
    declared = dated(waiting.events)
    roles, names = set(waiting.metrics["role"]), frozenset(waiting.metrics["name"])
    horizon = max([0.0, *waiting.metrics["last_step"].drop_nulls()])
    out: list[Incident] = []
    state.live = []
    for attempt, new in found.new.items():
        state.answers.setdefault(attempt, []).extend(new)
    for each in waiting.attempts:
        answers = state.answers.get(each.attempt)
        if not answers:
            continue
        reach = max(horizon, *(a.step if isinstance(a, Recovery) else a.detected_step for a in answers))
        incidents = fold(
            run,
            each.attempt,
            answers,
            [*declared, *restarts(waiting.attempts, each.attempt)],
            playbook(),
            horizon_step=reach,
            roles=roles,
            names=names,
            known=before,
            step_of=step_of(state, each.attempt),
            valid_until=each.valid_until,
        )
        out += incidents
        state.live += [i.id for i in incidents if may_change(i, reach)]
        state.answers[each.attempt] = remembered(answers, incidents, reach)
    return out


def _finding_rows(run: str, incidents: Sequence[Incident], moment: datetime) -> list[dict[str, Any]]:
    return [
        finding_row(finding, run, incident.attempt, incident.id, moment)
        for incident in incidents
        for finding in incident.findings
    ]
