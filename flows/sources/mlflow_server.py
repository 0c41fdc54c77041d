"""A run on an MLflow tracking server, over its REST API: a page of one metric at a time, never a whole history at once."""

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import polars as pl

from flows.errors import SourceUnavailable
from flows.records import SAMPLE_SCHEMA, Batch, Description
from flows.sources.contract import MAX_METRICS, refuse
from flows.sources.cursor import decode
from flows.sources.merge import Piece, Place, merged
from flows.sources.mlflow_files import FORMAT, run_label
from flows.sources.web import ask, netrc_login, open_client

HELD_ROWS = 400_000  # of all metrics together
_API = "api/2.0/mlflow"
_PAGE = re.compile(r"/experiments/[^/]+/runs/(?P<run>[0-9A-Za-z_-]+)")
_RUN_ID = re.compile(r"[0-9A-Za-z_-]{8,64}")
# what the SQL stores of MLflow write for infinities
_LARGEST = float(np.finfo(np.float64).max)
_LOGIN = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"


_CHANGED = "samples came late or were changed among those that were read: the run was read anew"


class _Moved(Exception):
    """What was read is no longer where it was."""


@dataclass(frozen=True)
class ServerRun:
    """One run. The cursor holds for each metric the token of its last page, rows read of that page and the last of them."""

    base: str
    run_id: str
    run: str
    source: str

    def describe(self) -> Description:
        return Description(self.run, self.source, FORMAT, "step")

    def pull(self, cursor: str | None) -> Iterator[Batch]:
        places: dict[str, Place] = dict(decode(cursor, FORMAT).get("pages") or {})
        restart, notes = bool(cursor) and not places, dict[str, int]()
        with _client(self.base) as client:
            names = self._names(client)
            batches = self._read(client, names, places)
            try:
                # looks at every metric once
                first = next(batches, None)
            except _Moved:
                places, restart, notes = {}, True, {_CHANGED: 1}
                batches = self._read(client, names, places)
                first = next(batches, None)
            for rows, moved in chain([first] if first else [], batches):
                places |= moved
                yield Batch(rows, _cursor(places), restart, notes)
                restart, notes = False, {}
        if restart:
            yield Batch(pl.DataFrame(schema=SAMPLE_SCHEMA), _cursor(places), restart)

    def _read(
        self, client: httpx.Client, names: list[str], places: dict[str, Place]
    ) -> Iterator[tuple[pl.DataFrame, dict[str, Place]]]:
        """Raises _Moved, before it yields anything, where what was read of a metric is no longer there."""
        size = max(100, min(10_000, HELD_ROWS // max(1, len(names))))
        return merged({name: self._pieces(client, name, places.get(name), size) for name in names})

    def about(self, client: httpx.Client) -> dict[str, Any]:
        """`info` and `data` of the run. Raises BadInput where there is none."""
        answer = self._asked(client, "runs/get", run_id=self.run_id)
        run = answer.get("run")
        if not isinstance(run, dict) or not all(isinstance(run.get(part), dict) for part in ("info", "data")):
            raise SourceUnavailable(f"{self.source}: the answer has no run; is it an MLflow server?")
        return run

    def _names(self, client: httpx.Client) -> list[str]:
        metrics = self.about(client)["data"].get("metrics") or []
        if len(metrics) > MAX_METRICS:
            raise refuse(self.source, f"more than {MAX_METRICS:,} metrics", "log one name a quantity, not one a step")
        return sorted(str(each["key"]) for each in metrics if isinstance(each, dict) and "key" in each)

    def _pieces(self, client: httpx.Client, name: str, place: Place | None, size: int) -> Iterator[Piece]:
        token, seen = (place["token"], place["seen"]) if place else ("", 0)
        while True:
            given = {"run_id": self.run_id, "metric_key": name, "max_results": max(size, seen + 1)}
            answer = self._asked(client, "metrics/get-history", **given, **({"page_token": token} if token else {}))
            rows = _rows(self.source, answer)
            if place and seen and (len(rows) < seen or _mark(rows[seen - 1]) != place["mark"]):
                raise _Moved
            if len(rows) > seen:
                yield _piece(rows[seen:], token, seen)
            last, token = token, answer.get("next_page_token") or ""
            if not token:
                return
            if token == last or not rows:
                raise SourceUnavailable(f"{self.source}: the server's pages have no end; the next pass asks again")
            place, seen = None, 0

    def _asked(self, client: httpx.Client, what: str, **params: Any) -> dict[str, Any]:
        answer = ask(client, f"{self.base}/{_API}/{what}", self.source, params=params, login=_LOGIN)
        if not isinstance(answer, dict):
            raise SourceUnavailable(f"{self.source}: no answer of an MLflow server")
        return answer


def is_mlflow(target: str) -> bool:
    """Whether an address is that of a run in MLflow's web page."""
    return _PAGE.match(urlsplit(target).fragment) is not None


def open_server(target: str, run: str | None) -> ServerRun:
    """Of an address from the browser, or `mlflow://host:port/RUN_ID` (`mlflow+https://`). Raises BadInput."""
    parts = urlsplit(target)
    if parts.scheme.lower() in {"http", "https"}:
        found = _PAGE.match(parts.fragment)
        base, run_id = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}", found["run"] if found else ""
    else:
        folder, _, run_id = parts.path.strip("/").rpartition("/")
        kind = "https" if parts.scheme.lower() == "mlflow+https" else "http"
        base = f"{kind}://{parts.netloc}/{folder}".rstrip("/")
    if not parts.netloc or not _RUN_ID.fullmatch(run_id):
        raise refuse(target, "no MLflow run", "write mlflow://HOST:PORT/RUN_ID, or paste the address of the run's page")
    looked = ServerRun(base, run_id, run or run_id, target)
    with _client(base) as client:
        info = looked.about(client)["info"]
    return ServerRun(base, run_id, run or run_label(str(info.get("run_name") or ""), run_id), target)


def _client(base: str) -> httpx.Client:
    host = urlsplit(base).hostname
    configured = urlsplit(os.environ.get("MLFLOW_TRACKING_URI", "")).hostname
    if configured in {None, host}:
        if token := os.environ.get("MLFLOW_TRACKING_TOKEN"):
            return open_client({"Authorization": f"Bearer {token}"})
        if user := os.environ.get("MLFLOW_TRACKING_USERNAME"):
            return open_client(auth=httpx.BasicAuth(user, os.environ.get("MLFLOW_TRACKING_PASSWORD", "")))
    login = netrc_login(host or "")
    return open_client(auth=httpx.BasicAuth(*login) if login else None)


def _rows(source: str, answer: dict[str, Any]) -> list[dict[str, Any]]:
    rows = answer.get("metrics") or []
    try:
        for row in rows:
            np.int64(int(row["timestamp"])), float(row.get("step") or 0), float(row.get("value", 0.0))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        raise SourceUnavailable(f"{source}: the server gives metrics that are none; the next pass asks again") from None
    return list(rows)


def _piece(rows: list[dict[str, Any]], token: str, seen: int) -> Piece:
    def place(count: int) -> Place:
        return {"token": token, "seen": seen + count, "mark": _mark(rows[count - 1])}

    return Piece(
        np.array([int(row["timestamp"]) for row in rows], dtype=np.int64),
        np.array([float(row.get("step") or 0) for row in rows]),
        np.array([_value(row.get("value", 0.0)) for row in rows]),
        place,
    )


def _value(raw: Any) -> float:
    value = float(raw)
    return math.copysign(math.inf, value) if abs(value) == _LARGEST else value


def _mark(row: dict[str, Any]) -> str:
    return f"{row.get('timestamp')} {row.get('step')} {row.get('value')}"


def _cursor(places: dict[str, Place]) -> str:
    return json.dumps({"format": FORMAT, "pages": places})
