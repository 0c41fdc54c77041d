"""A loopback server that answers as W&B's GraphQL API does, as far as history goes; with faults on demand."""

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], bytes]


def type_of(value: object) -> str:
    if isinstance(value, dict):
        return str(value.get("_type", "map"))
    return "number" if isinstance(value, int | float) or value in {"NaN", "Infinity", "-Infinity"} else "string"


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A client that has gone is what some tests are about."""


class WandbServer:
    """One run, `rows` in the order of `_step`. `faults` are answers given before any other; `asked` keeps the questions."""

    def __init__(self, rows: list[dict[str, Any]] | None = None) -> None:
        self.rows = rows or []
        self.state = "finished"
        self.created = "2026-11-01T00:00:00"
        self.group: str | None = None
        self.lines: int | None = None  # historyLineCount where it is to differ from the rows
        self.private = False
        self.key: str | None = None
        self.faults: list[Answer | Callable[[Any], None]] = []
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                question = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
                server.headers.append(dict(self.headers))
                if server.faults:
                    fault = server.faults.pop(0)
                    if callable(fault):
                        fault(self)
                        return
                    self.answer(*fault)
                    return
                server.asked.append(question)
                try:
                    self.answer(200, {}, json.dumps({"data": server.data(question)}).encode())
                except KeyError as error:
                    self.answer(200, {}, json.dumps({"errors": [{"message": f"unknown {error}"}]}).encode())

            def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Be quiet."""

        self._server = _Quiet(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def run_url(self) -> str:
        return f"{self.url}/team/moe/runs/hero"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def data(self, question: dict[str, Any]) -> dict[str, Any]:
        query, given = question["query"], question.get("variables") or {}
        operation = (re.search(r"query\s+(\w+)", query) or [None, ""])[1]
        if operation in {"Viewer", "GetDefaultEntity", "ServerFeaturesQuery", "OrganizationFeatures", "ServerInfo"}:
            viewer = {"id": "u", "entity": "team", "username": "u", "email": "", "flags": "{}", "teams": {"edges": []}}
            return {"viewer": viewer, "serverInfo": {"features": []}}
        if "sampledHistory(specs: $specs)" in query:
            return self.run(sampledHistory=[self.sampled(json.loads(spec)) for spec in given["specs"]])
        if operation == "SampledHistoryPage":
            return self.run(sampledHistory=[self.sampled(json.loads(given["spec"]))])
        if operation == "HistoryPage":
            found = self.between(given["minStep"], given["maxStep"])[: given["pageSize"]]
            return self.run(history=[json.dumps(row) for row in found])
        if operation == "RunParquetHistory":
            return self.run(parquetHistory={"parquetUrls": [], "liveData": self.rows})
        if "historyKeys" in query:
            return self.run(
                id="1", projectId="1", name="hero", displayName="hero", state=self.state, createdAt=self.created,
                heartbeatAt=self.created, tags=[], config="{}", summaryMetrics="{}", systemMetrics="{}", group=self.group,
                historyLineCount=len(self.rows) if self.lines is None else self.lines, historyKeys=self.keys(),
                user={"name": "u", "username": "u"}, sweepName=None, jobType=None, commit=None, readOnly=True,
                description=None, notes=None,
            )  # fmt: skip
        raise KeyError(operation)

    def run(self, **fields: Any) -> dict[str, Any]:
        allowed = not self.private or self.key is not None
        return {"project": {"run": fields} if allowed else None}

    def keys(self) -> dict[str, Any] | None:
        if not self.rows:
            return None
        counts: dict[str, Counter[str]] = {}
        for row in self.rows:
            for name, value in row.items():
                counts.setdefault(name, Counter())[type_of(value)] += 1
        keys = {
            name: {"typeCounts": [{"type": kind, "count": count} for kind, count in found.items()], "monotonic": False}
            for name, found in counts.items()
        }
        return {"keys": keys, "sets": [], "lastStep": self.rows[-1]["_step"]}

    def between(self, low: int, high: int) -> list[dict[str, Any]]:
        return [row for row in self.rows if low <= row["_step"] < high]

    def sampled(self, spec: dict[str, Any]) -> list[dict[str, Any]]:
        found = self.between(spec.get("minStep", 0), spec.get("maxStep", 1 << 62))
        rows = [{key: row[key] for key in spec["keys"]} for row in found if all(key in row for key in spec["keys"])]
        return rows[: spec["samples"]]
