"""Whose turn it is at the database file: lock files beside it let readers in together and a writer alone.

A loop of readers would starve a writer on a single lock. So everybody enters by a gate, one at a time: a waiting writer
holds the gate, no new reader passes, those inside finish, and the writer has the room for one short transaction.
Twenty readers inside would share two processors, and the writer would wait for the last of them: so
one of a few seats is taken first, and given back when its reader turns out to be slow.
"""

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from flows.errors import StoreBusy

_SEATS = 3
_SEAT_SECONDS = 1.0
# flock knows no queue: without it a loop of readers would take its own seat again before the next in line is awake
_PAUSE_SECONDS = 0.002
_threads_of_this_process: dict[Path, threading.Lock] = {}
_registry = threading.Lock()


@contextmanager
def turn(database: Path, *, writing: bool, patience_seconds: float) -> Iterator[None]:
    """Hold the reader's or the writer's turn; raises StoreBusy when it does not come within the patience."""
    with ExitStack() as stack:
        stack.enter_context(_own_process(database, patience_seconds))
        if not writing:
            stack.enter_context(_seat(database, patience_seconds))
        gate = stack.enter_context(_lock_file(database, "gate", writing))
        room = stack.enter_context(_lock_file(database, "room", writing))
        if gate is not None and room is not None:
            _take(gate, fcntl.LOCK_EX, database, patience_seconds)
            _take(room, fcntl.LOCK_EX if writing else fcntl.LOCK_SH, database, patience_seconds)
            fcntl.flock(gate, fcntl.LOCK_UN)
        yield


@contextmanager
def _own_process(database: Path, patience_seconds: float) -> Iterator[None]:
    # DuckDB shares one instance within a process and refuses a second configuration; and closing any descriptor of the
    # file would drop its record locks: so threads take turns too
    with _registry:
        lock = _threads_of_this_process.setdefault(database, threading.Lock())
    if not lock.acquire(timeout=patience_seconds):
        raise StoreBusy(_busy(database, f"another thread of this process (PID {os.getpid()})", patience_seconds))
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _seat(database: Path, patience_seconds: float) -> Iterator[None]:
    first = os.getpid() % _SEATS
    with ExitStack() as stack:
        for number in [*range(first, _SEATS), *range(first)]:
            seat = stack.enter_context(_lock_file(database, f"seat-{number}", writing=False))
            if seat is None or _is_free(seat):
                break
            stack.pop_all().close()
        else:
            seat = stack.enter_context(_lock_file(database, f"seat-{first}", writing=False))
            if seat is not None:
                _take(seat, fcntl.LOCK_EX, database, patience_seconds)
        with _given_back_when_slow(seat):
            yield
    time.sleep(_PAUSE_SECONDS)


@contextmanager
def _given_back_when_slow(seat: int | None) -> Iterator[None]:
    if seat is None:
        yield
        return
    timer = threading.Timer(_SEAT_SECONDS, fcntl.flock, (seat, fcntl.LOCK_UN))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # or it might unlock a number that is another file by then


def _is_free(descriptor: int, how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _lock_file(database: Path, which: str, writing: bool) -> Iterator[int | None]:
    path = database.with_name(f"{database.name}.{which}.lock")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        if writing:
            raise
        descriptor = None  # a read-only folder has no writer to wait for
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _take(descriptor: int, how: int, database: Path, patience_seconds: float) -> None:
    if _is_free(descriptor, how):
        return
    # polling would lose the place in the queue, and flock has no timeout: a thread waits, on a descriptor of its own
    own = os.dup(descriptor)
    done = threading.Event()
    guard = threading.Lock()
    state = {"abandoned": False}

    def wait() -> None:
        fcntl.flock(own, how)
        with guard:
            if state["abandoned"]:
                fcntl.flock(own, fcntl.LOCK_UN)
            done.set()
        os.close(own)

    threading.Thread(target=wait, name="watchkeeper-turnstile", daemon=True).start()
    if done.wait(patience_seconds):
        return
    with guard:
        if done.is_set():
            return
        state["abandoned"] = True
    raise StoreBusy(_busy(database, holder(descriptor), patience_seconds))


def holder(descriptor: int) -> str:
    """Who holds a lock file, as far as the system tells."""
    status = os.fstat(descriptor)
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return "another watchkeeper process"
    pids = [
        fields[4]
        for fields in map(str.split, lines)
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == wanted
    ]
    return f"another watchkeeper process (PID {', '.join(pids)})" if pids else "another watchkeeper process"


def _busy(database: Path, who: str, seconds: float) -> str:
    return (
        f"store {database}: {who} has held it for more than {seconds:g} s; nothing was changed. "
        "Wait for it to end, or stop it if it hangs."
    )
