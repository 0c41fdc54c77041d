"""Transitions -> rows of the outbox: who is told what. The judge writes them in one transaction with the incidents."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from flows.channels.contract import message_id
from flows.incidents.incident import Incident, Transition, finding_row, incident_row, stable_id
from flows.messages.blocks import Message, to_json
from flows.messages.compose import compose_all
from flows.messages.document import IncidentDoc, incident_doc
from flows.messages.facts import Context
from flows.stages.document import context_of
from flows.store import Store

_NO_TIME = datetime(1970, 1, 1)  # noqa: DTZ001  # rows carry naive UTC; a document has no times
TOLD = frozenset({"opened", "reopened", "escalated", "resolved"})


def announcer(
    store: Store, run: str, channels: Mapping[str, int], *, clock: Callable[[], float], link: str = ""
) -> Callable[[Sequence[Transition]], Iterable[Mapping[str, Any]]]:
    """The `announce` of the judge: `channels` maps each channel's name to the least severity (0..4) that it is told of.

    An end is told wherever the incident was: by its worst severity. Lowered severities are kept, not told.
    """

    def announce(changes: Sequence[Transition]) -> list[Mapping[str, Any]]:
        context = context_of(store, run, link)
        rows: list[Mapping[str, Any]] = []
        for channel, least in sorted(channels.items()):
            wanted = [change for change in changes if change.what in TOLD and _worst(change.incident) >= least]
            rows += [_row(run, channel, message, clock()) for message in _messages(run, wanted, context)]
        return rows

    return announce


def document_of(incident: Incident) -> IncidentDoc:
    """The incident as `check --json` writes it."""
    findings = [finding_row(f, incident.run, incident.attempt, incident.id, _NO_TIME) for f in incident.findings]
    return incident_doc(incident_row(incident, _NO_TIME, _NO_TIME), findings)


def _worst(incident: Incident) -> int:
    return max([incident.severity, *(severity for _, severity in incident.severity_history)])


def _messages(run: str, changes: Sequence[Transition], context: Context) -> list[Message]:
    return compose_all(run, [(document_of(change.incident), change.what) for change in changes], context)


def _row(run: str, channel: str, message: Message, now: float) -> dict[str, Any]:
    text = to_json(message)
    # what is told, not when: judging the same samples again gives the same delivery, which the outbox already knows
    told = json.loads(text)
    identity = stable_id(run, channel, message.transition, message.incidents, told["title"], told["blocks"])
    return {
        "delivery_id": identity,
        "incident_id": message.thread,
        "transition": message.transition,
        "channel": channel,
        "message": text,
        "message_id": message_id(identity),
        "created_at": now,
    }
