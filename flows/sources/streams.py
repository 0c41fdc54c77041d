"""The bytes of a file as blocks, plain, gzip or zstd, with a cap on how far a compressed file may expand."""

import io
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from flows.errors import BadInput, SourceUnavailable
from flows.sources.contract import MAX_LINE_BYTES, refuse

BLOCK_BYTES = 1 << 20
FREE_EXPANSION = 4 << 20  # below this any ratio is harmless
MAX_EXPANSION = 200  # logs compress 5 to 40 times, sparse CSV about 100 times, a bomb 1,000 times
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


def compression_of(path: Path) -> str:
    """`gzip`, `zstd` or "" by the first bytes of the file."""
    with open_file(path) as file:
        magic = file.read(4)
    return next((kind for start, kind in _MAGIC.items() if magic.startswith(start)), "")


def open_file(path: Path) -> BinaryIO:
    """Open for reading. Raises BadInput without permission and for what is no file (a pipe is never waited for),
    SourceUnavailable where the file is not there (yet), or is gone while it is read.
    """
    try:
        raw = _Raw(path, "rb", opener=_without_waiting)
        if stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
            return io.BufferedReader(raw)
        raw.close()
        raise refuse(path, "no regular file", "write the log to a file and name that")
    except PermissionError:
        raise refuse(path, "no permission to read it", "give the watch read access") from None
    except OSError as error:
        raise SourceUnavailable(f"{path}: cannot be opened ({error.strerror}); is the file system there?") from None


class _Raw(io.FileIO):
    """A file whose disk may fail under it: a network file system that is gone answers reads with an error."""

    def readinto(self, buffer: Any) -> int | None:
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise self._gone(error) from None

    def readall(self) -> bytes:
        try:
            return super().readall() or b""
        except OSError as error:
            raise self._gone(error) from None

    def _gone(self, error: OSError) -> SourceUnavailable:
        return SourceUnavailable(f"{self.name}: cannot be read ({error.strerror}); is the file system there?")


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # opening a pipe waits for its writer otherwise


def head(path: Path) -> bytes:
    """How the file begins, decompressed: BLOCK_BYTES of it, or more if its first line is longer than that.

    Without a newline in it there is none within MAX_LINE_BYTES, or in the whole file.
    """
    found = bytearray()
    for block in blocks(path):
        found += block
        if len(found) > MAX_LINE_BYTES or (len(found) >= BLOCK_BYTES and b"\n" in found):
            break
    return bytes(found)


def blocks(path: Path, offset: int = 0) -> Iterator[bytes]:
    """Decompressed bytes from `offset` on, about BLOCK_BYTES at a time. Raises BadInput for a compressed bomb."""
    kind = compression_of(path)
    if not kind:
        yield from _plain(path, offset)
        return
    skip = offset
    for block in _gzip(path) if kind == "gzip" else _zstd(path):
        if skip < len(block):
            yield block[skip:]
        skip = max(0, skip - len(block))


def _plain(path: Path, offset: int) -> Iterator[bytes]:
    with open_file(path) as file:
        file.seek(offset)
        while block := file.read(BLOCK_BYTES):
            yield block


def _gzip(path: Path) -> Iterator[bytes]:
    """Members one after the other; a stream that is still being written ends where it ends."""
    taken = given = 0
    with open_file(path) as file:
        engine, rest = zlib.decompressobj(31), b""
        while data := rest or file.read(BLOCK_BYTES // 16):
            taken += 0 if rest else len(data)
            try:
                block = engine.decompress(data, BLOCK_BYTES)
            except zlib.error as error:
                raise _broken(path, error) from None
            given += len(block)
            _check_expansion(path, taken - len(engine.unconsumed_tail), given)
            if block:
                yield block
            rest = engine.unconsumed_tail
            if engine.eof:
                rest = engine.unused_data.lstrip(b"\0")
                engine = zlib.decompressobj(31)


def _zstd(path: Path) -> Iterator[bytes]:
    import pyarrow as pa  # only compressed files pay for it

    given = 0
    with open_file(path) as file, pa.CompressedInputStream(file, "zstd") as stream:
        while True:
            try:
                block = stream.read(BLOCK_BYTES)
            except OSError as error:
                if "truncated" in str(error).lower():
                    return  # still being written
                raise _broken(path, error) from None
            if not block:
                return
            given += len(block)
            _check_expansion(path, file.tell(), given)
            yield block


def _broken(path: Path, error: Exception) -> BadInput:
    return refuse(path, f"the compressed data is damaged ({error})", "copy the file again")


def _check_expansion(path: Path, taken: int, given: int) -> None:
    if given > FREE_EXPANSION and given > MAX_EXPANSION * taken:
        what = f"it expands more than {MAX_EXPANSION}-fold, like a compressed bomb"
        raise refuse(path, what, "decompress it yourself if you trust it")
