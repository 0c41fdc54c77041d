"""What the journeys share: a log that grows, services on loopback, and commands as a user would run them."""

import http.server
import json
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.config import load_config
from flows.serving import Server, new_server
from flows.store import open_store
from flows.wiring import one_pass

ROOT = Path(__file__).parents[2]
MAIN = "from flows.cli import main; main()"


WriteLog = Callable[..., None]
NAN = float("nan")


def _write_log(path: Path, first: int, last: int, loss: Callable[[int], float] | None = None) -> None:
    """Append steps first..last-1 of a calm loss (or of `loss`)."""
    calm = random.Random(first)
    with path.open("a") as file:
        for step in range(first, last):
            value = loss(step) if loss is not None else 2.5 + calm.gauss(0, 0.01)
            file.write(json.dumps({"step": step, "loss": value}) + "\n")


@pytest.fixture
def write_log() -> WriteLog:
    return _write_log


class Night:
    """A watched run whose loss became NaN at step 300, its folder of alerts, and the command line beside it."""

    def __init__(self, folder: Path, write_log: WriteLog) -> None:
        self.folder, self.write, self.now = folder, write_log, 1_900_000_000.0
        self.store = folder / "watchkeeper.duckdb"
        self.configure('[[channel]]\nname = "here"\nurl = "folder:alerts"\n')
        write_log(folder / "a.jsonl", 0, 300)

    def configure(self, channels: str) -> None:
        (self.folder / "watchkeeper.toml").write_text(f'[[run]]\nsource = "a.jsonl"\ntags = ["prod"]\n{channels}')
        self.config = load_config(self.folder / "watchkeeper.toml")

    def fails(self, first: int = 300) -> None:
        self.write(self.folder / "a.jsonl", first, first + 10, lambda step: NAN)

    def watch(self, folder: str = "alerts", good: bool = True) -> list[str]:
        """One pass; the titles of the new messages."""
        before = set(self.folder.glob(f"{folder}/*.txt"))
        assert one_pass(self.config, clock=lambda: self.now).good is good
        return sorted(path.read_text().splitlines()[0] for path in set(self.folder.glob(f"{folder}/*.txt")) - before)

    def watch_whatever_comes(self) -> object:
        """One pass, however it ends: its summary and rows."""
        report = one_pass(self.config, clock=lambda: self.now)
        return report.summary(), report.markdown(), [each.text for each in report.failures]

    def say(self, *arguments: str) -> str:
        done = CliRunner().invoke(app, ["incidents", *arguments], env={"WATCHKEEPER_STORE": str(self.store)})
        if done.exception is not None:
            raise done.exception
        return done.stdout

    @property
    def id(self) -> str:
        return str(open_store(self.store, clock=lambda: self.now).incidents()[0]["incident_id"])


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No charts in messages: what is drawn is tested elsewhere."""
    monkeypatch.setattr("flows.wiring.house.chart_of", lambda store: None)


@pytest.fixture
def night(tmp_path: Path, write_log: WriteLog, undrawn: None, monkeypatch: pytest.MonkeyPatch) -> Night:
    monkeypatch.setenv("LOGNAME", "ana")
    monkeypatch.setenv("COLUMNS", "300")
    made = Night(tmp_path, write_log)
    monkeypatch.setattr("time.time", lambda: made.now)
    return made


class Folder:
    """A folder with a configuration, and the commands run in it. No process of it may talk to anybody else."""

    def __init__(self, path: Path, extra: dict[str, str] | None = None) -> None:
        self.path = path
        self.network = path / "network.log"
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "WATCHKEEPER", "PYTHON"))}
        self.environment = {
            **kept,
            "PYTHONPATH": f"{ROOT / 'tests/network'}:{ROOT}",
            "WATCHKEEPER_NET_LOG": str(self.network),
            "HOME": str(path),
            **(extra or {}),
        }

    def configure(self, text: str) -> None:
        (self.path / "watchkeeper.toml").write_text(text)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", MAIN, *arguments],
            cwd=self.path,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def outside(self) -> str:
        """Connections that left the machine."""
        return self.network.read_text() if self.network.exists() else ""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One Prefect server for all tests that do not test how it is started."""
    home = tmp_path_factory.mktemp("prefect")
    outside = Folder(home)
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update({**outside.environment, "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"})
    server = new_server(home)
    try:
        server.start()
        os.environ.clear()
        os.environ.update(before)
        server.await_health(240)
        yield server
        assert outside.outside() == ""
    finally:
        os.environ.update(before)
        server.stop()


class _Hooks(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kind = self.headers.get("Content-Type", "")
        self.server.got.append(json.loads(body) if "json" in kind else body)  # type: ignore[attr-defined]
        self._answer()

    def do_GET(self) -> None:
        self.server.got.append(self.path)  # type: ignore[attr-defined]
        self._answer()

    def _answer(self) -> None:
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


class HttpService(http.server.HTTPServer):
    """An HTTP endpoint on loopback, one request after the other: `got` holds what was posted, `status` its answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Hooks)
        self.got: list[Any] = []
        self.status = 200


@pytest.fixture
def http_service() -> Iterator[HttpService]:
    service = HttpService()
    threading.Thread(target=service.serve_forever, args=(0.01,), daemon=True).start()
    yield service
    service.shutdown()
    service.server_close()


class _Mailbox:
    def __init__(self) -> None:
        self.mails: list[bytes] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.mails.append(envelope.content)
        return "250 taken"


@pytest.fixture
def mailbox() -> Iterator[tuple[int, list[bytes]]]:
    """Port and mails of a real SMTP server."""
    from aiosmtpd.controller import Controller

    handler = _Mailbox()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    controller = Controller(handler, hostname="127.0.0.1", port=port)
    controller.start()
    yield port, handler.mails
    controller.stop()
