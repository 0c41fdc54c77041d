"""What every channel does: take one delivery, give a receipt, or say why not, without naming a secret."""

import re
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import unquote, urlsplit

from flows.errors import DeliveryFailed
from flows.messages.blocks import Message

DOMAIN = "watchkeeper.invalid"  # RFC 2606: no mail is ever sent there, the ids are only names


@dataclass(frozen=True)
class Told:
    """A message that the channel has taken: `reference` is what the channel's receipt called it, `at` unix seconds."""

    message: Message
    reference: str
    at: float


@dataclass(frozen=True)
class Outgoing:
    """One message on its way. `message_id` is the same on every attempt, `thread_id` on every message of an incident.

    `chart` is the PNG, or None where there is none; `at` the time of this attempt, `since` that of the message (unix
    seconds); `again` says that an earlier attempt may have arrived; `before` is what this channel has taken of the same
    incidents, and of those that were told of together with them, oldest first.
    """

    message: Message
    message_id: str
    thread_id: str
    chart: bytes | None = field(default=None, repr=False)
    chart_name: str = "chart.png"
    at: float = 0.0
    since: float = 0.0
    again: bool = False
    before: tuple[Told, ...] = ()


@dataclass(frozen=True)
class Receipt:
    """The channel has taken the message. `note` says what it could not carry, `reference` what the service calls it."""

    channel: str
    note: str = ""
    reference: str = ""


class Channel(Protocol):
    """One way to reach people. `name` is the user's own; it is all that errors and logs may say of the address."""

    @property
    def name(self) -> str:
        """The name in the configuration."""

    def send(self, outgoing: Outgoing) -> Receipt:
        """Hand it over. Raises DeliveryFailed (try again later) or UndeliverableError (never)."""


class TryLater(DeliveryFailed):
    """The service asked for a pause of `retry_after_seconds`."""

    def __init__(self, text: str, retry_after_seconds: float) -> None:
        super().__init__(text)
        self.retry_after_seconds = retry_after_seconds


def message_id(delivery_id: str) -> str:
    """The Message-ID of a delivery: the same on every attempt."""
    return f"<{_token(delivery_id)}@{DOMAIN}>"


def thread_id(incident_id: str) -> str:
    """What ties all messages of one incident together."""
    return f"<incident-{_token(incident_id)}@{DOMAIN}>"


def _token(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", text) or "none"


def redact(text: str, url: str) -> str:
    """`text` without any part of `url` that may be a secret: user, password, path pieces, query values, fragment."""
    parts = urlsplit(url)
    secrets = {url, parts.netloc, parts.path, parts.query, parts.fragment, parts.username or "", parts.password or ""}
    secrets |= set(parts.path.split("/")) | set(re.split("[&=]", parts.query)) | set(parts.netloc.split("@"))
    secrets |= {unquote(secret) for secret in secrets}
    for secret in sorted((s for s in secrets if len(s) >= 4), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
