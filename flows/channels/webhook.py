"""A JSON document to any address, signed. Its fields are in docs/channels.md.

The headers are those of Standard Webhooks (https://www.standardwebhooks.com), for which there are verifying libraries in many
languages: webhook-id (the same on a repeat), webhook-timestamp, and webhook-signature, a HMAC-SHA256 over all three parts.
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

from flows.channels.calls import Service
from flows.channels.contract import Outgoing, Receipt
from flows.channels.threads import named, page_of
from flows.messages.as_pages import facts_of, links_of, text_of, title_of

SCHEMA = "watchkeeper.alert/1"


@dataclass(frozen=True)
class Webhook:
    """The address, and the secret that both sides know ("" signs nothing)."""

    takes_acks: ClassVar[bool] = True  # to hear that somebody has it rings nobody
    name: str
    address: str = field(repr=False)
    secret: str = field(default="", repr=False)
    severities: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 15.0

    def send(self, outgoing: Outgoing) -> Receipt:
        """Post the document; any 2xx is a receipt."""
        document, key = self._document(outgoing)
        body = json.dumps(document, ensure_ascii=False).encode()
        identity = outgoing.message_id.strip("<>")
        moment = f"{outgoing.at:.0f}"
        headers = {
            "Content-Type": "application/json",
            "webhook-id": identity,
            "webhook-timestamp": moment,
            "Idempotency-Key": identity,
        }
        if self.secret:
            headers["webhook-signature"] = f"v1,{signature(self.secret, identity, moment, body)}"
        service = Service(f"channel {self.name!r} (webhook)", headers, self.timeout_seconds)
        service.ask("POST", self.address, content=body)
        return Receipt(self.name, "the document carries no picture" if outgoing.chart else "", key)

    def _document(self, outgoing: Outgoing) -> tuple[dict[str, Any], str]:
        message, page = outgoing.message, page_of(outgoing)
        actions = {"raise": "trigger", "none": "update"}
        document = {
            "schema": SCHEMA,
            "action": actions.get(page.action, page.action),
            "dedup_key": page.key,
            "message_id": outgoing.message_id.strip("<>"),
            "created_at": datetime.fromtimestamp(outgoing.since, UTC).isoformat(),
            "run": message.run,
            "severity": self.severities.get(message.severity, message.severity),
            "transition": message.transition,
            "title": title_of(message, 1000),
            "incidents": list(named(message))[:1000],
            "over": list(message.over)[:1000],
            "still_open": sorted(page.left)[:1000],
            "facts": facts_of(message, 2000),
            "links": [{"text": text, "url": url} for text, url in links_of(message)],
            "text": text_of(message, 60_000),
        }
        return document, page.key


def signature(secret: str, identity: str, moment: str, body: bytes) -> str:
    """Base64 of the HMAC over `identity.moment.body`; a secret `whsec_…` is base64, any other is taken as it is."""
    key = secret.encode()
    if secret.startswith("whsec_"):
        try:
            key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        except (binascii.Error, ValueError):
            key = secret.encode()
    return base64.b64encode(hmac.new(key, f"{identity}.{moment}.".encode() + body, hashlib.sha256).digest()).decode()
