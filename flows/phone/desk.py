"""What is answered to a request: a page to confirm, an acknowledgement that is written down, or a plain no.

A GET changes nothing, whoever fetches it. An acknowledgement is the same line of the log as that of `incidents ack`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

from flows.errors import TransientError
from flows.incidents.people import of, standing
from flows.links import ACK, verified
from flows.messages.plain import plain
from flows.phone import callbacks, pages
from flows.records import Operation
from flows.stages.act import act
from flows.stages.notify import told
from flows.store import Store

_LINK = re.compile(rf"/{ACK}/([^/?#]{{1,300}})/(\d{{1,12}})/([\w-]{{1,100}})")


@dataclass(frozen=True)
class Reply:
    """Status and page; JSON-speaking callers read the status only."""

    status: int
    html: str = ""


@dataclass(frozen=True)
class Desk:
    """What the answers hang on. `pagers` are the channels of each provider by name; a provider without secret is closed."""

    open_store: Callable[[], Store]
    clock: Callable[[], float]
    secret: str = field(repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    pagers: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """`headers` by lower-case name. Never raises for what is in a request."""
        try:
            if path == "/health" and method == "GET":
                return Reply(200, pages.note("watchkeeper", "It answers."))
            if found := _LINK.fullmatch(path):
                return self._link(method, unquote(found[1]), int(found[2]), found[3], body)
            if path.startswith("/callbacks/") and method == "POST":
                return self._callback(path.removeprefix("/callbacks/"), headers, body)
        except TransientError:  # the store is held by somebody: providers and people try again
            return Reply(503, pages.note("Not now", "The record is busy. Try again in a minute."))
        return Reply(404, pages.note("Nothing here", "There is no such page."))

    def _link(self, method: str, name: str, until: int, signature: str, body: bytes) -> Reply:
        if not verified(self.secret, ACK, name, until, signature):
            return Reply(403, pages.note("No", "This link is not valid."))
        if self.clock() > until:
            return Reply(410, pages.note("Too late", "This link has expired; `watchkeeper incidents ack` still works."))
        store = self.open_store()
        row = next((each for each in store.incidents() if each["incident_id"] == name), None)
        if row is None:
            return Reply(404, pages.note("Nothing here", "The record has no such incident."))
        return self._confirm(method, store, row, body)

    def _confirm(self, method: str, store: Store, row: Mapping[str, Any], body: bytes) -> Reply:
        if row["status"] == "resolved":
            return Reply(200, pages.note(pages.sentence(row), "It is over; there is nothing to acknowledge."))
        if method != "POST":
            return Reply(200, pages.ask(row, _held_by(store, row)))
        who, why = _filled_in(body)
        if not who:
            return Reply(400, pages.ask(row, _held_by(store, row)))
        self._acknowledge(store, row, who, why)
        return Reply(200, pages.note(pages.sentence(row), f"{who} has it in hand. If it grows worse, you are told."))

    def _callback(self, provider: str, headers: Mapping[str, str], body: bytes) -> Reply:
        checks = {"pagerduty": callbacks.is_pagerduty, "opsgenie": callbacks.is_opsgenie}
        secret = self.secrets.get(provider, "")
        if provider not in checks or not secret:
            return Reply(404)
        if not checks[provider](secret, headers, body):
            return Reply(401)
        read = callbacks.from_pagerduty if provider == "pagerduty" else callbacks.from_opsgenie
        answered = read(body)
        if answered is None:
            return Reply(202)
        store = self.open_store()
        for row in self._paged(store, provider, answered.key):
            self._acknowledge(store, row, answered.who, answered.why)
        return Reply(202)

    def _paged(self, store: Store, provider: str, key: str) -> list[dict[str, Any]]:
        """The open incidents of a page: the one that gave it its key, and those that were told of in the same breath."""
        rows = {row["incident_id"]: row for row in store.open_incidents()}
        first = next((row for row in store.incidents() if row["incident_id"] == key), None)
        names = {key}
        for channel in self.pagers.get(provider, ()) if first is not None else ():
            taken = told(store.told(first["run"], channel, [key]))  # type: ignore[index]  # there is one
            names.update(name for each in taken if each.reference == key for name in each.message.incidents)
        return [rows[name] for name in sorted(names) if name in rows]

    def _acknowledge(self, store: Store, row: Mapping[str, Any], who: str, why: str) -> None:
        """Once: a form that is sent twice and a callback that is repeated say nothing new."""
        if _held_by(store, row) != who:
            act(store, row, Operation("", "ack", who, self.clock(), why))


def _filled_in(body: bytes) -> tuple[str, str]:
    """Name and reason of the form; empty for what is none."""
    try:
        form = parse_qs(body.decode("utf-8", "replace"), max_num_fields=10)
    except ValueError:
        return "", ""
    return plain(form.get("who", [""])[0], 60), plain(form.get("why", [""])[0], 300)


def _held_by(store: Store, row: Mapping[str, Any]) -> str:
    done = standing(of(store.log(row["run"]), row["incident_id"])).acknowledged
    return "" if done is None else done.who
