"""A user's query in a process of its own, which the system stops when it takes too long or too much.

Run as a module it is that process: a request as one JSON line on standard input; on standard output one JSON line, and
the rows as an Arrow stream.
"""

import io
import json
import math
import os
import resource
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from flows import errors
from flows.errors import BadQuery, WatchkeeperError
from flows.store.connection import Database
from flows.store.sandbox import Answer, Limits, answer, too_big, too_slow

# what the process needs beside the query: two more connections, threads, buffers on their way out
_OVERHEAD_MB = 512
# how long DuckDB may take to heed its own limit before the system acts
_GRACE_SECONDS = 2


def confined_answer(path: Path, sql: str, limits: Limits) -> Answer:
    """The answer of `sandbox.answer`, from a process that cannot take more than the limits say."""
    request = json.dumps({"path": str(path), "sql": sql, "limits": asdict(limits)})
    home = str(Path(__file__).resolve().parents[2])
    search = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")]))
    child = subprocess.run(
        [sys.executable, "-P", "-m", "flows.store.confined"],
        input=request.encode(), capture_output=True, check=False, env={**os.environ, "PYTHONPATH": search},
    )  # fmt: skip
    if child.returncode == -signal.SIGALRM:
        raise BadQuery(too_slow(limits))
    head, _, body = child.stdout.partition(b"\n")
    if not head or child.returncode:
        # DuckDB or the allocator gave up when the system refused more memory
        raise BadQuery(too_big(limits))
    told = json.loads(head)
    if "error" in told:
        raise getattr(errors, told["error"])(told["message"])
    return Answer(pl.read_ipc_stream(io.BytesIO(body)), told["note"])


def _main() -> None:
    request: dict[str, Any] = json.loads(sys.stdin.buffer.read())
    limits = Limits(**request["limits"])
    # no handler: the system ends the process whatever it is doing
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    database = Database(Path(request["path"]), on_open=lambda: _confine(limits))
    try:
        found = answer(database, request["sql"], limits)
    except WatchkeeperError as error:
        _reply({"error": type(error).__name__, "message": str(error)}, b"")
    else:
        body = io.BytesIO()
        found.rows.write_ipc_stream(body)
        _reply({"note": found.note}, body.getvalue())


def _confine(limits: Limits) -> None:
    """From here on the clock runs and memory is counted; waiting for one's turn at the store is free."""
    signal.alarm(math.ceil(limits.seconds) + _GRACE_SECONDS)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    most = used + (limits.memory_mb + _OVERHEAD_MB) * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _reply(head: dict[str, Any], body: bytes) -> None:
    sys.stdout.buffer.write(json.dumps(head).encode() + b"\n" + body)


if __name__ == "__main__":
    _main()
