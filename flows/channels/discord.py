"""Discord by a webhook: one message an incident that is kept current, and a short new one where people must hear.

https://docs.discord.com/developers/resources/webhook. An edit calls nobody, hence the short one; in a forum channel an
incident is a post, and every word goes into it. A webhook takes no nonce and lists no messages: a repeat after a
kill cannot be told from a first one there, and stands twice.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

from flows.channels.calls import Answer, Service
from flows.channels.contract import Outgoing, Receipt, TryLater
from flows.channels.threads import opening, replaces
from flows.errors import BadConfig, DeliveryFailed
from flows.messages.as_discord import NOBODY, as_discord, headline
from flows.messages.plain import cut, plain


@dataclass(frozen=True)
class Discord:
    """A webhook's address, which is a secret. `forum`: its channel is a forum, where each incident is a post."""

    takes_acks: ClassVar[bool] = True  # to hear that somebody has it rings nobody
    name: str
    address: str = field(repr=False)
    forum: bool = False
    timeout_seconds: float = 15.0

    def send(self, outgoing: Outgoing) -> Receipt:
        """The opening is a message (or a post) of its own; what follows is edited into it and told behind it."""
        first = opening(outgoing)
        place = first.reference.split("/") if first is not None else []
        if first is None or len(place) != 2:
            return self._begin(outgoing)
        thread, root = place
        pages = as_discord(outgoing.message)
        current = replaces(outgoing.message, first.message)
        if current:
            where = f"{self._base}/messages/{root}" + (f"?thread_id={thread}" if thread else "")
            answer = self._ask("PATCH", where, pages[0], outgoing, accept=(404,))
            if answer.status == 404 and not thread:  # somebody has deleted it
                return self._begin(outgoing)
        if outgoing.message.transition == "acknowledged":
            return Receipt(self.name, "", first.reference)  # nobody needs a call to hear that somebody has it
        if current and not thread:  # the whole of it stands above
            pages = [{"content": headline(outgoing.message), "allowed_mentions": NOBODY}]
        for page in pages:
            if self._ask("POST", self._post_address(thread), page, accept=(404,)).status == 404:
                return self._begin(outgoing)
        return Receipt(self.name, "", first.reference)

    def _begin(self, outgoing: Outgoing) -> Receipt:
        first, *more = as_discord(outgoing.message)
        if self.forum:
            first = {**first, "thread_name": cut(plain(outgoing.message.title), 100)}
        told = self._ask("POST", self._post_address(""), first, outgoing).json()
        root, channel = _id(told, "id"), _id(told, "channel_id")
        if not root:
            raise DeliveryFailed(f"{self._who} answered with something that is no message of Discord")
        thread = channel if self.forum else ""
        for page in more:
            self._ask("POST", self._post_address(thread), page)
        return Receipt(self.name, "", f"{thread}/{root}")

    @property
    def _base(self) -> str:
        return self.address.partition("?")[0].rstrip("/")

    def _post_address(self, thread: str) -> str:
        return f"{self._base}?wait=true" + (f"&thread_id={thread}" if thread else "")

    def _ask(
        self, method: str, url: str, page: dict[str, Any], outgoing: Outgoing | None = None, accept: Any = ()
    ) -> Answer:
        service = Service(self._who, timeout_seconds=self.timeout_seconds)
        if outgoing is None or outgoing.chart is None:
            answer = service.ask(method, url, body=page, accept=(*accept, 429))
        else:
            shown = [{**page["embeds"][0], "image": {"url": f"attachment://{outgoing.chart_name}"}}]
            # named among the attachments it takes the place of the picture that an edited message has
            kept = [{"id": 0, "filename": outgoing.chart_name}]
            text = json.dumps({**page, "embeds": shown, "attachments": kept})
            files = {"files[0]": (outgoing.chart_name, outgoing.chart, "image/png")}
            answer = service.ask(method, url, data={"payload_json": text}, files=files, accept=(*accept, 413, 429))
            if answer.status == 413:
                return self._ask(method, url, page, accept=accept)
        if answer.status == 429:
            raise self._limited(service, answer)
        return answer

    def _limited(self, service: Service, answer: Answer) -> Exception:
        """Its body is more exact than its header."""
        told = answer.json()
        wait = told.get("retry_after") if isinstance(told, dict) else None
        if isinstance(wait, int | float) and 0 <= wait <= 3600:
            return TryLater(f"{self._who} asks for a pause of {wait:.0f} s (status 429)", float(wait))
        return service.refusal(answer)

    @property
    def _who(self) -> str:
        return f"channel {self.name!r} (discord)"


def open_discord(name: str, address: str, to: str = "", timeout_seconds: float = 15.0) -> Discord:
    """`to` is "forum" for a webhook of a forum channel. Raises BadConfig."""
    if to not in ("", "forum"):
        raise BadConfig(f"channel {name!r}: to = {to!r}: for discord it is 'forum', or left out")
    return Discord(name, address, to == "forum", timeout_seconds)


def _id(told: Any, key: str) -> str:
    found = str(told.get(key, "")) if isinstance(told, dict) else ""
    return found if re.fullmatch(r"\d{1,20}", found) else ""
