"""Tells an outside monitor (a dead man's switch) that a pass went well. Its silence is what raises the alarm there."""

import http.client
import urllib.error
import urllib.request

from flows.errors import DeliveryFailed


def ping(url: str, timeout_seconds: float = 10.0) -> None:
    """GET the URL; raises DeliveryFailed, without the URL, where there is no 2xx answer in time."""
    if not url.lower().startswith(("http://", "https://")):
        raise DeliveryFailed("heartbeat: its URL does not begin with http:// or https://; set watch.heartbeat_url")
    try:
        with urllib.request.urlopen(url, timeout=timeout_seconds):
            return
    except urllib.error.HTTPError as error:
        reason = f"status {error.code}"
        error.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = type(getattr(error, "reason", None) or error).__name__
    raise DeliveryFailed(f"heartbeat: no good answer ({reason}); check watch.heartbeat_url")
