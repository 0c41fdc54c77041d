"""The desk behind a socket: loopback unless told otherwise, few at a time, small requests, nothing logged.

A path may hold a signature, so that no line of a log may hold a path.
"""

import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from flows.phone.desk import Desk, Reply

MOST_BYTES = 1 << 20
MOST_AT_ONCE = 16
PATIENCE_SECONDS = 10.0
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex",
    "Cache-Control": "no-store",
    "Connection": "close",
}


class PhoneServer(ThreadingHTTPServer):
    """Binds at once; raises OSError where the address is taken."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], desk: Desk) -> None:
        self.desk = desk
        self.free = threading.BoundedSemaphore(MOST_AT_ONCE)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """One more than MOST_AT_ONCE is hung up on, so that idle callers cannot keep everybody out for long."""
        if not self.free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """As the base class, and gives the place back."""
        timer = threading.Timer(PATIENCE_SECONDS, _hang_up, [request])  # however slowly the bytes drip
        timer.daemon = True
        timer.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            timer.cancel()
            self.free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that hung up is no news, and a trace may hold a path."""


class _Handler(BaseHTTPRequestHandler):
    server: PhoneServer
    timeout = PATIENCE_SECONDS
    server_version, sys_version = "watchkeeper", ""

    def _answer(self) -> None:
        given = self.headers.get("Content-Length", "0")
        length = int(given) if given.isascii() and given.isdigit() and len(given) < 10 else MOST_BYTES + 1
        if length > MOST_BYTES:
            self._say(Reply(413))
            return
        headers = {key.lower(): value for key, value in self.headers.items()}
        body = self.rfile.read(length)
        if len(body) < length:
            return  # it hung up half way
        try:
            reply = self.server.desk.answer(self.command, self.path, headers, body)
        except Exception:  # noqa: BLE001  # a bug must not answer with a trace
            reply = Reply(500)
        self._say(reply)

    do_GET = do_POST = do_HEAD = _answer

    def _say(self, reply: Reply) -> None:
        content = reply.html.encode("utf-8", "replace")
        self.send_response(reply.status)
        for key, value in {**HEADERS, "Content-Length": str(len(content))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Without an echo of the request."""
        self.close_connection = True
        self.command = getattr(self, "command", None) or "GET"
        self._say(Reply(code))

    def log_message(self, *_: object) -> None:
        """Nothing: a path may hold a signature."""


def _hang_up(request: socket.socket) -> None:
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)
