"""A comment on a GitHub issue for each incident, edited in place: a tracking issue is the record of an open run.

https://docs.github.com/en/rest/issues/comments. Every word of an incident stays in its comment, the newest on top. An edit
notifies nobody, so a page that grows worse, comes back or ends is also a short comment of its own. After an attempt
that may have arrived the comment is first looked for, by a hidden mark.
"""

import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar

from flows.channels.calls import Service
from flows.channels.contract import Outgoing, Receipt, TryLater
from flows.channels.threads import named, opening, replaces
from flows.errors import BadConfig, DeliveryFailed, UndeliverableError
from flows.messages.as_github import as_github
from flows.messages.as_markdown import escape, lines_of
from flows.messages.as_pages import links_of
from flows.messages.blocks import Link
from flows.messages.plain import cut

ADDRESS = "https://api.github.com"
MOST_PAGES = 10  # of 100 comments, from those on that were written since the message was
LOUD = frozenset({"escalated", "reopened", "still", "resolved"})


@dataclass(frozen=True)
class GitHub:
    """An issue, `owner/repository` and its number, and a token that may write comments there."""

    takes_acks: ClassVar[bool] = True  # to hear that somebody has it rings nobody
    name: str
    repository: str
    issue: int
    token: str = field(repr=False)
    address: str = ADDRESS
    timeout_seconds: float = 15.0

    def send(self, outgoing: Outgoing) -> Receipt:
        """The opening is a comment; what follows is edited into it."""
        note = "a comment carries no picture" if outgoing.chart else ""
        first = opening(outgoing)
        if first is None or not re.fullmatch(r"\d+", first.reference):
            return Receipt(self.name, note, self._comment(outgoing, as_github(outgoing.message, [], _mark(outgoing))))
        root = first.reference
        earlier = [each.message for each in outgoing.before if each.reference == root]
        # a word on one of many, or on how it goes on, is folded away below the one that says how all of them stand
        every = [*earlier, outgoing.message]
        top = max(n for n, each in enumerate(every) if n == 0 or replaces(each, first.message))
        shown, past = every[top], every[:top] + every[top + 1 :]
        # the mark is that of the comment's first words
        text = as_github(shown, past, _mark(replace(outgoing, message=first.message)))
        answer = self._service().ask(
            "PATCH", f"{self._repo}/issues/comments/{root}", body={"body": text}, accept=(404,)
        )
        if answer.status == 404:  # somebody has deleted it
            return Receipt(self.name, note, self._comment(outgoing, text))
        if outgoing.message.severity in ("S3", "S4") and outgoing.message.transition in LOUD:
            link = f"https://github.com/{self.repository}/issues/{self.issue}#issuecomment-{root}"
            link = link if self.address == ADDRESS else f"#issuecomment-{root}"
            ways = [f"[The whole incident]({link})", *(lines_of(Link(*each))[0] for each in links_of(outgoing.message))]
            call = f"{escape(cut(outgoing.message.title, 600))}\n\n{' | '.join(ways)}"
            mark = f"<!-- watchkeeper call {_token(outgoing.message_id)} -->"
            self._comment(outgoing, f"{mark}\n\n{call}", mark)
        return Receipt(self.name, note, root)

    def _comment(self, outgoing: Outgoing, text: str, mark: str = "") -> str:
        """The id of a new comment, or of the one that an earlier attempt has made."""
        found = self._look_for(outgoing, mark or _mark(outgoing)) if outgoing.again else ""
        if found:
            return found
        told = self._service().ask("POST", f"{self._repo}/issues/{self.issue}/comments", body={"body": text}).json()
        number = told.get("id") if isinstance(told, dict) else None
        if not isinstance(number, int):
            raise DeliveryFailed(f"{self._who} answered with something that is no comment of GitHub")
        return str(number)

    def _look_for(self, outgoing: Outgoing, mark: str) -> str:
        since = datetime.fromtimestamp(max(outgoing.since - 60, 0), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for page in range(1, MOST_PAGES + 1):
            where = f"{self._repo}/issues/{self.issue}/comments?per_page=100&since={since}&page={page}"
            told = self._service().ask("GET", where).json()
            if not isinstance(told, list):
                raise DeliveryFailed(f"{self._who} answered with something that is no list of comments")
            for each in told:
                if isinstance(each, dict) and str(each.get("body", "")).startswith(mark):
                    return str(each.get("id", ""))
            if len(told) < 100:
                break
        return ""

    def _service(self) -> "_Limited":
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
            "User-Agent": "watchkeeper",
        }
        return _Limited(self._who, headers, self.timeout_seconds)

    @property
    def _repo(self) -> str:
        return f"{self.address.rstrip('/')}/repos/{self.repository}"

    @property
    def _who(self) -> str:
        return f"channel {self.name!r} (github)"


@dataclass(frozen=True)
class _Limited(Service):
    """GitHub says 403 for its limits as well: what tells them from a missing right are its headers."""

    def refusal(self, answer: Any, why: str = "") -> DeliveryFailed | UndeliverableError:
        spent = answer.headers.get("x-ratelimit-remaining") == "0"
        if answer.status == 403 and spent and "retry-after" not in answer.headers:
            return TryLater(f"{self.who} has used up its requests of this hour", 900.0)
        return super().refusal(answer, why)


def open_github(name: str, to: str, token: str, address: str = ADDRESS, timeout_seconds: float = 15.0) -> GitHub:
    """`to` is owner/repository#number. Raises BadConfig."""
    found = re.fullmatch(r"([A-Za-z0-9-]+/[A-Za-z0-9._-]+)#(\d+)", to)
    if found is None:
        raise BadConfig(f"channel {name!r}: to = {to!r} names no issue; write owner/repository#number")
    return GitHub(name, found[1], int(found[2]), token, address, timeout_seconds)


def _mark(outgoing: Outgoing) -> str:
    """By the incidents, not the message: an opening is told once."""
    message = outgoing.message
    return f"<!-- watchkeeper {_token(message.run)} {_token(','.join(named(message))[:200])} -->"


def _token(text: str) -> str:
    # no two hyphens in a row: they would end the comment
    return re.sub(r"-+", "-", re.sub(r"[^A-Za-z0-9.,_]", "-", text))
