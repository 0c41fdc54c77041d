"""One pass of a run at a time: a lease with an end, which a dead owner on this machine loses at once."""

import os
import socket
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import duckdb

from flows.errors import LeaseTaken
from flows.store.frames import execute, rows


@dataclass(frozen=True)
class Process:
    """A process that no later one can be mistaken for: machine (this boot, this PID namespace), number, start time."""

    host: str
    machine: str
    pid: int
    started: str


def this_process() -> Process:
    """The process that runs this."""
    return Process(socket.gethostname(), _machine(), os.getpid(), _started(os.getpid()))


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return f"{socket.gethostname()}/{uuid.getnode():x}"


def _started(pid: int) -> str:
    try:
        # the name in parentheses may hold spaces; the start time is the 20th field after it
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def is_gone(pid: int, started: str) -> bool:
    """Whether the process of that number and start time has ended (a zombie has)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it lives, under another user
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in "ZX" or (started != "" and _started(pid) != started)


def take(
    connection: duckdb.DuckDBPyConnection,
    run: str,
    owner: str,
    token: str,
    *,
    ttl_seconds: float,
    now: datetime,
    me: Process,
) -> datetime:
    """Take the lease or prolong one's own (the same token); returns its end. Raises LeaseTaken."""
    for held in rows(connection, "SELECT * FROM leases WHERE run = ?", [run]):
        if held["token"] == token or held["expires_at"] <= now:
            continue
        if held["machine"] == me.machine and is_gone(held["pid"], held["pid_started"]):
            continue
        raise LeaseTaken(
            f"run {run!r}: {held['owner']} (PID {held['pid']} on {held['host']}) is at work on it until "
            f"{held['expires_at']:%Y-%m-%d %H:%M:%S} UTC; this pass is dropped, the next one takes over."
        )
    end = now + timedelta(seconds=ttl_seconds)
    execute(connection, "DELETE FROM leases WHERE run = ?", [run])
    execute(
        connection,
        "INSERT INTO leases (run, owner, token, host, machine, pid, pid_started, expires_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [run, owner, token, me.host, me.machine, me.pid, me.started, end],
    )
    return end


def still_mine(connection: duckdb.DuckDBPyConnection, run: str, token: str) -> bool:
    """Whether nobody took the lease over."""
    return bool(rows(connection, "SELECT token FROM leases WHERE run = ? AND token = ?", [run, token]))


def give_back(connection: duckdb.DuckDBPyConnection, run: str, token: str) -> None:
    """End one's own lease."""
    execute(connection, "DELETE FROM leases WHERE run = ? AND token = ?", [run, token])
