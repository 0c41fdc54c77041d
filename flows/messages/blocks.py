"""What a message is made of, whatever service carries it. Text is always plain: no block holds a control character."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

from flows.messages.plain import plain, plain_lines


@dataclass(frozen=True)
class Header:
    """The one sentence."""

    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", plain(self.text))


@dataclass(frozen=True)
class Facts:
    """Labelled values, a line each."""

    pairs: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "pairs", tuple((plain(label), plain(value)) for label, value in self.pairs))


@dataclass(frozen=True)
class Paragraph:
    """One line of prose."""

    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", plain(self.text))


@dataclass(frozen=True)
class Code:
    """Something to copy and paste; line breaks stay."""

    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", plain_lines(self.text))


@dataclass(frozen=True)
class Image:
    """A picture that travels as an attachment under `name`; `alt` is its text for who cannot see it."""

    name: str
    alt: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "alt", plain(self.alt))


@dataclass(frozen=True)
class Link:
    """A link. Only http and https are links; any other address is shown as text."""

    text: str
    url: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", plain(self.text))
        object.__setattr__(self, "url", plain(self.url).replace(" ", "%20"))

    @property
    def safe(self) -> bool:
        """Whether the address may be made clickable."""
        return self.url.lower().startswith(("http://", "https://"))


@dataclass(frozen=True)
class Divider:
    """A line between two parts."""


Block = Header | Facts | Paragraph | Code | Image | Link | Divider
_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Header, Facts, Paragraph, Code, Image, Link, Divider)}


@dataclass(frozen=True)
class Message:
    """One message. `blocks` is the chat form (at most 12 lines), `more` what e-mail and pages add below it.

    `thread` is the same for every message of one incident; `incidents` names all that are told of here, `over` those of
    them that are over.
    """

    title: str
    severity: str
    run: str
    transition: str
    thread: str
    blocks: tuple[Block, ...]
    more: tuple[Block, ...] = ()
    incidents: tuple[str, ...] = field(default=())
    over: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", plain(self.title))
        object.__setattr__(self, "run", plain(self.run))


def side_by_side(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Each block alone, but links that follow each other together: a chat has room for 12 lines."""
    for linked, each in groupby(blocks, key=lambda block: isinstance(block, Link)):
        group = list(each)
        yield from [group] if linked else ([block] for block in group)


def to_json(message: Message) -> str:
    """The message as the outbox keeps it."""
    record = asdict(message)
    for key in ("blocks", "more"):
        record[key] = [{"block": type(block).__name__, **asdict(block)} for block in getattr(message, key)]
    return json.dumps(record, ensure_ascii=False, allow_nan=False)


def from_json(text: str) -> Message:
    """The inverse of `to_json`. Raises ValueError on anything else."""
    try:
        record = json.loads(text)
        for key in ("blocks", "more"):
            record[key] = tuple(_block(entry) for entry in record[key])
        for key in ("incidents", "over"):
            record[key] = tuple(record.get(key, ()))
        return Message(**record)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no message of watchkeeper: {error}") from error


def _block(entry: dict[str, Any]) -> Block:
    fields = dict(entry)
    kind = _KINDS[fields.pop("block")]
    if kind is Facts:
        fields["pairs"] = tuple((label, value) for label, value in fields["pairs"])
    block: Block = kind(**fields)
    return block
