"""Servers that answer with sound JSON that means nothing: an error of ours in one line, never another one."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from flows.errors import SourceUnavailable, WatchkeeperError
from flows.sources import web
from flows.sources.catalogue import open_sources

ODD: list[Any] = [
    None, [], {}, 5, "text", {"data": None}, {"data": 5}, {"data": {"project": 7}}, {"data": {"project": {"run": {}}}},
    {"data": {"project": {"run": {"state": "finished", "historyKeys": [1], "historyLineCount": "x"}}}},
    {"data": {"project": {"run": {"historyKeys": {"keys": {"loss": 5, "x": {"typeCounts": [7]}}, "lastStep": 3}}}}},
    {"data": {"project": {"run": {"historyKeys": {"lastStep": 3}, "history": ["{", 5, None]}}}},
    {"data": {"project": {"run": {"historyKeys": {"lastStep": 3}, "history": [5, None, "{}", '{"_step": "a"}']}}}},
    {"data": {"project": {"run": {"historyKeys": {"keys": {"h": {"typeCounts": [{"type": "histogram", "count": 1}]}},
                                                  "lastStep": 3}, "sampledHistory": [[5], None]}}}},
    {"errors": "boom"}, {"errors": [{"message": "x" * 9999}]},
    {"run": {}}, {"run": {"info": {}, "data": []}}, {"run": {"info": {}, "data": {"metrics": [5, {}]}}},
    {"run": {"info": {}, "data": {"metrics": [{"key": "a"}]}}, "metrics": [{"key": "a"}]},
    {"run": {"info": {}, "data": {"metrics": [{"key": "a"}]}}, "metrics": [{"timestamp": "x", "value": None}]},
    {"status": "success", "data": {"result": [1e9, "x"]}}, {"status": "success", "data": {"result": [1.79e9, "1.79e9"]}},
    {"run": {"info": {}, "data": {"metrics": [{"key": "a"}]}}, "metrics": [], "next_page_token": "x"},
    {"status": "success", "data": {"result": [1e9, "1e300"]}}, {"status": "success", "data": {"result": [1e9, "NaN"]}},
    {"data": {"project": {"run": {"historyKeys": {"lastStep": 3}, "history": ['{"_step": 9, "loss": 1}']}}}},
    {"status": "success"}, {"status": "error", "error": "boom"},
]  # fmt: skip


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(web, "pause", lambda seconds: None)
    monkeypatch.delenv("WANDB_BASE_URL", raising=False)

    class Handler(BaseHTTPRequestHandler):
        answer = b""

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.send_header("Content-Length", str(len(self.answer)))
            self.end_headers()
            self.wfile.write(self.answer)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    peer = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=peer.serve_forever, args=(0.01,), daemon=True).start()
    yield peer
    peer.shutdown()
    peer.server_close()


@pytest.mark.parametrize(
    "form", ["http://{}/team/moe/runs/hero", "mlflow://{}/0123456789abcdef", "prometheus+http://{}/?query=up"]
)
def test_an_odd_answer_gives_no_rows_and_no_other_error(server: Any, form: str) -> None:
    refused = 0
    for odd in ODD:
        server.RequestHandlerClass.answer = json.dumps(odd).encode()
        try:
            (source,) = open_sources(form.format(f"127.0.0.1:{server.server_address[1]}"))
            assert sum(len(batch.rows) for batch in source.pull(None)) == 0
        except WatchkeeperError as error:
            refused += 1
            assert len(str(error)) < 600
            assert "\n" not in str(error)
    assert refused > 12


def test_pages_without_an_end_are_left(server: Any) -> None:
    rows = [{"timestamp": 1_790_000_000_000, "step": 0, "value": 1.0}]
    odd = {"run": {"info": {}, "data": {"metrics": [{"key": "a"}]}}, "metrics": rows, "next_page_token": "again"}
    server.RequestHandlerClass.answer = json.dumps(odd).encode()
    (source,) = open_sources(f"mlflow://127.0.0.1:{server.server_address[1]}/0123456789abcdef")
    with pytest.raises(SourceUnavailable, match="the server's pages have no end"):
        list(source.pull(None))
