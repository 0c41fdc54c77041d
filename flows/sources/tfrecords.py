"""TFRecord files: length (8 bytes), its checksum, payload, its checksum; also while they grow, cut anywhere or damaged.

A record that is not all there yet ends the reading: the next pull begins with it. A payload with a wrong checksum is
passed over and counted, since its length has a checksum of its own; the last one of the file waits, as it may still be
written. Behind a wrong length nothing can be found again: reading stops there, as TensorBoard's does.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np

from flows.sources.contract import MAX_LINE_BYTES
from flows.sources.crc32c import masked_crc32c
from flows.sources.streams import BLOCK_BYTES, open_file

HEADER_BYTES, AROUND_BYTES = 12, 16
LOST = "record with a damaged length: the rest of the file cannot be read"
MOST_BYTES = 1 << 31  # no message of protobuf is longer: one that is not there yet never will be
_KNOWN_LENGTHS = 10_000


@dataclass(frozen=True)
class Records:
    """Neighbouring payloads, the offset behind them, what was passed over."""

    payloads: list[bytes]
    end: int
    notes: Counter[str] = field(default_factory=Counter)


class _Lengths(dict[bytes, int]):
    """The payload's length by header; -1 where its checksum is wrong. The same few come again and again."""

    def __missing__(self, header: bytes) -> int:
        if len(header) < HEADER_BYTES:
            return -1
        good = masked_crc32c([header[:8]])[0] == int.from_bytes(header[8:], "little")
        length = int.from_bytes(header[:8], "little") if good else -1
        if len(self) < _KNOWN_LENGTHS:
            self[header] = length
        return length


def begins_with_record(start: bytes) -> bool:
    """Whether a file is one of records, by the checksum of its first length."""
    return len(start) >= HEADER_BYTES and _Lengths()[start[:HEADER_BYTES]] >= 0


def is_event_file(path: Path) -> bool:
    """Whether it begins as TensorBoard's event files do."""
    with open_file(path) as file:
        return begins_with_record(file.read(16))


def first_payload(path: Path) -> bytes:
    """The first record's payload, or what there is of it; at most a few thousand bytes."""
    with open_file(path) as file:
        start = file.read(4_096)
    return start[HEADER_BYTES : HEADER_BYTES + max(0, _Lengths()[start[:HEADER_BYTES]])]


def read_records(path: Path, offset: int) -> Iterator[Records]:
    """Records from `offset` on, about BLOCK_BYTES at a time."""
    lengths = _Lengths()
    with open_file(path) as file:
        size = file.seek(0, 2)
        while offset + AROUND_BYTES <= size:
            found = _next(file, offset, size, lengths)
            if found.end > offset or found.notes:
                yield found
            if found.end == offset:
                return
            offset = found.end


def _next(file: BinaryIO, offset: int, size: int, lengths: _Lengths) -> Records:
    file.seek(offset)
    block = file.read(BLOCK_BYTES)
    length = lengths[block[:HEADER_BYTES]]
    end = offset + length + AROUND_BYTES
    if length < 0 or (end > size and length >= MOST_BYTES):
        return Records([], offset, Counter({LOST: 1}))
    if end > size:
        return Records([], offset)
    if length > MAX_LINE_BYTES:
        return Records([], end, Counter({f"record of more than {MAX_LINE_BYTES >> 20} MB": 1}))
    if end - offset > len(block):
        block += file.read(end - offset - len(block))
    return _whole(block, offset, size, lengths)


def _whole(block: bytes, offset: int, size: int, lengths: _Lengths) -> Records:
    """The records that are whole in a block, without those of a wrong checksum."""
    at, room, ends = 0, len(block), [0]
    while (length := lengths[block[at : at + HEADER_BYTES]]) >= 0:
        at += length + AROUND_BYTES
        if at > room:
            break
        ends.append(at)
    places = np.array(ends[1:], np.int64)
    sums = np.frombuffer(block, np.uint8)[places[:, None] + np.arange(-4, 0)].copy().view("<u4")[:, 0]
    payloads = [block[start + HEADER_BYTES : end - 4] for start, end in pairwise(ends)]
    # less than four bytes are none of an event, and below what the checksum takes
    good = masked_crc32c([payload if len(payload) >= 4 else b"none" for payload in payloads]) == sums
    notes: Counter[str] = Counter()
    if not good.all():
        if not good[-1] and offset + ends[-1] == size:
            payloads, good, ends = payloads[:-1], good[:-1], ends[:-1]
        if bad := int((~good).sum()):
            notes["record with a wrong checksum"] = bad
            payloads = [payload for payload, fine in zip(payloads, good, strict=True) if fine]
    return Records(payloads, offset + ends[-1], notes)
