"""The watch watches itself: which of its own failures people must hear of, once, and when they are over.

Its memory is a small file beside the store, not in it: the store may be what is broken.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from flows.channels.contract import Channel, Outgoing, message_id, thread_id
from flows.messages.monitor import monitor_message

PATIENCE = 3  # passes in a row that something transient may fail before anybody is told
REMIND_SECONDS = 86_400.0


@dataclass(frozen=True)
class Trouble:
    """Something that failed in a pass. `key` is the same as long as it is the same trouble, whatever `text` says."""

    key: str
    text: str
    permanent: bool


@dataclass(frozen=True)
class Ongoing:
    """A trouble over passes: since when (unix seconds), in how many passes in a row, when last told (None: not yet)."""

    text: str
    since: float
    passes: int
    told_at: float | None = None


@dataclass(frozen=True)
class Notice:
    """What people must hear. `what` is stale, still or recovered."""

    key: str
    what: str
    text: str
    since: float
    passes: int


@dataclass(frozen=True)
class Memory:
    """Ongoing troubles by key; `over` are those that ended but whose end is not told yet."""

    ongoing: Mapping[str, Ongoing] = field(default_factory=dict)
    over: Mapping[str, Ongoing] = field(default_factory=dict)


def observe(
    memory: Memory, troubles: Iterable[Trouble], looked_at: Iterable[str], now: float
) -> tuple[Memory, list[Notice]]:
    """The memory after this pass and what is to be told.

    `looked_at` are the keys' owners (the part before the first `|`) that this pass came to: trouble of others goes on
    unchanged, for what was not looked at has not recovered.
    """
    found = {trouble.key: trouble for trouble in troubles}
    owners = set(looked_at)
    ongoing: dict[str, Ongoing] = {}
    over = dict(memory.over)
    for key, old in memory.ongoing.items():
        if key in found or owner(key) not in owners:
            ongoing[key] = old
        elif old.told_at is not None:
            over[key] = old
    for key, trouble in found.items():
        old = (over.pop(key) if key in over else None) or ongoing.get(key) or Ongoing(trouble.text, now, 0)
        ongoing[key] = replace(old, text=trouble.text, passes=old.passes + 1)
    notices = [Notice(key, "recovered", old.text, old.since, old.passes) for key, old in over.items()]
    for key, each in ongoing.items():
        due = key in found and (found[key].permanent or each.passes >= PATIENCE)
        if due and each.told_at is None:
            notices.append(Notice(key, "stale", each.text, each.since, each.passes))
        elif due and each.told_at is not None and now - each.told_at >= REMIND_SECONDS:
            notices.append(Notice(key, "still", each.text, each.since, each.passes))
    return Memory(ongoing, over), notices


def told(memory: Memory, notice: Notice, now: float) -> Memory:
    """The memory once a notice has reached somebody."""
    if notice.what == "recovered":
        return replace(memory, over={key: old for key, old in memory.over.items() if key != notice.key})
    mine = replace(memory.ongoing[notice.key], told_at=now)
    return replace(memory, ongoing={**memory.ongoing, notice.key: mine})


def owner(key: str) -> str:
    """Whose trouble it is: the run, the channel or the store."""
    return key.partition("|")[0]


def load(path: Path) -> Memory:
    """What an earlier pass wrote; an empty one where there is none, or where it cannot be read."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return Memory(*({key: Ongoing(**each) for key, each in raw[part].items()} for part in ("ongoing", "over")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Memory()  # at worst something is told once more


def save(path: Path, memory: Memory) -> None:
    """Write it whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(asdict(memory), indent=1), encoding="utf-8")
    part.replace(path)


def tell(
    path: Path, troubles: Sequence[Trouble], looked_at: Iterable[str], channels: Mapping[str, Channel], now: float
) -> tuple[int, dict[str, Exception]]:
    """Observe a pass and send what is due to every channel but the one it is about.

    Returns how many notices got out, and by channel the last error of those that did not take theirs. A notice that no
    channel takes stays due. Without channels nothing is due: the report has it all.
    """
    before = load(path)
    memory, notices = observe(before, troubles, looked_at, now)
    out, failed = 0, dict[str, Exception]()
    for notice in notices if channels else ():
        others = {n: c for n, c in channels.items() if owner(notice.key) != f"channel {n}"}
        errors = _send(notice, others, now)
        failed |= errors
        if len(errors) < len(others):
            memory = told(memory, notice, now)
            out += 1
    if memory != before:
        save(path, memory)
    return out, failed


def _send(notice: Notice, channels: Mapping[str, Channel], now: float) -> dict[str, Exception]:
    """To each channel, whatever became of the one before; the errors by channel."""
    thread = f"monitor-{notice.key}-{notice.since:.0f}"
    message = monitor_message(
        notice.what,
        owner(notice.key),
        notice.text,
        passes=notice.passes,
        minutes=(now - notice.since) / 60,
        thread=thread,
    )
    identity = message_id(f"{thread}-{notice.what}" + (f"-{now:.0f}" if notice.what == "still" else ""))
    errors: dict[str, Exception] = {}
    for name, channel in channels.items():
        try:
            channel.send(Outgoing(message, identity, thread_id(thread)))
        except Exception as error:  # noqa: BLE001  # whatever a service raises, the others must still hear
            errors[name] = error
    return errors
