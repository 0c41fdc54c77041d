"""Range queries against Prometheus and what speaks its API (VictoriaMetrics, Mimir, Thanos): GPUs, links, nodes.

`prometheus+http://host:9090/?query=EXPR&query.NAME=EXPR&step=15s&start=2026-11-01T00:00:00Z`. The step of a sample is
its unix time in seconds, a multiple of `step`: it does not depend on where the watch began. Labels become part of the
name, in their order: `DCGM_FI_DEV_GPU_TEMP/gpu=0`. Only windows that are over by the server's own clock are asked for,
so that a later pull finds nothing else there. Counters stay as they are.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import numpy as np
import polars as pl

from flows.errors import SourceUnavailable
from flows.records import SAMPLE_SCHEMA, Batch, Description
from flows.sources.contract import MAX_METRICS, MAX_NAME_CHARS, refuse
from flows.sources.cursor import decode
from flows.sources.rows import FLUSH_ROWS
from flows.sources.timestamps import PLAUSIBLE_SECONDS
from flows.sources.web import TooMuch, ask, netrc_login, open_client

FORMAT = "prometheus"
MAX_POINTS = 10_000  # a series and question; Prometheus refuses more than 11,000
FIRST_POINTS = 100  # before it is known how many series there are
FIRST_LOOK = 86_400.0  # seconds before now, where no start is given
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)?")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, None: 1.0}
_FORM = "prometheus+http://HOST:9090/?query=EXPR&step=15s"
_LOGIN = "put the login into ~/.netrc"


@dataclass(frozen=True)
class Queries:
    """`queries` are (name or "", expression); `step`, `lateness` in seconds; `start` unix seconds or None."""

    base: str
    queries: tuple[tuple[str, str], ...]
    step: float
    lateness: float
    start: float | None
    run: str
    source: str

    def describe(self) -> Description:
        return Description(self.run, self.source, FORMAT, "unix time in seconds")

    def pull(self, cursor: str | None) -> Iterator[Batch]:
        asked = [self.step, *map(list, self.queries)]
        state = decode(cursor, FORMAT)
        restart = bool(cursor) and state.get("asked") != asked
        with _client(self.base) as client:
            now = self._now(client)
            upto = _aligned(now - self.step - self.lateness, self.step)
            begin = _aligned(self.start if self.start is not None else now - FIRST_LOOK, self.step)
            at = float(state["next"]) if state.get("next") is not None and not restart else begin
            points = FIRST_POINTS
            while at <= upto:
                end = min(upto, at + (points - 1) * self.step)
                notes: Counter[str] = Counter()
                try:
                    rows, series = self._window(client, at, end, notes)
                except TooMuch:
                    if points == 1:
                        raise
                    points = max(1, points // 4)
                    continue
                at = end + self.step
                points = max(1, min(MAX_POINTS, 4 * points, FLUSH_ROWS // max(1, series)))
                yield Batch(rows, json.dumps({"format": FORMAT, "asked": asked, "next": at}), restart, dict(notes))
                restart = False

    def _now(self, client: httpx.Client) -> float:
        """The server's clock: what it has not scraped yet is behind it, whatever ours says."""
        answer = self._asked(client, "query", query="time()")
        low, high = PLAUSIBLE_SECONDS
        try:
            now = float(answer["result"][1])
        except (KeyError, IndexError, TypeError, ValueError):
            now = math.nan
        if not low <= now < high:
            raise SourceUnavailable(f"{self.source}: the server does not tell its time; is it a Prometheus?")
        return now

    def _window(self, client: httpx.Client, low: float, high: float, notes: Counter[str]) -> tuple[pl.DataFrame, int]:
        """Rows with low <= time <= high in the order of time, then of the queries; and how many series they are of."""
        columns: dict[str, tuple[Any, Any]] = {}
        given = {"start": f"{low:.3f}", "end": f"{high:.3f}", "step": f"{self.step:.3f}"}
        for name, expression in self.queries:
            answer = self._asked(client, "query_range", query=expression, **given)
            for metric, times, values in self._series(answer, name or expression):
                if len(metric) > MAX_NAME_CHARS:
                    notes["series with too long a name"] += 1
                    continue
                if metric in columns:
                    notes["series of the same name, passed over"] += 1
                    continue
                columns[metric] = times, values
        if len(columns) > MAX_METRICS:
            raise refuse(self.source, f"more than {MAX_METRICS:,} series", "aggregate them, such as max by (gpu) (...)")
        return self._frame(columns, notes), len(columns)

    def _series(self, answer: dict[str, Any], unnamed: str) -> Iterator[tuple[str, Any, Any]]:
        """Name, times and values of each series."""
        try:
            for series in answer.get("result") or []:
                points = np.array(series["values"], dtype=object).reshape(-1, 2)
                name = name_of(series.get("metric") or {}, unnamed)
                yield name, points[:, 0].astype(np.float64), points[:, 1].astype(np.float64)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise SourceUnavailable(f"{self.source}: the server gives series that are none") from None

    def _frame(self, columns: dict[str, tuple[Any, Any]], notes: Counter[str]) -> pl.DataFrame:
        if not columns:
            return pl.DataFrame(schema=SAMPLE_SCHEMA)
        times = np.concatenate([time for time, _ in columns.values()])
        values = np.concatenate([value for _, value in columns.values()])
        which = np.repeat(np.arange(len(columns)), [len(time) for time, _ in columns.values()])
        if absent := int(np.isnan(values).sum()):
            notes["NaN of Prometheus: nothing was measured"] += absent
        keep = np.flatnonzero(~np.isnan(values))
        chosen = keep[np.lexsort((which[keep], times[keep]))]
        micros = np.round(times[chosen] * 1e6).astype(np.int64)
        return pl.DataFrame(
            {
                "step": times[chosen],
                "logged_at": pl.Series(micros.view("datetime64[us]"), dtype=pl.Datetime("us")),
                "name": pl.Series(list(columns), dtype=pl.String).gather(which[chosen]),
                "value": values[chosen],
            },
            schema=SAMPLE_SCHEMA,
        )

    def _asked(self, client: httpx.Client, what: str, **params: str) -> dict[str, Any]:
        answer = ask(client, f"{self.base}/api/v1/{what}", self.source, params=params, login=_LOGIN)
        data = answer.get("data") if isinstance(answer, dict) and answer.get("status") == "success" else None
        if not isinstance(data, dict):
            raise SourceUnavailable(f"{self.source}: no answer of a Prometheus server")
        return data


