"""What PagerDuty and Opsgenie say when somebody answers there: whose it is, and whether it is really theirs. Pure."""

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flows.messages.plain import plain

WORDS: Mapping[str, tuple[str, str]] = {
    # a page that somebody ends there is in hand: whether the run is well is for the watch to see
    "incident.acknowledged": ("PagerDuty", "acknowledged"),
    "incident.resolved": ("PagerDuty", "resolved"),
    "Acknowledge": ("Opsgenie", "acknowledged"),
    "Close": ("Opsgenie", "closed"),
}


@dataclass(frozen=True)
class Answered:
    """Who has answered which page: `key` is the one that we gave it."""

    key: str
    who: str
    why: str


def is_pagerduty(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """X-PagerDuty-Signature holds one `v1=` HMAC-SHA256 of the body for each secret that is valid (webhooks v3)."""
    known = "v1=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    given = headers.get("x-pagerduty-signature", "").split(",")
    return any(hmac.compare_digest(known.encode(), each.strip().encode("utf-8", "replace")) for each in given)


def is_opsgenie(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Opsgenie signs nothing: the webhook there is given a header `Authorization: Bearer SECRET`."""
    return hmac.compare_digest(f"Bearer {secret}".encode(), headers.get("authorization", "").encode("utf-8", "replace"))


def from_pagerduty(body: bytes) -> Answered | None:
    """None for anything but a person's answer: what we tell PagerDuty ourselves comes back as well."""
    event = _at(_read(body), "event")
    agent, key = _at(event, "agent"), _at(event, "data").get("incident_key")
    if agent.get("type") not in ("user", "user_reference"):
        return None
    return _answered(event.get("event_type"), key, agent.get("summary"))


def from_opsgenie(body: bytes) -> Answered | None:
    """None for anything but a person's answer."""
    told = _read(body)
    if str(_at(told, "source").get("type", "")).lower() == "api":
        return None
    return _answered(told.get("action"), _at(told, "alert").get("alias"), _at(told, "alert").get("username"))


def _answered(word: Any, key: Any, who: Any) -> Answered | None:
    if not isinstance(word, str) or word not in WORDS or not isinstance(key, str) or not key:
        return None
    service, did = WORDS[word]
    name = plain(who, 60) if isinstance(who, str) and who.strip() else "somebody"
    return Answered(key, f"{name} ({service})", f"{did} in {service}")


def _read(body: bytes) -> dict[str, Any]:
    """The document; an empty one where it is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _at(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = document.get(key)
    return found if isinstance(found, dict) else {}
