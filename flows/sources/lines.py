"""Whole lines of a file that may still grow, with a mark that tells a grown file from a replaced one."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from flows.sources.contract import MAX_LINE_BYTES, refuse
from flows.sources.streams import blocks, compression_of, open_file

MARK_BYTES = 4096
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Place:
    """Where reading stopped: decompressed offset, newlines passed, digest of the bytes around both ends."""

    offset: int = 0
    line: int = 0
    mark: str = ""


@dataclass(frozen=True)
class Lines:
    """Neighbouring lines without their newlines, and the place behind them.

    `whole` is False for what stands behind the last newline: the writer may not have finished it.
    """

    text: bytes  # of all of them, with their newlines
    first: int  # number of the first line, from 1
    place: Place
    whole: bool = True

    @cached_property
    def lines(self) -> list[bytes]:
        """Taken apart only where somebody asks."""
        return _split(self.text) if self.whole else [self.text]


def place_of(cursor: dict[str, Any]) -> Place:
    """The place in a decoded cursor; the beginning if it holds none."""
    try:
        return Place(int(cursor["offset"]), int(cursor["line"]), str(cursor["mark"]))
    except (KeyError, TypeError, ValueError):
        return Place()


def still_there(path: Path, place: Place) -> bool:
    """Whether the file still begins with what was read: its head and the bytes before the offset are the same."""
    if place.offset == 0:
        return True
    start, tail = b"", b""
    if compression_of(path):
        seen = 0
        for block in blocks(path):
            piece = block[: place.offset - seen]
            start = (start + piece)[:MARK_BYTES] if len(start) < MARK_BYTES else start
            tail = (tail + piece)[-MARK_BYTES:]
            seen += len(piece)
            if seen == place.offset:
                break
        return seen == place.offset and _digest(start, tail) == place.mark
    with open_file(path) as file:
        start = file.read(min(MARK_BYTES, place.offset))
        file.seek(max(0, place.offset - MARK_BYTES))
        tail = file.read(min(MARK_BYTES, place.offset))
    return _digest(start, tail) == place.mark


def read_lines(path: Path, place: Place, *, returns: bool = False) -> Iterator[Lines]:
    """Lines from `place` on, a block at a time. Raises BadInput for a line beyond MAX_LINE_BYTES.

    `returns`: a carriage return ends a line too, as in the progress bars of a console.
    """
    offset, line = place.offset, place.line
    start = _first_bytes(path, offset)
    tail, rest = start[-MARK_BYTES:] if offset <= MARK_BYTES else b"", bytearray()
    if offset > MARK_BYTES:
        tail = _bytes_before(path, offset)
    for block in blocks(path, offset):
        cut = max(block.rfind(b"\n"), block.rfind(b"\r") if returns else -1) + 1
        if not cut:
            rest += block
            _check_length(path, len(rest), line + 1)
            continue
        text = bytes(rest) + block[:cut]
        rest = bytearray(block[cut:])
        start = (start + text[:MARK_BYTES])[:MARK_BYTES] if len(start) < MARK_BYTES else start
        tail = (tail + text[-MARK_BYTES:])[-MARK_BYTES:]
        given = text.removeprefix(_BOM) if offset == 0 else text
        first, offset, line = line + 1, offset + len(text), line + text.count(b"\n")
        yield Lines(given.replace(b"\r", b"\n") if returns else given, first, Place(offset, line, _digest(start, tail)))
    if rest:
        text = bytes(rest)
        start = (start + text[:MARK_BYTES])[:MARK_BYTES] if len(start) < MARK_BYTES else start
        tail = (tail + text[-MARK_BYTES:])[-MARK_BYTES:]
        # the newline is still to come and will be counted then
        behind = Place(offset + len(text), line, _digest(start, tail))
        yield Lines(text.removeprefix(_BOM) if offset == 0 else text, line + 1, behind, whole=False)


def _split(text: bytes) -> list[bytes]:
    if not text.strip():
        return []  # a block of nothing but newlines
    lines = text.split(b"\n")
    lines.pop()
    if (
        b"\0" in text
    ):  # zeros stand where a machine died before the disk had the data: what is before them is half a line
        lines = [line.rpartition(b"\0")[2] for line in lines]
    return lines


def _check_length(path: Path, length: int, line: int) -> None:
    if length > MAX_LINE_BYTES:
        what = f"the line is longer than {MAX_LINE_BYTES >> 20} MB"
        raise refuse(path, what, "write one JSON object or one row of values a line", line)


def _first_bytes(path: Path, offset: int) -> bytes:
    wanted, found = min(MARK_BYTES, offset), b""
    for block in blocks(path) if wanted else ():
        found += block
        if len(found) >= wanted:
            break
    return found[:wanted]


def _bytes_before(path: Path, offset: int) -> bytes:
    found, wanted = b"", MARK_BYTES
    for block in blocks(path, offset - MARK_BYTES):
        found += block
        if len(found) >= wanted:
            break
    return found[:wanted]


def _digest(start: bytes, tail: bytes) -> str:
    return hashlib.blake2b(start + b"|" + tail, digest_size=12).hexdigest()
