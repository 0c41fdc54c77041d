"""Files behind an address: a copy that grows by what is new at the end, read like any local file.

Object stores (s3://, gs://, hf://) through fsspec, web addresses directly. The copy is fetched anew when its last bytes
are no longer what stands there, so a file that is written over is read again as one that was replaced.
"""

import hashlib
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cache as once
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx

from flows.errors import BadInput, SourceUnavailable
from flows.records import Batch, Description
from flows.sources.contract import Source, refuse
from flows.sources.web import check_status, netrc_login, open_client, retried

OVERLAP = 4096  # bytes at the end of the copy that must still be there
MAX_FILE_BYTES = 64 << 30
_BLOCK = 4 << 20
_NEEDS = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hf": "huggingface-hub", "memory": ""}
_UNSAFE = re.compile(r"[^\w.@+-]")
# bytes from an offset on, and the offset that they really begin at: 0 from a server that knows no ranges
Fetch = Callable[[int], AbstractContextManager[tuple[int, Iterator[bytes]]]]


@dataclass(frozen=True)
class Remote:
    """A source that reads the copy of a file; messages name the address."""

    inner: Source
    copy: Path
    address: str

    def describe(self) -> Description:
        return replace(self.inner.describe(), source=self.address)

    def pull(self, cursor: str | None) -> Iterator[Batch]:
        with _naming(self.copy, self.address):
            yield from self.inner.pull(cursor)


def reads(scheme: str) -> bool:
    """Whether files of this kind of address can be fetched through fsspec."""
    return scheme in _NEEDS


def open_remote(
    target: str, open_file: Callable[..., list[Source]], step_key: str | None, run: str | None, cache: Path | None
) -> list[Source]:
    """Brings the copy up to date and opens it. Raises what reading a file raises, with the address for its path."""
    parts = urlsplit(target)
    name = _UNSAFE.sub("_", unquote(parts.path).rstrip("/").rpartition("/")[2])[-100:].lstrip(".")
    digest = hashlib.blake2b(target.encode(), digest_size=8).hexdigest()
    copy = (cache or _for_this_process()) / digest / (name or "download")
    copy.parent.mkdir(parents=True, exist_ok=True)
    if parts.scheme.lower() in {"http", "https"}:
        retried(target, lambda: refresh(copy, partial(_from_web, target, copy.exists()), target))
    else:
        refresh(copy, partial(_from_objects, target), target)
    with _naming(copy, target):
        return [Remote(source, copy, target) for source in open_file(str(copy), step_key=step_key, run=run)]


def refresh(copy: Path, fetch: Fetch, place: str) -> None:
    """Append what is new to the copy, or write it anew. A kill leaves a copy that is shorter or as it was."""
    size = copy.stat().st_size if copy.exists() else 0
    begin = max(0, size - OVERLAP)
    if size:
        with fetch(begin) as (start, blocks):
            if start != begin:
                _write(copy, blocks, place)
                return
            if _append(copy, size, blocks, place):
                return
    with fetch(0) as (_, blocks):
        _write(copy, blocks, place)


def _append(copy: Path, size: int, blocks: Iterator[bytes], place: str) -> bool:
    """False, with nothing written, where the end of the copy is not what the blocks begin with."""
    overlap = min(size, OVERLAP)
    found = b""
    while len(found) < overlap:
        block = next(blocks, None)
        if block is None:
            return False
        found += block
    with copy.open("r+b") as file:
        file.seek(size - overlap)
        if file.read(overlap) != found[:overlap]:
            return False
        _write_all(file, chain([found[overlap:]], blocks), size, place)
    return True


def _write(copy: Path, blocks: Iterator[bytes], place: str) -> None:
    """In one step: whoever reads the copy sees the old one or the new one."""
    fresh = copy.with_name(f"{copy.name}.part")
    with fresh.open("wb") as file:
        _write_all(file, blocks, 0, place)
    fresh.replace(copy)


def _write_all(file: Any, blocks: Iterator[bytes], size: int, place: str) -> None:
    for block in blocks:
        size += len(block)
        if size > MAX_FILE_BYTES:
            raise refuse(place, f"a file of more than {MAX_FILE_BYTES >> 30} GB", "name the log itself")
        file.write(block)


@contextmanager
def _from_web(url: str, known: bool, begin: int) -> Iterator[tuple[int, Iterator[bytes]]]:
    """Raises Again and the errors of httpx, for `retried`."""
    login = netrc_login(urlsplit(url).hostname or "")
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={begin}-"} if begin else {})}
    auth = httpx.BasicAuth(*login) if login else None
    with (
        open_client(headers, auth, redirects=True) as client,
        client.stream("GET", url) as response,
    ):
        if response.status_code == 416:  # it has become shorter than that
            yield begin, iter(())
            return
        if response.status_code >= 300:
            check_status(url, response.status_code, response.headers, b"", "add the host to ~/.netrc")
        blocks = response.iter_bytes(1 << 20)
        start = begin if response.status_code == 206 else 0
        first = next(blocks, b"")
        if start == 0 and first[:200].lstrip().lower().startswith((b"<!doctype html", b"<html")):
            if known:
                raise SourceUnavailable(f"{url}: a web page instead of the file; a proxy or a login page?")
            raise refuse(url, "a web page, no file", "give the address of the raw file")
        yield start, chain([first], blocks)


@contextmanager
def _from_objects(url: str, begin: int) -> Iterator[tuple[int, Iterator[bytes]]]:
    scheme = url.partition("://")[0].lower()
    try:
        import fsspec

        system, path = fsspec.core.url_to_fs(url, skip_instance_cache=True, use_listings_cache=False)
    except ImportError:
        mend = "pip install 'watchkeeper[objects]'"
        raise refuse(url, f"{scheme}:// addresses need the package {_NEEDS[scheme]}", mend) from None
    try:
        about = system.info(path)
    except Exception as error:
        raise _failed(url, error) from error
    if about.get("type") == "directory":
        raise refuse(url, "a folder", "name one file in it")
    yield begin, _object_blocks(url, system, path, begin, int(about.get("size") or 0))


def _object_blocks(url: str, system: Any, path: str, begin: int, end: int) -> Iterator[bytes]:
    for low in range(begin, end, _BLOCK):
        try:
            block = system.cat_file(path, start=low, end=min(end, low + _BLOCK))
        except Exception as error:
            raise _failed(url, error) from error
        yield block


def _failed(url: str, error: Exception) -> Exception:
    """What an object store's library raises: of every kind, so told by name where it is no OSError."""
    kind = type(error).__name__
    if isinstance(error, FileNotFoundError):
        return refuse(url, "no such file", "check the address")
    if isinstance(error, PermissionError) or "Credential" in kind or "Auth" in kind:
        return refuse(url, f"it is not allowed to be read ({kind})", "log in as the service's own tools do")
    return SourceUnavailable(f"{url}: the store does not answer ({kind}); the next pass asks again")


@contextmanager
def _naming(copy: Path, address: str) -> Iterator[None]:
    """Errors about the copy name the address."""
    try:
        yield
    except (BadInput, SourceUnavailable) as error:
        raise type(error)(str(error).replace(str(copy), address)) from None


@once
def _for_this_process() -> Path:
    """A folder that is gone when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="watchkeeper-")
    _FOLDERS.append(folder)
    return Path(folder.name)


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []
