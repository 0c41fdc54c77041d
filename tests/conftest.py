"""One incident with everything in it, and servers on loopback: what several suites need."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from aiosmtpd.controller import Controller

from flows.messages.document import IncidentDoc
from flows.messages.facts import Context
from flows.records import Event


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a file stay in one process, so that what a file makes once is made once, not once a process."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(str(item.path)))


def build_incident() -> IncidentDoc:
    return {
        "id": "7f3a21c09b44",
        "severity": "S3",
        "status": "open",
        "title": "train/loss diverged from 1.83 to 4.61 at step 5,210, with grad/norm/total x8.2 6 steps earlier",
        "pattern": "lr_too_high",
        "confidence": 0.82,
        "onset_step": 5204.0,
        "detected_step": 5222.0,
        "resolved_step": None,
        "severity_history": [{"step": 5206.0, "severity": "S2"}, {"step": 5222.0, "severity": "S3"}],
        "findings": [
            {
                "detector": "spikes",
                "kind": "spike",
                "metric": "grad/norm/total",
                "role": "grad_norm",
                "direction": "up",
                "onset_step": 5204.0,
                "detected_step": 5206.0,
                "magnitude": 2.1,
                "unit": "log",
                "evidence": {"before": 0.41, "after": 3.4},
            },
            {
                "detector": "divergence",
                "kind": "divergence",
                "metric": "train/loss",
                "role": "loss",
                "direction": "up",
                "onset_step": 5210.0,
                "detected_step": 5222.0,
                "magnitude": 0.92,
                "unit": "log",
                "evidence": {"before": 1.83, "after": 4.61},
            },
        ],
        "hypotheses": [
            {
                "pattern": "lr_too_high",
                "title": "The learning rate is too high",
                "score": 2.5,
                "matched": ["learning rate rose x8 at the resume"],
                "contradicted": [],
                "missing": ["update_norm"],
            },
            {
                "pattern": "bad_batch",
                "title": "A bad batch",
                "score": 0.8,
                "matched": ["sudden onset"],
                "contradicted": ["did not recover within 30 steps"],
                "missing": [],
            },
        ],
        "suggestions": [
            {
                "do": "Go back to the checkpoint before step 5,204 and resume with the planned learning rate",
                "why": "the loss follows the learning rate here",
                "cost": "222 steps",
                "reversible": True,
                "evidence": ["learning rate x8 at 5,200"],
                "counter_evidence": ["a warm-up may recover on its own within 500 steps"],
            },
            {
                "do": "Wait 200 steps",
                "why": "short instabilities recover",
                "cost": "200 steps",
                "reversible": True,
                "evidence": [],
                "counter_evidence": ["the loss is still rising"],
            },
        ],
    }


@pytest.fixture
def incident() -> IncidentDoc:
    return build_incident()


@pytest.fixture
def context() -> Context:
    return Context(
        events=(
            Event("resume", 5200.0, note="learning rate 3e-4 to 2.4e-3"),
            Event("checkpoint", 5000.0),
            Event("checkpoint", 5300.0),
        ),
        metrics={"train/loss": "loss", "eval/loss": "eval_loss", "mfu": "mfu", "grad/norm/total": "grad_norm"},
        not_checked=(("update_norm", "no metric with this role"),),
        last_step=5400.0,
    )


class Endpoint:
    """An HTTP server on loopback that answers from `answers` (status, headers, body) and keeps what it was sent."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.received: list[tuple[str, dict[str, str], bytes]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                endpoint.received.append((self.path, dict(self.headers), body))
                status, headers, text = endpoint.answers.pop(0) if endpoint.answers else (200, {}, b"ok")
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Be quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def json(self, index: int = -1) -> dict[str, object]:
        return dict(json.loads(self.received[index][2]))


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    yield server
    server.server.shutdown()
    server.server.server_close()


class Mailbox:
    """What an SMTP server on loopback took; `verdicts` are its answers to the next messages."""

    def __init__(self) -> None:
        self.mails: list[bytes] = []
        self.verdicts: list[str] = []
        self.recipients: list[list[str]] = []
        self.port = 0

    async def handle_DATA(self, server: object, session: object, envelope: object) -> str:
        verdict = self.verdicts.pop(0) if self.verdicts else "250 taken"
        if verdict.startswith("250"):
            self.mails.append(envelope.content)  # type: ignore[attr-defined]
            self.recipients.append(list(envelope.rcpt_tos))  # type: ignore[attr-defined]
        return verdict


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    box = Mailbox()
    box.port = free_port()
    controller = Controller(box, hostname="127.0.0.1", port=box.port)
    controller.start()
    yield box
    controller.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def png() -> bytes:
    """The smallest picture: one grey dot."""
    return bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
        "0000000a49444154789c6368000000820081dd436af40000000049454e44ae426082"
    )
