"""One HTTP request to a service, bounded in time and size; what goes wrong told apart as for now and for good.

No part of an address, a header or a body ever stands in an error: any of them may be a secret.
"""

import json
import logging
import math
import ssl
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any

from flows.channels.contract import TryLater
from flows.errors import DeliveryFailed, UndeliverableError

MAX_ANSWER_BYTES = 4 << 20
LONGEST_PAUSE_SECONDS = 3600.0  # a service that asks for a day is asked again within the hour: a page may hang on it
RATE_PAUSE_SECONDS = 60.0  # where a service limits its rate and does not say for how long
_TRY_AGAIN = frozenset({408, 425, 429})


@dataclass(frozen=True)
class Answer:
    """What came back: the status is 2xx, or one that the caller asked for."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    content: bytes

    def json(self) -> Any:
        """The parsed body; None where it is no JSON."""
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            return None

    @property
    def is_a_page(self) -> bool:
        """Whether it is HTML: a proxy's or a log-in's words, not those of the service."""
        return "html" in self.headers.get("content-type", "") or self.content.lstrip()[:1] == b"<"


@dataclass(frozen=True)
class Service:
    """A service that speaks HTTP. `who` is how errors call it, `headers` may hold its token."""

    who: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_seconds: float = 15.0

    def ask(
        self,
        method: str,
        url: str,
        *,
        body: Any = None,
        content: bytes | None = None,
        data: Mapping[str, str] | None = None,
        files: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        accept: Collection[int] = (),
    ) -> Answer:
        """The answer, if its status is 2xx or in `accept`; `body` is sent as JSON, `content` as it is.

        Raises TryLater, DeliveryFailed (no answer in time, a redirect, 408, 425, 5xx, a page instead of an answer) or
        UndeliverableError (any other 4xx).
        """
        answer = self._request(method, url, body, content, data, files, {**self.headers, **(headers or {})})
        if answer.status in accept:
            return answer
        if not 200 <= answer.status < 300:
            raise self.refusal(answer)
        if answer.is_a_page:
            raise DeliveryFailed(f"{self.who} answered with a web page; a proxy or a log-in stands in between")
        return answer

    def refusal(self, answer: Answer, why: str = "") -> DeliveryFailed | UndeliverableError:
        """The error for an answer; `why` is text of ours, or a code that was looked at."""
        said = f"status {answer.status}" + (f", {why}" if why else "")
        pause = pause_of(answer.headers)
        if answer.status == 429 or (pause is not None and answer.status in (403, 503)):
            wait = RATE_PAUSE_SECONDS if pause is None else pause
            return TryLater(f"{self.who} asks for a pause of {wait:.0f} s ({said})", wait)
        if 400 <= answer.status < 500 and answer.status not in _TRY_AGAIN:
            return UndeliverableError(f"{self.who} refused the message ({said}); check its token, address and rights")
        return DeliveryFailed(f"{self.who} did not take the message ({said})")

    def _request(
        self, method: str, url: str, body: Any, content: bytes | None, data: Any, files: Any, headers: Mapping[str, str]
    ) -> Answer:
        import httpx

        logging.getLogger("httpx").setLevel(logging.WARNING)  # its lines at INFO hold whole addresses
        give_up = time.monotonic() + 3 * self.timeout_seconds
        try:
            with (
                httpx.Client(timeout=self.timeout_seconds, verify=_certificates()) as client,
                client.stream(
                    method, url, json=body, content=content, data=data, files=files, headers=dict(headers)
                ) as answer,
            ):
                pieces, size = [], 0
                for piece in answer.iter_bytes():
                    pieces.append(piece)
                    size += len(piece)
                    if size > MAX_ANSWER_BYTES or time.monotonic() > give_up:
                        break  # the status says enough
                return Answer(answer.status_code, {k.lower(): v for k, v in answer.headers.items()}, b"".join(pieces))
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError, UnicodeError):
            raise UndeliverableError(f"{self.who}: its address or token cannot be sent; check both") from None
        except (httpx.HTTPError, OSError) as error:
            reason = "no answer in time" if isinstance(error, httpx.TimeoutException) else type(error).__name__
            raise DeliveryFailed(f"{self.who} did not take the message: {reason}") from None


def pause_of(headers: Mapping[str, str]) -> float | None:
    """The seconds of Retry-After, which may be a date; None where it says nothing that can be read."""
    given = headers.get("retry-after", "").strip()
    try:
        seconds = float(given)
    except ValueError:
        try:
            now = parsedate_to_datetime(headers.get("date", ""))
            seconds = (parsedate_to_datetime(given) - now).total_seconds()
        except (ValueError, TypeError):
            return None
    return min(max(seconds, 0.0), LONGEST_PAUSE_SECONDS) if math.isfinite(seconds) else None


@cache
def _certificates() -> ssl.SSLContext:
    """Read once: it takes longer than a request."""
    import httpx

    return httpx.create_ssl_context()
