"""Files behind an address, and addresses that nothing reads."""

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.errors import BadInput, SourceUnavailable
from flows.sources import remote, web
from flows.sources.catalogue import open_sources


def lines(count: int, offset: float = 0.0) -> bytes:
    return b"".join(b'{"step": %d, "loss": %r}\n' % (at, at + offset) for at in range(count))


class FileServer:
    """One file at any path; `ranges` says whether it honours ranges, `sent` keeps how many bytes of each answer."""

    def __init__(self) -> None:
        self.content = b""
        self.ranges = True
        self.status = 200
        self.cut: int | None = None
        self.sent: list[int] = []
        self.headers: list[dict[str, str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.headers.append(dict(self.headers))
                begin = int(self.headers.get("Range", "bytes=0-")[6:-1]) if server.ranges else 0
                partial = server.ranges and "Range" in self.headers
                body = server.content[begin:]
                self.send_response(416 if partial and not body else server.status if not partial else 206)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                server.sent.append(len(body))
                if server.cut is not None:
                    body, server.cut = body[: server.cut], None
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Be quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/runs/a/metrics.jsonl?version=1"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setattr(web, "pause", lambda seconds: None)
    monkeypatch.setenv("NETRC", "/nowhere")
    peer = FileServer()
    yield peer
    peer.close()


def pulled(target: str, cursor: str | None, cache: Path) -> tuple[pl.DataFrame, str | None, bool]:
    (source,) = open_sources(target, cache=cache)
    assert (source.describe().run, source.describe().source) == ("metrics", target)
    batches = list(source.pull(cursor))
    if not batches:
        return pl.DataFrame(), cursor, False
    return pl.concat([batch.rows for batch in batches]), batches[-1].cursor, batches[0].restart


@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_on_the_web_grows_by_what_is_new(server: FileServer, tmp_path: Path, ranges: bool) -> None:
    server.ranges, server.content = ranges, lines(3000)
    first, cursor, _ = pulled(server.url, None, tmp_path)
    server.content = lines(3100)
    second, cursor, restart = pulled(server.url, cursor, tmp_path)
    assert (len(first), restart) == (3000, False)
    assert second["value"].to_list() == [float(at) for at in range(3000, 3100)]
    expected = [len(lines(3000)), len(lines(3100)) - len(lines(3000)) + remote.OVERLAP if ranges else len(lines(3100))]
    assert server.sent == expected
    assert pulled(server.url, cursor, tmp_path)[0].is_empty()
    assert "Authorization" not in server.headers[0]


@pytest.mark.parametrize(
    "content", [lines(3000, 0.5), lines(2000, 0.5), lines(4000, 0.5)], ids=["same size", "less", "more"]
)
def test_a_file_that_was_written_over_is_fetched_whole_and_begins_anew(
    server: FileServer, tmp_path: Path, content: bytes
) -> None:
    server.content = lines(3000)
    _, cursor, _ = pulled(server.url, None, tmp_path)
    server.content = content
    rows, _, restart = pulled(server.url, cursor, tmp_path)
    assert restart
    assert rows["value"].to_list() == [at + 0.5 for at in range(content.count(b"\n"))]


def test_a_half_answer_is_taken_up_again(server: FileServer, tmp_path: Path) -> None:
    server.content, server.cut = lines(3000), 20_000
    assert len(pulled(server.url, None, tmp_path)[0]) == 3000
    assert len(server.sent) == 2
    server.content, server.cut = lines(5000), 9_000
    assert len(pulled(server.url, None, tmp_path)[0]) == 5000


@pytest.mark.parametrize(
    ("status", "error", "told"),
    [
        (404, BadInput, r"no such run there \(404\)"),
        (403, BadInput, r"not allowed to be read \(403\); add the host to ~/.netrc"),
        (503, SourceUnavailable, r"it answers 503, 5 times"),
    ],
)
def test_what_the_web_server_refuses_is_told(
    server: FileServer, tmp_path: Path, status: int, error: type[Exception], told: str
) -> None:
    server.status = status
    with pytest.raises(error, match=told):
        open_sources(server.url, cache=tmp_path)


def test_a_web_page_is_no_file_and_a_login_page_no_new_one(server: FileServer, tmp_path: Path) -> None:
    server.content = b"<!DOCTYPE html><html>blob</html>"
    with pytest.raises(BadInput, match=r"a web page, no file; give the address of the raw file"):
        open_sources(server.url, cache=tmp_path)
    server.content = lines(10)
    pulled(server.url, None, tmp_path)
    server.content, server.ranges = b"<!DOCTYPE html><html>log in</html>", False
    with pytest.raises(SourceUnavailable, match="a web page instead of the file"):
        open_sources(server.url, cache=tmp_path)


def test_a_broken_file_is_named_by_its_address(server: FileServer, tmp_path: Path) -> None:
    server.content = b"PK\x03\x04 zip"
    with pytest.raises(BadInput, match=r"^http://127\.0\.0\.1:\d+/runs/a/metrics\.jsonl\?version=1: a ZIP archive"):
        open_sources(server.url, cache=tmp_path)


def test_without_a_cache_the_copy_is_gone_with_the_process(server: FileServer) -> None:
    server.content = lines(10)
    (source,) = open_sources(server.url)
    assert isinstance(source, remote.Remote)
    assert source.copy.is_relative_to(remote._FOLDERS[-1].name)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(30, 9000), min_size=1, max_size=5))
