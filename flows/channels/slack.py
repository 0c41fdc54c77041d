"""Slack by a bot token: one message an incident that is kept current, and every later word in its thread.

https://docs.slack.dev/reference/methods/chat.postMessage and chat.update. A repeat carries the same `client_msg_id`. The
chart goes into the thread (files.getUploadURLExternal), where the app has the right `files:write`.
"""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from flows.channels.calls import Service
from flows.channels.contract import Outgoing, Receipt, TryLater
from flows.channels.threads import opening, replaces
from flows.errors import DeliveryFailed, UndeliverableError, WatchkeeperError
from flows.messages.as_slack import as_slack, escape
from flows.messages.as_text import as_text
from flows.messages.blocks import Facts, Message
from flows.messages.plain import cut
from flows.messages.split import split

ADDRESS = "https://slack.com/api"
MOST_PLAIN = 3800  # of 4,000 characters of plain text
_FOR_NOW = frozenset(
    ("internal_error", "fatal_error", "service_unavailable", "request_timeout", "accesslimited", "team_added_to_org",
     "message_limit_exceeded")
)  # fmt: skip
_STALE_KEY = frozenset(("duplicate_message_not_found", "duplicate_channel_not_found"))
_TOO_MUCH = frozenset(
    ("invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_too_long", "invalid_attachments")
)
_GONE = frozenset(("message_not_found", "cant_update_message", "edit_window_closed", "thread_not_found"))


