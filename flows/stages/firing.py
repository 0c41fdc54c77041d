"""What a service must hear more than once: that a page still fires (Alertmanager), and that somebody has it in hand."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from flows.channels.contract import Channel, Outgoing, message_id, thread_id
from flows.channels.threads import FIRING, left_of
from flows.incidents.incident import stable_id
from flows.incidents.people import of, standing
from flows.messages.blocks import Message, to_json
from flows.messages.compose import compose
from flows.stages.announce import document_of
from flows.stages.document import context_of, with_log
from flows.stages.judge import stored
from flows.stages.notify import Paging, told
from flows.store import Store


class Keeper(Protocol):
    """A channel whose service ends what it is not told of."""

    def keep(self, outgoing: Outgoing) -> None:
        """Tell once more that it fires."""


def keepers(channels: Mapping[str, Channel], names: Iterable[str]) -> list[tuple[str, Keeper]]:
    """Those of the channels that must be told again, by name."""
    found: list[tuple[str, Any]] = [(name, channels[name]) for name in names if name in channels]
    return [(name, channel) for name, channel in found if hasattr(channel, "keep")]


def keep_firing(store: Store, run: str, name: str, keeper: Keeper, clock: Callable[[], float], pages: Paging) -> int:
    """Tell one channel again of every open page of a run; returns how many. Raises what the channel raises.

    `pages` gives a message its links to the operating record, as `notify` does.
    """
    ids = [row["incident_id"] for row in store.open_incidents(run)]
    taken = told(store.told(run, name, ids)) if ids else []
    keys = dict.fromkeys(each.reference for each in taken if each.reference)
    kept = 0
    for key in keys:
        mine = [each for each in taken if each.reference == key]
        fired = [n for n, each in enumerate(mine) if each.message.transition in FIRING]
        if fired and left_of([each.message for each in mine]) & set(ids):
            newest = mine[fired[-1]]
            thread = thread_id(newest.message.thread)
            since = mine[0].at
            before, message = tuple(mine[: fired[-1]]), pages(newest.message)
            keeper.keep(Outgoing(message, message_id(key), thread, at=clock(), since=since, before=before))
            kept += 1
    return kept


def tell_in_hand(
    store: Store,
    run: str,
    channels: Mapping[str, Channel],
    names: Iterable[str],
    clock: Callable[[], float],
) -> int:
    """Put into the outbox, once, that an open incident was acknowledged; returns how many messages.

    Only for channels that have told of it and where this rings nobody: pages, and messages that are edited in place.
    """
    hearing = [name for name in names if getattr(channels.get(name), "takes_acks", False)]
    if not hearing:
        return 0
    log, now = store.log(run), clock()
    acks = {
        row["incident_id"]: done.turn
        for row in store.open_incidents(run)
        if (done := standing(of(log, row["incident_id"])).acknowledged) is not None
    }
    wanted = {
        stable_id(run, name, "acknowledged", one, turn): (name, one) for one, turn in acks.items() for name in hearing
    }
    for identity in store.known_deliveries(list(wanted)) if wanted else ():
        del wanted[identity]
    wanted = {key: pair for key, pair in wanted.items() if store.told(run, pair[0], [pair[1]])}
    if not wanted:
        return 0
    context = context_of(store, run)
    incidents = {each.id: each for each in stored(store, run, {one for _, one in wanted.values()})}
    rows = [
        _row(
            identity, name, one, compose(run, with_log(document_of(incidents[one]), log), "acknowledged", context), now
        )
        for identity, (name, one) in wanted.items()
        if one in incidents
    ]
    store.save_told(run, rows, [], [])
    return len(rows)


def _row(identity: str, channel: str, incident: str, message: Message, now: float) -> dict[str, Any]:
    return {
        "delivery_id": identity,
        "incident_id": incident,
        "transition": "acknowledged",
        "channel": channel,
        "message": to_json(message),
        "message_id": message_id(identity),
        "created_at": now,
    }
