"""Where a message belongs among those that a channel has taken before, and what it does to a page.

A message of many incidents opens one thread, or one page, for all of them. It is over when the last of them is.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from flows.channels.contract import Outgoing, Told
from flows.messages.blocks import Message

# words after which somebody may have to get up; any other word (a follow-up) neither begins nor ends anything
FIRING = frozenset({"opened", "reopened", "escalated", "lowered", "still"})
# words that say how an incident stands, and so may stand in the place of the one before
STATES = FIRING | {"acknowledged", "resolved"}


@dataclass(frozen=True)
class Page:
    """What a pager is told. `action` is trigger, raise, update, acknowledge, resolve, test or none; `key` names the page.

    `raise` is a trigger that must be heard by who has acknowledged a milder one; `test` a trigger that ends at once;
    `none` a word on something that the pager has no open page of. `left` are the incidents that go on under the key.
    """

    action: str
    key: str
    left: frozenset[str]


def opening(outgoing: Outgoing) -> Told | None:
    """The message in whose thread this one belongs: the first that said how its incident stands."""
    thread = outgoing.message.thread
    known = (each for each in outgoing.before if each.reference and each.message.transition in STATES)
    return next((each for each in known if thread in named(each.message)), None)


def replaces(newer: Message, older: Message) -> bool:
    """Whether the newer one says how the very incidents of the older one stand now."""
    return newer.transition in STATES and set(named(newer)) == set(named(older))


def named(message: Message) -> tuple[str, ...]:
    """The incidents of a message, or its thread where it has none (a word of the watch about itself)."""
    return message.incidents or (message.thread,)


def page_of(outgoing: Outgoing) -> Page:
    """The pager's view of a message; the reference of what was told before is the key that it was given."""
    message, first = outgoing.message, opening(outgoing)
    key = first.reference if first is not None else message.thread
    told = [each.message for each in outgoing.before if each.reference == key]
    was, left = left_of(told), left_of([*told, message])
    if message.transition == "acknowledged":
        mine = key in named(message)  # of many, the gravest gave the page its key
        return Page(("acknowledge" if mine else "update") if was else "none", key, left)
    if message.transition == "test":
        return Page("test", key, left)
    if message.transition in (*FIRING, "resolved") and not left:
        return Page("resolve", key, left)
    if message.transition == "escalated" and was:
        return Page("raise", key, left)
    if message.transition in FIRING:
        return Page("trigger", key, left)
    return Page("update" if was else "none", key, left)


def ended(message: Message) -> frozenset[str]:
    """The incidents of a message that are over."""
    whole = message.transition == "resolved" and len(named(message)) == 1
    return frozenset(named(message) if whole else message.over)


def left_of(told: Iterable[Message]) -> frozenset[str]:
    """The incidents that go on after these messages, oldest first."""
    left: set[str] = set()
    for message in told:
        left |= set(named(message)) if message.transition in FIRING else set()
        left -= ended(message)
    return frozenset(left)
