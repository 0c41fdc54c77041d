"""Signed links: who holds one may do the one thing that it says, to one incident, until it expires. Nothing else is secret."""

import base64
import hashlib
import hmac
from urllib.parse import quote

ACK = "ack"


def signed(base: str, secret: str, action: str, incident: str, expires: float) -> str:
    """The address under `base`; `expires` is a unix second."""
    until = int(expires)
    place = f"{base.rstrip('/')}/{action}/{quote(incident, safe='')}/{until}"
    return f"{place}/{_signature(secret, action, incident, until)}"


def verified(secret: str, action: str, incident: str, until: int, signature: str) -> bool:
    """Whether the signature is ours. Whether the time is over is for the caller to see."""
    known = _signature(secret, action, incident, until)
    return hmac.compare_digest(known.encode(), signature.encode("utf-8", "replace"))


def _signature(secret: str, action: str, incident: str, until: int) -> str:
    told = f"watchkeeper\n{action}\n{until}\n{incident}".encode()
    made = hmac.new(secret.encode(), told, hashlib.sha256).digest()
    return base64.urlsafe_b64encode(made).decode().rstrip("=")