def name_of(labels: dict[str, str], unnamed: str) -> str:
    """`name/gpu=0/host=a` of the labels of a series; `unnamed` where the query left it without a name."""
    base = labels.get("__name__") or " ".join(unnamed.split())
    return "/".join([base, *(f"{key}={value}" for key, value in sorted(labels.items()) if key != "__name__")])


def open_prometheus(target: str, run: str | None) -> Queries:
    """Raises BadInput for an address without a query, or with a word that means nothing."""
    parts = urlsplit(target.split("+", maxsplit=1)[1])
    queries: list[tuple[str, str]] = []
    given: dict[str, str] = {}
    for key, value in parse_qsl(parts.query):
        if key == "query" or key.startswith("query."):
            queries.append((key.removeprefix("query").removeprefix("."), value))
        elif key in {"step", "start", "lateness"}:
            given[key] = value
        else:
            raise refuse(target, f"{key!r} means nothing here", f"write {_FORM}, with start= and lateness= if you like")
    if not queries or not parts.hostname:
        raise refuse(target, "no query in it", f"write {_FORM}; percent-encode + as %2B and & as %26")
    step = _seconds(target, given.get("step", "15s"))
    if step < 1 or step != math.floor(step):
        raise refuse(target, "the step is no whole number of seconds", "write step=15s")
    lateness = _seconds(target, given.get("lateness", "60s"))
    start = _time(target, given["start"]) if "start" in given else None
    base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
    return Queries(base, tuple(queries), step, lateness, start, run or parts.netloc, target)


def _aligned(seconds: float, step: float) -> float:
    """The last multiple of the step that is not later."""
    return math.floor(seconds / step) * step


def _seconds(target: str, text: str) -> float:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise refuse(target, f"{text!r} is no duration", "write 15s, 5m, 1h or a number of seconds")
    return float(found[1]) * _SECONDS[found[2]]


def _time(target: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise refuse(target, f"{text!r} is no time", "write start=2026-11-01T00:00:00Z or unix seconds") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _client(base: str) -> httpx.Client:
    login = netrc_login(urlsplit(base).hostname or "")
    return open_client(auth=httpx.BasicAuth(*login) if login else None)
