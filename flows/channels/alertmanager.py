"""Prometheus Alertmanager by its API v2: one alert an incident, told again in every pass as long as it fires.

https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml. An alert is known by its labels, and the severity is
one of them, because routes go by it: when it changes, the alert of the old one is ended in the same request. Alertmanager
forgets its alerts when it starts anew, and ends what it is not told of: each word therefore holds for HOLD_SECONDS,
so that neither a pass that fails nor a watch that is down for some hours ends a page.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from flows.channels.calls import Service
from flows.channels.contract import Outgoing, Receipt
from flows.channels.threads import opening, page_of
from flows.messages.as_pages import facts_of, links_of, text_of, title_of
from flows.messages.blocks import Message

HOLD_SECONDS = 24 * 3600.0
TEST_SECONDS = 60.0
SEVERITIES: Mapping[str, str] = {"S0": "info", "S1": "info", "S2": "warning", "S3": "critical", "S4": "critical"}


@dataclass(frozen=True)
class Alertmanager:
    """The base address; `token` is sent as a bearer's where a proxy wants one."""

    name: str
    address: str = field(repr=False)
    token: str = field(default="", repr=False)
    severities: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 15.0

    def send(self, outgoing: Outgoing) -> Receipt:
        """Fire or end the alert of a message. Who has it in hand is no word for Alertmanager: that is a silence there."""
        page = page_of(outgoing)
        if page.action in ("none", "acknowledge"):
            return Receipt(self.name, "nothing is told there of this", page.key)
        first = opening(outgoing)
        begun = first.at if first is not None else outgoing.since
        labels = self._labels(outgoing.message, page.key)
        hold = {"resolve": 0.0, "test": TEST_SECONDS}.get(page.action, HOLD_SECONDS)
        ended = [
            each
            for message in {told.message.severity: told.message for told in outgoing.before}.values()
            if (each := self._labels(message, page.key)) != labels
        ]
        alerts = [self._alert(outgoing.message, labels, begun, outgoing.at + hold)]
        alerts += [self._alert(outgoing.message, each, begun, outgoing.at) for each in ended]
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        service = Service(f"channel {self.name!r} (alertmanager)", headers, self.timeout_seconds)
        service.ask("POST", f"{self.address.rstrip('/')}/api/v2/alerts", body=alerts)
        return Receipt(self.name, "", page.key)

    def keep(self, outgoing: Outgoing) -> None:
        """Tell again what still fires: the newest word, as it was sent."""
        self.send(outgoing)

    def _labels(self, message: Message, key: str) -> dict[str, str]:
        severity = {**SEVERITIES, **self.severities}[message.severity]
        return {"alertname": "watchkeeper", "run": message.run or "none", "incident": key, "severity": severity}

    def _alert(self, message: Message, labels: Mapping[str, str], begun: float, end: float) -> dict[str, Any]:
        facts = facts_of(message, 500)
        about = {
            "summary": title_of(message, 500),
            "level": message.severity,
            "needed": facts.get("Needed", ""),
            "description": text_of(message, 8000),
        }
        links = links_of(message)
        return {
            "labels": dict(labels),
            "annotations": {key: text for key, text in about.items() if text},
            "startsAt": _time(min(begun, end)),
            "endsAt": _time(end),
            **({"generatorURL": links[0][1]} if links else {}),
        }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
