"""Users' queries in a process of their own, which the system stops when one takes too long or too much.

The process is started by the first query of a store and serves the next ones too; run as a module, this is it. Both
ways a message is one JSON line, and as many bytes as it says: the rows of an answer as an Arrow stream.
"""

import io
import json
import math
import os
import resource
import signal
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, Any

import polars as pl

from flows import errors
from flows.errors import BadQuery, WatchkeeperError
from flows.store.connection import Database
from flows.store.sandbox import Answer, Limits, answer, too_big, too_slow

Message = dict[str, Any]

# what the process needs beside the query: threads, and buffers on their way out
_OVERHEAD_MB = 512
# how long DuckDB may take to heed its own limit before the system acts
_GRACE_SECONDS = 2


class Confined:
    """Answers the queries of one store; a process that had to be stopped is replaced at the next query."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()

    def answer(self, sql: str, limits: Limits) -> Answer:
        """The answer of `sandbox.answer`, from a process that cannot take more than the limits say."""
        with self._turn:
            if self._process is None or self._process.poll() is not None:
                self._process = _start()
                weakref.finalize(self, _end, self._process)
            try:
                head, body = _exchanged(self._process, {"path": str(self._path), "sql": sql, "limits": asdict(limits)})
            except (EOFError, BrokenPipeError) as error:
                raise _why_it_died(self._process, limits) from error
            except BaseException:
                _end(self._process)  # its answer would be taken for the next query's
                raise
        if "error" in head:
            raise getattr(errors, head["error"])(head["message"])
        return Answer(pl.read_ipc_stream(io.BytesIO(body)), head["note"])


def _start() -> subprocess.Popen[bytes]:
    home = str(Path(__file__).resolve().parents[2])
    search = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")]))
    # -P: a polars.py in the user's folder is not ours
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "flows.store.confined"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": search},
    )  # fmt: skip


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with suppress(BrokenPipeError):
        process.communicate()


def _exchanged(process: subprocess.Popen[bytes], request: Message) -> tuple[Message, bytes]:
    assert process.stdin is not None and process.stdout is not None
    _send(process.stdin, request)
    return _received(process.stdout)


def _why_it_died(process: subprocess.Popen[bytes], limits: Limits) -> Exception:
    assert process.stderr is not None
    words = process.stderr.read().decode(errors="replace")
    if process.wait() == -signal.SIGALRM:
        return BadQuery(too_slow(limits))
    # when the system refuses memory, Python, DuckDB or the allocator gives up, each in its own way
    if process.returncode < 0 or any(sign in words for sign in ("MemoryError", "bad_alloc", "emory allocation")):
        return BadQuery(too_big(limits))
    return RuntimeError(f"the process for queries ended with {process.returncode}: {words.strip()[-2000:]}")


def _send(stream: IO[bytes], message: Message, body: bytes = b"") -> None:
    stream.write(json.dumps({**message, "bytes": len(body)}).encode() + b"\n" + body)
    stream.flush()


def _received(stream: IO[bytes]) -> tuple[Message, bytes]:
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    message: Message = json.loads(line)
    body = stream.read(message.pop("bytes"))
    return message, body


def _serve() -> None:
    # no handler: the system ends the process whatever it is doing
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the shell's; it ends this process itself
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(10)  # whoever watches comes before whoever asks
    # DuckDB draws a progress bar on standard output when a query takes long: answers have a way of their own
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    idle_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with suppress(EOFError):  # nobody asks any more
        while True:
            request, _ = _received(sys.stdin.buffer)
            limits = Limits(**request["limits"])
            try:
                database = Database(Path(request["path"]), on_open=partial(_confine, limits, idle_bytes))
                found = answer(database, request["sql"], limits)
            except WatchkeeperError as error:
                _send(answers, {"error": type(error).__name__, "message": str(error)})
            else:
                body = io.BytesIO()
                found.rows.write_ipc_stream(body)
                _send(answers, {"note": found.note}, body.getvalue())
            finally:
                signal.alarm(0)


def _confine(limits: Limits, idle_bytes: int) -> None:
    """From here on the clock runs and memory is counted; waiting for one's turn at the store is free."""
    signal.alarm(math.ceil(limits.seconds) + _GRACE_SECONDS)
    most = idle_bytes + (limits.memory_mb + _OVERHEAD_MB) * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))


if __name__ == "__main__":
    _serve()