class _Said(UndeliverableError):
    """Slack's `ok: false` with a code that the caller may know a way around."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Slack:
    """A channel by its id (or #name), and the token of an app that may write there."""

    takes_acks: ClassVar[bool] = True  # to hear that somebody has it rings nobody
    name: str
    channel: str
    token: str = field(repr=False)
    address: str = ADDRESS
    timeout_seconds: float = 15.0

    def send(self, outgoing: Outgoing) -> Receipt:
        """The opening of an incident is a message of its own; what follows is edited into it and told in its thread."""
        first = opening(outgoing)
        place = first.reference.split("/") if first is not None else []
        if first is None or len(place) != 3:
            return self._begin(outgoing)
        channel, root, _ = place
        note = ""
        if replaces(outgoing.message, first.message):
            note = self._edit(channel, root, outgoing.message, first.message.title)
        if outgoing.message.transition == "acknowledged":
            return Receipt(self.name, note, first.reference)  # nobody needs a call to hear that somebody has it
        loud = outgoing.message.severity in ("S3", "S4") and outgoing.message.transition in ("escalated", "reopened")
        try:
            _, own = self._post(channel, outgoing, {"thread_ts": root, "reply_broadcast": loud})
        except _Said as refused:
            if refused.code not in _GONE:
                raise
            return self._begin(outgoing)
        return Receipt(self.name, note, f"{channel}/{root}/{own}")

    def _begin(self, outgoing: Outgoing) -> Receipt:
        channel, root = self._post(self.channel, outgoing, {})
        return Receipt(self.name, self._show(outgoing, channel, root), f"{channel}/{root}/{root}")

    def _edit(self, channel: str, root: str, message: Message, was: str) -> str:
        """The newest word in the place of the first; what it was like at first is its last line. A note if it cannot be."""
        shown = replace(message, blocks=(*message.blocks, Facts((("First told", cut(was, 200)),))))
        try:
            payload = {**as_slack(shown)[0], "channel": channel, "ts": root}
            try:
                self._call("chat.update", payload)
            except _Said as refused:
                if refused.code not in _TOO_MUCH:
                    raise
                self._call("chat.update", {"channel": channel, "ts": root, "text": _plainly(shown)[0], "blocks": []})
        except _Said as refused:
            if refused.code not in _GONE:
                raise
            return f"the first message could not be edited ({refused.code})"
        return ""

    def _post(self, channel: str, outgoing: Outgoing, more: Mapping[str, Any]) -> tuple[str, str]:
        """Channel and ts of the (first) message; further pages go into its thread."""
        pages = as_slack(outgoing.message)
        try:
            found = self._pages(channel, outgoing, pages, more)
        except _Said as refused:
            if refused.code not in _TOO_MUCH:
                raise
            pages = [{"text": piece, "mrkdwn": False} for piece in _plainly(outgoing.message)]
            found = self._pages(channel, outgoing, pages, more)
        return found

    def _pages(
        self, channel: str, outgoing: Outgoing, pages: list[dict[str, Any]], more: Mapping[str, Any]
    ) -> tuple[str, str]:
        place: tuple[str, str] | None = None
        for index, page in enumerate(pages):
            where = {**more, "channel": channel} if place is None else {"channel": place[0], "thread_ts": place[1]}
            if place is not None and "thread_ts" in more:
                where["thread_ts"] = more["thread_ts"]
            about = f"{outgoing.message_id}/{index}/{'blocks' in page}"
            try:
                told = self._call("chat.postMessage", {**page, **where, "client_msg_id": _key(about)})
            except _Said as refused:
                if refused.code not in _STALE_KEY:
                    raise
                # what the key stood for is deleted: rather twice than never
                told = self._call("chat.postMessage", {**page, **where, "client_msg_id": _key(f"{about}/again")})
            got = str(told.get("channel", "")), str(told.get("ts", ""))
            if not re.fullmatch(r"[\w.]+", got[1]) or not re.fullmatch(r"\w+", got[0]):
                raise DeliveryFailed(f"{self._who} answered without saying where the message is")
            place = place or got
        assert place is not None  # there is a page at least
        return place

    def _show(self, outgoing: Outgoing, channel: str, root: str) -> str:
        """The chart into the thread; a note where that cannot be."""
        if outgoing.chart is None:
            return ""
        try:
            asked = {"filename": outgoing.chart_name, "length": str(len(outgoing.chart))}
            told = self._call("files.getUploadURLExternal", asked, form=True)
            url = str(told.get("upload_url", ""))
            if not url.startswith(("https://", f"{self.address.rstrip('/')}/")):
                return "the text arrived, the chart did not"
            Service(self._who, timeout_seconds=self.timeout_seconds).ask("POST", url, content=outgoing.chart)
            file = {"id": told.get("file_id"), "title": cut(outgoing.message.title, 150)}
            done = {"files": [file], "channel_id": channel, "thread_ts": root}
            self._call("files.completeUploadExternal", done)
        except _Said as refused:
            return f"the text arrived, the chart did not ({refused.code})"
        except WatchkeeperError:
            return "the text arrived, the chart did not"
        return ""

    def _call(self, method: str, payload: Mapping[str, Any], *, form: bool = False) -> dict[str, Any]:
        service = Service(self._who, {"Authorization": f"Bearer {self.token}"}, self.timeout_seconds)
        sent: dict[str, Any] = {"data": payload} if form else {"body": payload}
        answer = service.ask("POST", f"{self.address.rstrip('/')}/{method}", **sent)
        told = answer.json()
        if not isinstance(told, dict) or not isinstance(told.get("ok"), bool):
            raise DeliveryFailed(f"{self._who} answered with something that is no answer of Slack")
        if told["ok"]:
            return told
        code = str(told.get("error", ""))
        code = code if re.fullmatch(r"[a-z_]{1,60}", code) else "unknown error"
        if code in ("ratelimited", "rate_limited"):
            raise TryLater(f"{self._who} limits its rate", 60.0)
        if code in _FOR_NOW:
            raise DeliveryFailed(f"{self._who} did not take the message: {code}")
        raise _Said(f"{self._who} refused the message: {code}; check the token's rights and the channel", code)

    @property
    def _who(self) -> str:
        return f"channel {self.name!r} (slack)"


def _key(about: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, about))


def _plainly(message: Message) -> list[str]:
    return split(escape(cut(as_text(message), 10_000)), MOST_PLAIN)
