"""The record log of a `.wandb` file: LevelDB's log format (blocks of 32 kB, 7-byte headers) behind a header of W&B's own.

A header is checksum (CRC-32 of type and data), length, type: whole, or first, middle and last part of a record. What is not
all there yet ends the reading. Behind a wrong checksum reading goes on with the next block, as LevelDB's does, unless
that block is the last one, which may still be written.
"""

import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct

from flows.sources.contract import MAX_LINE_BYTES
from flows.sources.streams import BLOCK_BYTES, open_file

START = b":W&B\xe1\xbe"  # then the version, one byte
BLOCK = 32_768
_HEADER = Struct("<IHB")
_BROKEN, _WHOLE, _FIRST, _LAST = 0, 1, 2, 4
_TYPE_SUMS = [zlib.crc32(bytes([kind])) for kind in range(5)]  # 3 is a middle part
_READ = BLOCK_BYTES // BLOCK * BLOCK


@dataclass
class Records:
    """Neighbouring records, the offset behind them, what was passed over."""

    payloads: list[bytes]
    end: int
    notes: Counter[str] = field(default_factory=Counter)


def read_records(path: Path, offset: int, piece: int = BLOCK_BYTES) -> Iterator[Records]:
    """Records from `offset` on (0, or where earlier ones ended), about `piece` bytes at a time."""
    begin = max(offset, len(START) + 1)
    found, held = Records([], begin), 0
    parts: list[bytes] | None = None  # of a record that has begun
    size = 0
    for kind, body, end in _fragments(path, begin):
        if kind == _BROKEN:
            found.notes["block with a wrong checksum"] += 1
            parts, found.end = None, end
        elif kind in {_WHOLE, _FIRST}:
            parts, size = [body], len(body)
        elif parts is not None:
            size += len(body)
            if size <= MAX_LINE_BYTES:
                parts.append(body)
        if kind in {_WHOLE, _LAST}:
            found.end = end
            if size > MAX_LINE_BYTES:
                found.notes[f"record of more than {MAX_LINE_BYTES >> 20} MB"] += 1
            elif parts is not None:
                found.payloads.append(b"".join(parts))
                held += size
            parts, size = None, 0
        if held >= piece:
            yield found
            found, held = Records([], found.end), 0
    if found.end > begin or found.notes:
        yield found


def _fragments(path: Path, at: int) -> Iterator[tuple[int, bytes, int]]:
    """Kind, bytes and end of each fragment; _BROKEN for the rest of a block that cannot be read."""
    with open_file(path) as file:
        length = file.seek(0, 2)
        while at < length:
            start = at - at % BLOCK
            file.seek(start)
            data = file.read(_READ)
            here = at - start
            while here < len(data):
                left = BLOCK - here % BLOCK
                if left < _HEADER.size:
                    here += left
                    continue
                if here + _HEADER.size > len(data):
                    return
                checksum, size, kind = _HEADER.unpack_from(data, here)
                end = here + _HEADER.size + size
                fits = 0 < kind < len(_TYPE_SUMS) and size <= left - _HEADER.size
                if fits and end > len(data):
                    return
                body = data[here + _HEADER.size : end]
                if fits and zlib.crc32(body, _TYPE_SUMS[kind]) == checksum:
                    yield kind, body, start + end
                elif start + here + left >= length:
                    return  # the last block: it may still be written
                else:
                    end = here + left
                    yield _BROKEN, b"", start + end
                here = end
            at = start + here
