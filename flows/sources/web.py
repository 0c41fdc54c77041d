"""Ask a server for JSON: bounded in time, size and tries, and what goes wrong told apart as for good or for now.

No header, key or body of a request ever stands in an error. `netrc` and proxies of the environment are honoured.
"""

import json
import logging
import os
import random
import ssl
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from functools import cache
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from flows.errors import SourceUnavailable
from flows.sources.contract import refuse

TRIES = 5
PATIENCE = 60.0  # seconds after which there is no further try: other runs are waiting
TIMEOUT = httpx.Timeout(30.0, connect=10.0)
WHOLE_SECONDS = 120.0  # of one answer, however slowly it drips
MAX_ANSWER_BYTES = 128 << 20
LONGEST_WAIT = 30.0  # a server that asks for more is asked again by the next pass
_BLOCK = 1 << 16
T = TypeVar("T")


class TooMuch(SourceUnavailable):
    """The answer is too large; a smaller question may do."""


def open_client(
    headers: Mapping[str, str] | None = None, auth: httpx.Auth | None = None, *, redirects: bool = False
) -> httpx.Client:
    """A client. Without `redirects` it follows none: a proxy's login page would look like an answer."""
    # its lines at INFO hold whole addresses
    logging.getLogger("httpx").setLevel(logging.WARNING)
    return httpx.Client(
        timeout=TIMEOUT, headers=dict(headers or {}), auth=auth, verify=_certificates(),
        follow_redirects=redirects, max_redirects=5,
    )  # fmt: skip


@cache
def _certificates() -> ssl.SSLContext:
    """Read once: it takes longer than a question."""
    return httpx.create_ssl_context()


def netrc_login(host: str) -> tuple[str, str] | None:
    """User and password for a host from ~/.netrc or $NETRC, None where there is none."""
    path = Path(os.environ.get("NETRC") or "~/.netrc").expanduser()
    try:
        found = netrc(str(path)).authenticators(host)
    except (OSError, NetrcParseError):
        return None
    return (found[0], found[2]) if found else None


def ask(
    client: httpx.Client, url: str, place: str, *, params: Any = None, body: Any = None, login: str = "log in"
) -> Any:
    """The parsed answer to a GET, or to a POST of `body`. `place` is what messages call the source.

    Raises BadInput for 4xx (`login` says how to mend 401 and 403), SourceUnavailable when TRIES were in vain.
    """

    def once() -> Any:
        status, headers, content = _once(client, url, place, params, body)
        check_status(place, status, headers, content, login)
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise Again("the answer is no whole JSON (a proxy's page, or cut off)") from None

    return retried(place, once)


class Again(Exception):
    """A try failed for now; `wait` are the seconds that the server asks for."""

    def __init__(self, why: str, wait: float = 0.0) -> None:
        super().__init__(why)
        self.wait = wait


def retried(place: str, once: Callable[[], T]) -> T:
    """What `once` gives, tried TRIES times while it raises Again or the connection fails.

    Raises SourceUnavailable in the end, or at once where the server asks to wait longer than LONGEST_WAIT.
    """
    why, begun = "", time.monotonic()
    for attempt in range(1, TRIES + 1):
        wait = 0.0
        try:
            return once()
        except Again as error:
            why, wait = str(error), error.wait
        except httpx.TimeoutException:
            why = "it does not answer in time"
        except httpx.TransportError as error:
            why = f"the connection failed ({type(error).__name__})"
        except (httpx.InvalidURL, httpx.RequestError) as error:
            why = f"no sound answer ({type(error).__name__})"
        if wait > LONGEST_WAIT:
            raise SourceUnavailable(f"{place}: {why} and asks to wait {wait:.0f} s; the next pass asks again")
        if attempt == TRIES or time.monotonic() - begun > PATIENCE:
            break
        # half of it by chance, so that many watchers do not come back at once
        pause(max(wait, 2.0 ** (attempt - 2) * (0.5 + 0.5 * random.random())))
    raise SourceUnavailable(f"{place}: {why}, {attempt} times; is the server there?")


def check_status(place: str, status: int, headers: httpx.Headers, content: bytes, login: str) -> None:
    """Raises Again for what may pass (429, 5xx, a redirect to elsewhere), BadInput for other refusals."""
    if status == 429 or status >= 500:
        raise Again(f"it answers {status}", _retry_after(headers) or 0.0)
    if status >= 400:
        raise _refused(place, status, content, login)
    if status >= 300:
        raise Again(f"it redirects elsewhere ({status}): a proxy or a login page")


def pause(seconds: float) -> None:
    """Wait before the next try."""
    time.sleep(seconds)


def _once(client: httpx.Client, url: str, place: str, params: Any, body: Any) -> tuple[int, httpx.Headers, bytes]:
    until = time.monotonic() + WHOLE_SECONDS
    content = bytearray()
    with client.stream("GET" if body is None else "POST", url, params=params, json=body) as response:
        for block in response.iter_bytes(_BLOCK):
            content += block
            if len(content) > MAX_ANSWER_BYTES:
                raise TooMuch(f"{place}: an answer of more than {MAX_ANSWER_BYTES >> 20} MB; ask for less at once")
            if time.monotonic() > until:
                raise httpx.ReadTimeout("an answer that drips")
        return response.status_code, response.headers, bytes(content)


def _retry_after(headers: httpx.Headers) -> float | None:
    """Seconds that the server asks for: a number, or a date that is compared with its own clock."""
    text = headers.get("retry-after", "")
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        then, now = parsedate_to_datetime(text), parsedate_to_datetime(headers["date"])
        return max(0.0, (then - now).total_seconds())
    except (KeyError, TypeError, ValueError):
        return None


def _refused(place: str, status: int, content: bytes, login: str) -> Exception:
    if status in {401, 403}:
        return refuse(place, f"it is not allowed to be read ({status})", login)
    if status in {404, 410}:
        return refuse(place, f"no such run there ({status})", "check the address")
    return refuse(place, f"the server refuses the question ({status}{_said(content)})", "check the address")


def _said(content: bytes) -> str:
    """What the server says about it, where that is a short message in JSON."""
    try:
        answer = json.loads(content)
    except ValueError:
        return ""
    found = next((answer[key] for key in ("message", "error") if isinstance(answer, dict) and answer.get(key)), "")
    return f": {found[:200]}" if isinstance(found, str) and found else ""


def origin(url: str) -> str:
    """`https://host:port` of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
