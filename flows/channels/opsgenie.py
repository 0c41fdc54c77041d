"""Opsgenie, and Jira Service Management which has taken over its alerts API: one alert an incident, by its alias.

https://docs.opsgenie.com/docs/alert-api. The alias is the incident's id. An open alert that is created again is only counted
there and wakes nobody, so an incident that grows worse closes its alert and creates it anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import quote

from flows.channels.calls import Service
from flows.channels.contract import Outgoing, Receipt
from flows.channels.threads import page_of
from flows.messages.as_pages import facts_of, links_of, text_of, title_of
from flows.messages.plain import cut, quiet

# in Europe https://api.eu.opsgenie.com; Jira Service Management https://api.atlassian.com/jsm/ops/integration
ADDRESS = "https://api.opsgenie.com"
SEVERITIES: Mapping[str, str] = {"S0": "P5", "S1": "P4", "S2": "P3", "S3": "P2", "S4": "P1"}
WORDS = frozenset({"P1", "P2", "P3", "P4", "P5"})
MOST_DETAILS = 7000  # of 8,000 characters in all details together


@dataclass(frozen=True)
class Opsgenie:
    """The key of an API integration; `severities` says which of ours is which priority."""

    takes_acks: ClassVar[bool] = True  # to hear that somebody has it rings nobody
    name: str
    key: str = field(repr=False)
    severities: Mapping[str, str] = field(default_factory=dict)
    address: str = ADDRESS
    timeout_seconds: float = 15.0

    def send(self, outgoing: Outgoing) -> Receipt:
        """Create, acknowledge or close. A word on something that has no open alert there is not sent."""
        page = page_of(outgoing)
        title = title_of(outgoing.message, 1000)
        match page.action:
            case "none":
                return Receipt(self.name, "nothing is open there that this word is about", page.key)
            case "resolve":
                self._about(page.key, "close", title)
            case "acknowledge":
                self._about(page.key, "acknowledge", title)
            case "update":
                self._about(page.key, "notes", text_of(outgoing.message, 20_000))
            case "raise":
                self._about(page.key, "close", "it grew worse and is told anew")
                self._create(outgoing, page.key)
            case _:
                self._create(outgoing, page.key)
        if page.action == "test":
            self._about(page.key, "close", "it was a test")
        return Receipt(self.name, "", page.key)

    def _create(self, outgoing: Outgoing, key: str) -> None:
        message = outgoing.message
        # the link to the page first: what is too much goes from the end
        details = {cut(quiet(text), 100): cut(url, 600) for text, url in links_of(message)} | facts_of(message, 600)
        while sum(len(k) + len(v) for k, v in details.items()) > MOST_DETAILS:
            details.popitem()
        self._ask(
            "/v2/alerts",
            {
                "message": title_of(message, 130),
                "alias": cut(key, 512),
                "description": text_of(message, 15_000),
                "details": details,
                "entity": cut(quiet(message.run), 512),
                "source": "watchkeeper",
                "priority": {**SEVERITIES, **self.severities}[message.severity],
                "tags": [message.severity],
            },
        )

    def _about(self, key: str, what: str, note: str) -> None:
        where = f"/v2/alerts/{quote(cut(key, 512), safe='')}/{what}?identifierType=alias"
        self._ask(where, {"source": "watchkeeper", "note": note}, accept=(404,))  # closed there is what we wanted

    def _ask(self, where: str, body: Mapping[str, Any], accept: Any = ()) -> None:
        headers = {"Authorization": f"GenieKey {self.key}"}
        service = Service(f"channel {self.name!r} (opsgenie)", headers, self.timeout_seconds)
        answer = service.ask("POST", f"{self.address.rstrip('/')}{where}", body=body, accept=accept)
        told = answer.json()
        if answer.status != 404 and (not isinstance(told, dict) or "requestId" not in told):
            raise service.refusal(answer, "no request id in it")
