"""The links to the operating record that a message is given on its way out: the page of its incident, the page of its run.

They stand in no store: a message that waits goes by the address and the allow-list of the pass in which it leaves.
"""

from dataclasses import replace
from functools import cache, partial

from flows.messages.blocks import Link, Message
from flows.record.places import Served
from flows.stages.notify import Paging
from flows.store import Store


def paging(store: Store, run: str, served: Served) -> Paging:
    """Gives a message of the run its links; leaves it as it is where the record does not publish what it is about."""
    whole = served.run(run)
    pages = cache(partial(pages_of, store, run, served))

    def linked(message: Message) -> Message:
        if not whole:
            return message
        if len(message.incidents) > 1:
            places = [("Page of the gravest", pages().get(message.thread, "")), ("All of them", whole)]
        elif message.incidents:
            places = [("Page of this incident", pages().get(message.incidents[0], ""))]
        else:
            places = [("Page of this run", whole)]
        links = (Link(text, url) for text, url in places if url)
        return replace(message, blocks=(*message.blocks, *links))

    return linked


def pages_of(store: Store, run: str, served: Served) -> dict[str, str]:
    """The address of each incident of a run that has one, by id."""
    if not served.run(run):
        return {}
    metrics: dict[str, list[str]] = {}
    for finding in store.findings(run):
        metrics.setdefault(finding["incident_id"], []).append(finding["metric"])
    found = {row["incident_id"]: row["severity"] for row in store.incidents(run)}
    pages = {i: served.incident(run, i, severity, metrics.get(i, [])) for i, severity in found.items()}
    return {identity: url for identity, url in pages.items() if url}
