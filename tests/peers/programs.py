"""Real servers on loopback, started by tests and ended by them."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: Sequence[str], ready: str, folder: Path, env: Mapping[str, str] | None = None) -> Iterator[None]:
    """A program until `ready`, an address, answers; it is ended in the end. Its words are in `folder`/log."""
    log = folder / "log"
    with log.open("wb") as words:
        program = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **(env or {})}, stdout=words, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    try:
        until = time.monotonic() + 120
        while True:
            assert program.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            try:
                if httpx.get(ready, timeout=5.0).status_code < 400:
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        yield
    finally:
        program.terminate()
        try:
            program.wait(20)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()


def prometheus() -> str | None:
    """Where the program is."""
    return shutil.which("prometheus") if shutil.which("promtool") else None