def test_an_object_that_grows_by_bytes_gives_each_row_once(tmp_path: Path, cuts: list[int]) -> None:
    store, target = fsspec.filesystem("memory"), f"memory://bucket/{len(cuts)}-{hash(tuple(cuts))}/metrics.jsonl"
    whole, cursor, found = lines(400), None, []
    for cut in [*sorted(cuts), len(whole)]:
        store.pipe(target, whole[:cut])
        rows, cursor, restart = pulled(target, cursor, tmp_path)
        assert not restart
        found += rows["value"].to_list() if len(rows) else []
    assert found == [float(at) for at in range(400)]


def test_any_format_is_read_from_an_object_store(tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    state = {"log_history": [{"step": 1, "loss": 2.5}], "epoch": 1.0}
    store.pipe("memory://any/trainer_state.json", json.dumps(state).encode())
    store.pipe("memory://any/run.csv.gz", gzip.compress(b"step,loss\n1,2.5\n"))
    pl.DataFrame({"step": [1], "loss": [2.5]}).write_parquet(tmp_path / "x.parquet")
    store.pipe("memory://any/x.parquet", (tmp_path / "x.parquet").read_bytes())
    found = {}
    for name in ("trainer_state.json", "run.csv.gz", "x.parquet"):
        (source,) = open_sources(f"memory://any/{name}", cache=tmp_path / "cache")
        found[source.describe().format] = [batch.rows["value"].to_list() for batch in source.pull(None)]
    assert found == {"trainer_state": [[2.5]], "csv": [[2.5]], "parquet": [[2.5]]}


def test_what_an_object_store_lacks_is_refused(tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe("memory://folder/a/b.jsonl", lines(3))
    with pytest.raises(BadInput, match=r"memory://folder/none.jsonl: no such file; check the address"):
        open_sources("memory://folder/none.jsonl", cache=tmp_path)
    with pytest.raises(BadInput, match=r"memory://folder/a: a folder; name one file in it"):
        open_sources("memory://folder/a", cache=tmp_path)


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_package_that_is_missing_is_named_with_its_extra(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ImportError("no such module")

    monkeypatch.setattr("fsspec.core.url_to_fs", missing)
    with pytest.raises(
        BadInput, match=rf"{scheme}:// addresses need the package \w+; pip install 'watchkeeper\[objects\]'"
    ):
        open_sources(f"{scheme}://bucket/run.jsonl", cache=tmp_path)


@pytest.mark.parametrize(
    "target",
    ["https://me:hunter2@files.example/run.jsonl", "https://files.example/run.jsonl?token=hunter2",
     "https://files.example/run.jsonl#access_token=hunter2", "http://h/#/experiments/1/runs/2?token=hunter2",
     "prometheus+http://me:hunter2@h/?query=up", "s3://AKIA:hunter2@bucket/run.jsonl",
     "https://hunter2@files.example/run.jsonl", "mlflow+https://hunter2@h/abc", "wandb://hunter2@team/project/run"],
)  # fmt: skip
def test_an_address_that_holds_a_secret_is_refused_and_not_repeated(target: str) -> None:
    with pytest.raises(BadInput, match=r"there is a password, key or token in this address") as refused:
        open_sources(target)
    assert "hunter2" not in str(refused.value)


def test_an_address_that_nothing_reads_says_what_is_read() -> None:
    with pytest.raises(BadInput, match=r"ftp://\.\.\.: this kind of address cannot be read; .*wandb://"):
        open_sources("ftp://files.example/run.jsonl")
