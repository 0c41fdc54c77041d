"""Transitions -> rows of the outbox: who is told what. The judge writes them in one transaction with the incidents."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from flows.channels.contract import message_id
from flows.incidents.incident import Incident, Transition, finding_row, incident_row, stable_id
from flows.incidents.people import by_hand, owed, said, unanswered, unsettled, words
from flows.messages.blocks import Message, to_json
from flows.messages.compose import compose_all
from flows.messages.document import IncidentDoc, incident_doc
from flows.records import Operation
from flows.stages.document import context_of, last_step, with_log
from flows.stages.judge import Announce, Announced, stored
from flows.store import Store

Takes = Callable[[Incident], bool]  # whether a channel is told of an incident; an end is told wherever it was

_NO_TIME = datetime(1970, 1, 1)  # noqa: DTZ001  # rows carry naive UTC; a document has no times


def announcer(store: Store, run: str, channels: Mapping[str, Takes], *, clock: Callable[[], float]) -> Announce:
    """The `announce` of the judge: `channels` says of each channel by name what it is told of.

    What people have silenced is kept in the log, not told.
    """

    def announce(changes: Sequence[Transition], log: Sequence[Operation]) -> Announced:
        lines = words(changes, log, clock())
        heard = newest_words([change for change, line in lines if not line.silent])
        return _rows(store, run, channels, heard, log, clock()), [line for _, line in lines]

    return announce


def tell_owed(
    store: Store,
    run: str,
    channels: Mapping[str, Takes],
    *,
    clock: Callable[[], float],
    remind: float | None = None,
) -> list[Transition]:
    """Put into the outbox what is owed because a silence has ended or somebody resolved an incident; gives what it was.

    Once: the log says so from then on, in the same transaction. A page that nobody has acknowledged is told again every
    `remind` seconds, where there are any.
    """
    log, now = store.log(run), clock()
    again = unanswered(log, now, remind) if remind is not None else set()
    ids = unsettled(log) | again
    if not ids:
        return []
    step = last_step(store, run)
    # a pass that was at work when somebody resolved an incident may have saved it as open
    as_they_stand = [by_hand(each, log) for each in stored(store, run, ids)]
    owing = [
        Transition(each, what, step)
        for each in as_they_stand
        if (what := owed(each, log, step, now, remind=each.id in again))
    ]
    if owing:
        moment = datetime.fromtimestamp(now, UTC).replace(tzinfo=None)
        store.save_told(
            run,
            _rows(store, run, channels, owing, log, now, late=True),
            [incident_row(each.incident, moment, moment) for each in owing],
            [said(each.incident, each.what, step, now) for each in owing],
        )
    return owing


def newest_words(changes: Sequence[Transition]) -> list[Transition]:
    """One word an incident: what began and ended between two passes is told once, as over."""
    first: dict[str, Transition] = {}
    last: dict[str, Transition] = {}
    for change in changes:
        first.setdefault(change.incident.id, change)
        last[change.incident.id] = change
    return [end if end.what == "resolved" else first[name] for name, end in last.items()]


def document_of(incident: Incident) -> IncidentDoc:
    """The incident as `check --json` writes it."""
    findings = [finding_row(f, incident.run, incident.attempt, incident.id, _NO_TIME) for f in incident.findings]
    return incident_doc(incident_row(incident, _NO_TIME, _NO_TIME), findings)


def _rows(
    store: Store,
    run: str,
    channels: Mapping[str, Takes],
    told: Sequence[Transition],
    log: Sequence[Operation],
    now: float,
    *,
    late: bool = False,
) -> list[dict[str, Any]]:
    context = context_of(store, run)
    rows: list[dict[str, Any]] = []
    for channel, takes in sorted(channels.items()):
        wanted = [(with_log(document_of(each.incident), log), each.what) for each in told if takes(each.incident)]
        for message in compose_all(run, wanted, context):
            # a word that is told late may have been told with the same words before
            turn = max(each.turn for each in log if each.incident_id in message.incidents) if late else 0
            rows.append(delivery(run, channel, message, now, turn))
    return rows


def delivery(run: str, channel: str, message: Message, now: float, turn: int) -> dict[str, Any]:
    """The row of the outbox; `turn` tells it from one with the same words (0: the same words are the same delivery)."""
    text = to_json(message)
    # what is told, not when: judging the same samples again gives the same delivery, which the outbox already knows
    told = json.loads(text)
    mark = (turn,) if turn else ()
    identity = stable_id(run, channel, message.transition, message.incidents, *mark, told["title"], told["blocks"])
    return {
        "delivery_id": identity,
        "incident_id": message.thread,
        "transition": message.transition,
        "channel": channel,
        "message": text,
        "message_id": message_id(identity),
        "created_at": now,
    }


def told_as(
    store: Store,
    run: str,
    channels: Mapping[str, Takes],
    told: Sequence[Transition],
    log: Sequence[Operation],
    now: float,
) -> list[dict[str, Any]]:
    """Rows of the outbox for words that another stage has found; `log` ends with them."""
    return _rows(store, run, channels, told, log, now)
