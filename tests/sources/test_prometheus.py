"""Range queries against a real Prometheus: history that was filled in, and an exporter that is being scraped."""

import json
import math
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import polars as pl
import programs
import pytest

from flows.errors import BadInput
from flows.sources import prometheus
from flows.sources.catalogue import open_sources

STEP, COUNT = 5, 30_000  # 42 hours: more than the 11,000 points that Prometheus gives at once
needs_prometheus = pytest.mark.skipif(programs.prometheus() is None, reason="prometheus is not installed")


class Exporter(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'link_errors_total{link="a"} 3\n'
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """Address, and the unix time of the first sample that was filled in."""
    folder = tmp_path_factory.mktemp("prometheus")
    first = (int(time.time()) - (COUNT + 1000) * STEP) // STEP * STEP
    lines = ["# TYPE temp gauge\n", *(f'temp{{gpu="{gpu}"}} {temperature(at, gpu)} {first + at * STEP}\n'
             for at in range(COUNT) for gpu in (0, 1) if not 100 <= at < 200)]  # fmt: skip
    (folder / "filled.txt").write_text("".join([*lines, "# EOF\n"]))
    fill = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "filled.txt", "data"]
    subprocess.run(fill, cwd=folder, check=True, capture_output=True, timeout=120)
    exporter = ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    threading.Thread(target=exporter.serve_forever, args=(0.01,), daemon=True).start()
    target = f"127.0.0.1:{exporter.server_address[1]}"
    scrape = [{"job_name": "node", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}]
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": scrape}))
    base = f"127.0.0.1:{programs.free_port()}"
    command = [str(programs.prometheus()), "--config.file=prometheus.yml", "--storage.tsdb.path=data",
               f"--web.listen-address={base}", "--log.level=error"]  # fmt: skip
    try:
        with programs.running(command, f"http://{base}/-/ready", folder):
            yield base, first
    finally:
        exporter.shutdown()
        exporter.server_close()


def temperature(at: int, gpu: int) -> float:
    return 50 + gpu + at % 7


def address(base: str, query: str, **words: object) -> str:
    return f"prometheus+http://{base}/?query={quote(query)}&" + "&".join(
        f"{key}={value}" for key, value in words.items()
    )


@needs_prometheus
def test_a_long_history_comes_in_windows_with_every_sample_once(server: tuple[str, int]) -> None:
    base, first = server
    last = first + (COUNT - 1) * STEP
    (source,) = open_sources(address(base, "temp", step=f"{STEP}s", start=first))
    assert source.describe().format == "prometheus"
    assert source.describe().run == base
    batches = list(source.pull(None))
    rows = pl.concat([batch.rows for batch in batches]).filter(pl.col("step") <= last)
    one = rows.filter(name="temp/gpu=1")
    # five minutes behind a gap Prometheus repeats the last value: that is its rule, and no sample of ours is missing
    told = one.filter(~pl.col("step").is_between(first + 100 * STEP, first + 199 * STEP))
    assert told["step"].to_list() == [first + at * STEP for at in range(COUNT) if not 100 <= at < 200]
    assert told["value"].to_list() == [temperature(at, 1) for at in range(COUNT) if not 100 <= at < 200]
    assert one["step"].is_unique().all()
    assert one.filter(pl.col("step").is_between(first + 165 * STEP, first + 199 * STEP)).is_empty()
    assert rows["step"].is_sorted()
    assert (rows["logged_at"].dt.epoch("s") == rows["step"]).all()
    assert max(len(batch.rows) for batch in batches) <= 2 * prometheus.MAX_POINTS
    assert not any(batch.restart for batch in batches)


