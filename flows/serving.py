"""A Prefect server on loopback of our own, for those who have none: found, started, watched, ended.

Nothing here imports Prefect: its settings are read when it is imported, and by then the environment must be set.
"""

import ctypes
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from flows.errors import BadConfig, StoreBusy, TransientError

START_SECONDS = 120.0  # on an idle machine it takes 5; a loaded login node is another matter
STOP_SECONDS = 15.0
KEEP_DAYS = 14


def configured_api() -> str | None:
    """The Prefect server that the user has configured: environment, active profile, prefect.toml; None if none is."""
    if url := os.environ.get("PREFECT_API_URL"):
        return url
    home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
    profiles = _toml(Path(os.environ.get("PREFECT_PROFILES_PATH") or home / "profiles.toml"))
    active = os.environ.get("PREFECT_PROFILE") or profiles.get("active")
    known = profiles.get("profiles", {}).get(active, {}) if active else {}
    found = known.get("PREFECT_API_URL") or _toml(Path("prefect.toml")).get("api", {}).get("url")
    return str(found) if found else None


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def is_healthy(api: str, timeout_seconds: float = 5.0) -> bool:
    """Whether the API answers (a server that wants a key counts: it is there)."""
    try:
        with urllib.request.urlopen(f"{api.rstrip('/')}/health", timeout=timeout_seconds):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return error.code in (401, 403)
    except (OSError, ValueError):
        return False


def home_beside(store: str) -> Path:
    """Prefect's home when none is set: a folder beside the store."""
    given = os.environ.get("PREFECT_HOME")
    return Path(given).expanduser() if given else Path(f"{store}.prefect")


@dataclass
class Server:
    """Our own server. `api` stays the same over restarts, so that those who use it find it again."""

    home: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def api(self) -> str:
        """Its API URL."""
        return f"http://127.0.0.1:{self.port}/api"

    def environment(self) -> dict[str, str]:
        """What it and its clients must see."""
        return {
            "PREFECT_HOME": str(self.home),
            "PREFECT_API_URL": self.api,
            "PREFECT_SERVER_API_HOST": "127.0.0.1",
            "PREFECT_SERVER_API_PORT": str(self.port),
            "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
            "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(KEEP_DAYS * 86400),
            "PREFECT_SERVER_EVENTS_RETENTION_PERIOD": f"P{KEEP_DAYS}D",
        }

    def start(self) -> None:
        """Start the process; its words go to server.log in its home. It ends with this process, however that ends."""
        command = [sys.executable, "-m", "uvicorn", "--factory", "prefect.server.api.server:create_app"]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--log-level", "warning", "--lifespan", "on"]
        # a short grace: open websockets of clients would hold it up
        command += ["--timeout-graceful-shutdown", "3"]
        with (self.home / "server.log").open("wb") as log:
            self.process = spawn(command, {**os.environ, **self.environment()}, log)

    def await_health(self, seconds: float = START_SECONDS) -> None:
        """Return once it answers; raises StartFailed."""
        give_up = time.monotonic() + seconds
        while self.alive() and time.monotonic() < give_up:
            if is_healthy(self.api, 2.0):
                return
            time.sleep(0.1)
        what = "ended at once" if not self.alive() else f"does not answer after {seconds:.0f} s"
        raise StartFailed(f"the Prefect server on {self.api} {what}; {self.home / 'server.log'} has its words")

    def alive(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        """End it and wait."""
        if self.process is not None:
            end(self.process)


class StartFailed(TransientError):
    """Our own Prefect server did not come up."""


def spawn(command: list[str], environment: Mapping[str, str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    """A child in a session of its own (Ctrl-C is for us to pass on) that is killed should we be killed."""
    return subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509  # we have no threads
    )


def _end_with_parent() -> None:
    # PR_SET_PDEATHSIG; not SIGTERM: a runner that winds down would go on taking passes from the next one
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def end(process: subprocess.Popen[bytes], seconds: float = STOP_SECONDS) -> None:
    """SIGTERM, then SIGKILL to whatever is left of its session."""
    with suppress(ProcessLookupError):
        process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def running(home: Path) -> str | None:
    """The API of a server that runs on this home already, such as that of `watchkeeper serve`."""
    try:
        api = f"http://127.0.0.1:{int((home / 'port').read_text())}/api"
    except (OSError, ValueError):
        return None
    return api if is_healthy(api) else None


def meet(home: Path) -> bool:
    """Use the server that runs on this home already from now on, if one does; before Prefect is loaded."""
    api = running(home)
    if api is not None:
        os.environ.update({"PREFECT_API_URL": api, "PREFECT_HOME": str(home)})
    return api is not None


def new_server(home: Path) -> Server:
    """A server on the port that this home had last, if it is free, else on any free one."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o700)
        remembered = home / "port"
        wanted = int(remembered.read_text()) if remembered.exists() else 0
    except (OSError, ValueError) as error:
        raise BadConfig(
            f"{home}: Prefect's home cannot be used ({error}); set PREFECT_HOME to a folder of yours"
        ) from None
    port = _free_port(wanted) or _free_port(0)
    remembered.write_text(str(port))
    return Server(home, port)


def _free_port(wanted: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except (OSError, OverflowError):
            return 0
        return int(probe.getsockname()[1])


@contextmanager
def only_one(store: str, what: str) -> Iterator[None]:
    """Keep a second one of the same kind away from a store; raises StoreBusy with its process number."""
    with ExitStack() as stack:
        file = stack.enter_context(Path(f"{store}.{what}.lock").open("a+", encoding="utf-8"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise StoreBusy(
                f"store {store}: `watchkeeper {what}` is running already (PID {file.read().strip()})"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
