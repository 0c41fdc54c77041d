"""PagerDuty by its Events API v2: a page that is triggered, acknowledged and resolved under one deduplication key.

https://developer.pagerduty.com/docs/events-api-v2. The key is the incident's id. A trigger under the key of an open page is
only logged there and wakes nobody, so an incident that grows worse ends its page and triggers it anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

from flows.channels.calls import Service
from flows.channels.contract import Outgoing, Receipt
from flows.channels.threads import page_of
from flows.messages.as_pages import facts_of, links_of, text_of, title_of
from flows.messages.plain import cut, quiet

ADDRESS = "https://events.pagerduty.com"  # in Europe https://events.eu.pagerduty.com
SEVERITIES: Mapping[str, str] = {"S0": "info", "S1": "info", "S2": "warning", "S3": "error", "S4": "critical"}
WORDS = frozenset({"critical", "error", "warning", "info"})


@dataclass(frozen=True)
class PagerDuty:
    """The integration key of a service there; `severities` says which of ours is which of theirs."""

    takes_acks: ClassVar[bool] = True  # to hear that somebody has it rings nobody
    name: str
    key: str = field(repr=False)
    severities: Mapping[str, str] = field(default_factory=dict)
    address: str = ADDRESS
    timeout_seconds: float = 15.0

    def send(self, outgoing: Outgoing) -> Receipt:
        """Trigger, acknowledge or resolve. A word on something that has no open page there is not sent: it would make one."""
        page = page_of(outgoing)
        if page.action == "none":
            return Receipt(self.name, "nothing is open there that this word is about", page.key)
        if page.action == "raise":
            self._tell({"event_action": "resolve", "dedup_key": page.key})
        action = page.action if page.action in ("acknowledge", "resolve") else "trigger"
        about = self._about(outgoing) if action == "trigger" else {}
        self._tell({"event_action": action, "dedup_key": page.key, **about})
        if page.action == "test":
            self._tell({"event_action": "resolve", "dedup_key": page.key})
        return Receipt(self.name, "", page.key)

    def _about(self, outgoing: Outgoing) -> dict[str, Any]:
        message = outgoing.message
        when = datetime.fromtimestamp(outgoing.since, UTC).isoformat()
        links = links_of(message)
        return {
            "client": "watchkeeper",
            **({"client_url": links[0][1]} if links else {}),
            "links": [{"href": url, "text": text} for text, url in links],
            "payload": {
                "summary": title_of(message, 1024),
                "source": cut(quiet(message.run), 255) or "watchkeeper",
                "severity": {**SEVERITIES, **self.severities}[message.severity],
                "timestamp": when,
                "custom_details": {**facts_of(message, 1000), "text": text_of(message, 20_000)},
            },
        }

    def _tell(self, event: Mapping[str, Any]) -> None:
        service = Service(f"channel {self.name!r} (pagerduty)", timeout_seconds=self.timeout_seconds)
        answer = service.ask("POST", f"{self.address.rstrip('/')}/v2/enqueue", body={"routing_key": self.key, **event})
        told = answer.json()
        if not isinstance(told, dict) or told.get("status") != "success":
            raise service.refusal(answer, "no word of success in it")