@needs_prometheus
def test_a_later_pull_gives_what_is_new_and_another_query_begins_anew(server: tuple[str, int]) -> None:
    base, first = server
    start = first + 1000 * STEP
    (source,) = open_sources(address(base, "temp", step=f"{STEP}s", start=start))
    batches = list(source.pull(None))
    halfway, rest = batches[0].cursor, pl.concat([batch.rows for batch in batches[1:]])
    again = pl.concat([batch.rows for batch in source.pull(halfway)])
    assert again.filter(pl.col("step") <= rest["step"].max()).equals(rest)
    (other,) = open_sources(address(base, "max(temp)", step=f"{STEP}s", start=start))
    anew = list(other.pull(halfway))
    assert [batch.restart for batch in anew] == [True, *[False] * (len(anew) - 1)]
    assert anew[0].rows["name"].unique().to_list() == ["max(temp)"]
    assert anew[0].rows["step"][0] == start


@needs_prometheus
def test_what_is_scraped_now_comes_only_when_its_window_is_over(server: tuple[str, int]) -> None:
    base, _ = server
    begun = math.floor(time.time())
    asked = quote("sum by (link) (link_errors_total)")
    query = f"prometheus+http://{base}/?query.errors={asked}&step=1s&lateness=0s&start={begun}"
    (source,) = open_sources(query)
    cursor, rows = None, pl.DataFrame()
    for _ in range(30):
        for batch in source.pull(cursor):
            cursor, rows = batch.cursor, pl.concat([rows, batch.rows])
        assert rows.is_empty() or rows["step"].max() <= time.time() - 1
        if len(rows) >= 2:
            break
        time.sleep(0.5)
    assert rows["name"].unique().to_list() == ["errors/link=a"]
    assert rows["value"].unique().to_list() == [3.0]
    assert rows["step"].diff().drop_nulls().unique().to_list() == [1.0]


@needs_prometheus
def test_nan_is_no_measurement_and_infinity_is_kept(server: tuple[str, int]) -> None:
    base, first = server
    (source,) = open_sources(address(base, "(temp - temp) / 0", step="3600s", start=first + 7200))
    found = list(source.pull(None))
    assert sum(len(batch.rows) for batch in found) == 0
    assert sum(batch.notes["NaN of Prometheus: nothing was measured"] for batch in found) > 10
    (source,) = open_sources(address(base, "temp / 0", step="3600s", start=first + 7200))
    assert pl.concat([batch.rows for batch in source.pull(None)])["value"].unique().to_list() == [math.inf]


@needs_prometheus
def test_a_query_with_a_mistake_says_what_prometheus_says(server: tuple[str, int]) -> None:
    (source,) = open_sources(address(server[0], "rate(temp", step="5s"))
    with pytest.raises(BadInput, match=r"refuses the question \(400: 1:10: parse error: unclosed left parenthesis\)"):
        list(source.pull(None))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prometheus+http://h:9090/?step=15s", "no query in it"),
        ("prometheus+http://h:9090/?query=up&stpe=15s", "'stpe' means nothing here"),
        ("prometheus+http://h:9090/?query=up&step=0.5s", "no whole number of seconds"),
        ("prometheus+http://h:9090/?query=up&step=fast", "'fast' is no duration"),
        ("prometheus+http://h:9090/?query=up&start=yesterday", "'yesterday' is no time"),
    ],
)
def test_an_address_that_cannot_be_asked_is_refused_at_once(text: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        open_sources(text)


def test_an_address_says_what_is_asked_how_often_and_from_when() -> None:
    (source,) = open_sources(
        "prometheus+https://h:9090/p/?query=up&query.t=max%20by%20(gpu)%20(temp)&step=1m&start=2026-11-01T00:00:00Z"
    )
    assert source == prometheus.Queries(
        "https://h:9090/p",
        (("", "up"), ("t", "max by (gpu) (temp)")),
        60.0,
        60.0,
        1793491200.0,
        "h:9090",
        source.source,
    )
    assert replace(source, run="x").describe().step_key == "unix time in seconds"


def test_labels_are_part_of_the_name_in_their_order() -> None:
    labels = {"host": "a", "__name__": "DCGM_FI_DEV_GPU_TEMP", "gpu": "0"}
    assert prometheus.name_of(labels, "") == "DCGM_FI_DEV_GPU_TEMP/gpu=0/host=a"
    assert prometheus.name_of({"gpu": "0"}, "max by (gpu)\n  (temp)") == "max by (gpu) (temp)/gpu=0"
