"""W&B runs over a loopback server that speaks its API: by our reader, and by W&B's own SDK."""

import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from wandb_server import WandbServer

from flows.errors import BadInput, SourceUnavailable
from flows.records import Batch, Kin, Role
from flows.sources import wandb_history, wandb_online, web
from flows.sources.catalogue import open_sources
from flows.sources.contract import Source
from flows.sources.wandb_address import WandbAddress, api_key, is_wandb, wandb_address
from flows.stages.pull import pull
from flows.store import open_store

NETWORK = Path(__file__).parents[1] / "network"  # its sitecustomize writes down connections that leave the machine
KEY = "0123456789abcdef0123456789abcdef01234567"


def row(step: int, **more: Any) -> dict[str, Any]:
    return {"_step": step, "_timestamp": 1.79e9 + 10 * step, "_runtime": 10.0 * step, "loss": 4 / (1 + step), **more}


def history(count: int) -> list[dict[str, Any]]:
    """A NaN, infinities, and a key on every tenth step."""
    rows = [row(step, **({"eval/loss": 5.0 + step} if step % 10 == 0 else {})) for step in range(count)]
    rows[3]["grad"] = "NaN"
    rows[4]["grad"] = "Infinity"
    rows[5]["grad"] = 0.5
    return rows


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nowhere")
    peer = WandbServer(history(2500))
    yield peer
    peer.close()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, which are not waited for."""
    seen: list[float] = []
    monkeypatch.setattr(web, "pause", seen.append)
    return seen


def opened(server: WandbServer, **words: Any) -> Source:
    (source,) = open_sources(server.run_url, **words)
    return source


def rows_of(batches: list[Batch]) -> pl.DataFrame:
    return pl.concat([batch.rows for batch in batches])


def samples(rows: list[dict[str, Any]]) -> list[tuple[float, str, float]]:
    return [
        (float(one["_step"]), name, float(value))
        for one in rows
        for name, value in one.items()
        if not name.startswith("_")
    ]


def told(batches: list[Batch]) -> str:
    return repr([found for batch in batches for found in batch.rows.select("step", "name", "value").iter_rows()])


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("https://wandb.ai/team/moe/runs/hero", ("https://api.wandb.ai", "team", "moe", "hero")),
        ("https://wandb.ai/team/moe/runs/hero/overview", ("https://api.wandb.ai", "team", "moe", "hero")),
        ("https://wandb.ai/team/moe/runs/hero/workspace?nw=nwuserme&panel=x#y", ("https://api.wandb.ai", "team", "moe", "hero")),
        ("https://wandb.ai/team/my%20project/runs/v1.5/files/a.txt", ("https://api.wandb.ai", "team", "my project", "v1.5")),
        ("https://wandb.corp.example:8443/team/moe/runs/hero?nw=1", ("https://wandb.corp.example:8443", "team", "moe", "hero")),
        ("wandb://team/moe/hero", ("https://api.wandb.ai", "team", "moe", "hero")),
        ("wandb://team/moe/runs/hero", ("https://api.wandb.ai", "team", "moe", "hero")),
    ],
)  # fmt: skip
def test_an_address_from_the_browser_names_its_run(
    text: str, address: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_BASE_URL", raising=False)
    assert wandb_address(text) == WandbAddress(*address)
    assert text.startswith("wandb:") or is_wandb(text)


def test_a_page_that_is_no_run_is_refused_and_a_file_is_no_run() -> None:
    with pytest.raises(BadInput, match=r"this W&B page is no run; open one run in the browser"):
        open_sources("https://wandb.ai/team/moe/reports/Hero--VmlldzoxNzc2")
    assert not is_wandb("https://files.example/a/b/runs/loss.csv")
    assert not is_wandb("https://files.example/loss.csv")


def test_the_group_of_a_run_is_told(server: WandbServer) -> None:
    server.group = "g7"
    (source,) = open_sources(server.run_url)
    assert source.describe().kin == Kin(server.run_url.rpartition("/")[2], "g7")


def test_the_configured_server_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.corp.example/api-root/")
    assert wandb_address("wandb://team/moe/hero").base == "https://wandb.corp.example/api-root"
    assert wandb_address("https://wandb.corp.example/team/moe/runs/hero").base == "https://wandb.corp.example/api-root"
    assert wandb_address("https://wandb.ai/team/moe/runs/hero").base == "https://api.wandb.ai"


def test_a_key_is_shown_to_its_own_server_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.delenv("WANDB_BASE_URL", raising=False)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    (tmp_path / "netrc").write_text("machine wandb.corp.example login user password other\n")
    assert api_key("https://api.wandb.ai") == KEY
    assert api_key("https://evil.example") is None
    assert api_key("https://wandb.corp.example") == "other"


def test_every_row_comes_once_with_its_time(server: WandbServer) -> None:
    source = opened(server)
    assert (source.describe().run, source.describe().format, source.describe().step_key) == ("hero", "wandb", "_step")
    assert source.describe().source == server.run_url
    batches = list(source.pull(None))
    assert told(batches) == repr(samples(server.rows))
    assert rows_of(batches)["logged_at"].dt.epoch("s").to_list() == [
        int(1.79e9 + 10 * step) for step in rows_of(batches)["step"]
    ]
    assert [batch.notes for batch in batches] == [{}]
    assert "authorization" not in {name.lower() for name in server.headers[0]}


def test_rows_with_histograms_are_asked_for_by_their_numbers(server: WandbServer) -> None:
    picture = {"_type": "histogram", "values": [1, 2], "bins": [0, 1, 2]}
    server.rows = [dict(one, **({"weights": picture} if one["_step"] % 5 == 0 else {})) for one in server.rows]
    found = rows_of(list(opened(server).pull(None)))
    assert found.filter(pl.col("name").str.contains("weights")).is_empty()
    key = ["step", "name"]
    wanted = samples([{k: v for k, v in one.items() if k != "weights"} for one in server.rows])
    assert repr(found.sort(key).select("step", "name", "value").rows()) == repr(sorted(wanted, key=lambda one: one[:2]))
    asked = [json.loads(spec) for question in server.asked for spec in question["variables"].get("specs", [])]
    assert {tuple(spec["keys"][2:]) for spec in asked} == {("loss",), ("eval/loss",), ("grad",)}
    assert not any("history(" in question["query"] for question in server.asked)


def test_nested_names_are_joined_by_dots(server: WandbServer) -> None:
    server.rows = [
        {"_step": 0, "_wandb": {"runtime": 3}, "a": {"b": 1.0, "c": {"d": 2.0, "h": {"_type": "histogram"}}}}
    ]
    (batch,) = opened(server).pull(None)
    assert batch.rows.select("name", "value").rows() == [("a.b", 1.0), ("a.c.d", 2.0)]
    assert batch.notes == {"histogram or media instead of a number": 1}
    server.rows[0]["a"]["c"].pop("h")
    assert [batch.notes for batch in opened(server).pull(None)] == [{}]


def test_a_histogram_in_a_whole_row_is_counted_and_not_kept(server: WandbServer) -> None:
    server.rows = [row(0), row(1, picture={"_type": "image-file", "path": "x"})]
    (batch,) = opened(server).pull(None)
    assert batch.rows["name"].unique().to_list() == ["loss"]
    assert batch.notes == {"histogram or media instead of a number": 1}


def test_the_last_row_of_a_running_run_waits_until_it_is_whole(server: WandbServer) -> None:
    server.state, server.rows = "running", [row(0), row(1), {"_step": 2, "_timestamp": 1.79e9 + 20, "_runtime": 20.0}]
    first = list(opened(server).pull(None))
    assert told(first) == repr(samples([row(0), row(1)]))
    server.rows = [row(0), row(1), row(2), row(3)]
    second = list(opened(server).pull(first[-1].cursor))
    assert told(second) == repr(samples([row(2)]))
    server.state = "finished"
    third = list(opened(server).pull(second[-1].cursor))
    assert told(third) == repr(samples([row(3)]))
    assert list(opened(server).pull(third[-1].cursor)) == []


def test_a_row_that_has_changed_is_noted_and_the_last_one_wins(server: WandbServer) -> None:
    (first,) = opened(server).pull(None)
    server.rows[-1] = row(2499, loss=7.0)
    (second,) = opened(server).pull(first.cursor)
    assert not second.restart
    assert told([second]) == repr(samples([row(2499, loss=7.0)]))
    assert second.notes == {"a row that was read already has other values now; the last one wins": 1}


@pytest.mark.parametrize("what", ["rewound", "recreated", "row gone", "step key"])
def test_a_history_that_is_no_longer_there_begins_anew(server: WandbServer, what: str) -> None:
    (first,) = opened(server).pull(None)
    wanted = None
    if what == "rewound":
        server.rows = server.rows[:40]
    elif what == "recreated":
        server.created = "2026-11-02T00:00:00"
    elif what == "row gone":
        server.rows = [*server.rows[:-1], row(2600)]
    else:
        wanted = "_runtime"
    batches = list(opened(server, step_key=wanted).pull(first.cursor))
    assert [batch.restart for batch in batches] == [True]
    assert batches[0].rows["step"][0] == 0.0
    assert len(batches[0].rows.filter(name="loss")) == len(server.rows)


def test_steps_that_count_tokens_take_few_questions(server: WandbServer) -> None:
    server.rows = [row(step * 4_000_000, _timestamp=1.79e9 + step) for step in range(3000)]
    batches = list(opened(server).pull(None))
    assert told(batches) == repr(samples(server.rows))
    assert len(server.asked) < 60


def test_another_step_axis_can_be_set(server: WandbServer) -> None:
    server.rows = [row(step, tokens=1000 * step) for step in range(50)]
    source = opened(server, step_key="tokens")
    assert source.describe().step_key == "tokens"
    found = rows_of(list(source.pull(None)))
    assert found.filter(name="loss")["step"].to_list() == [1000.0 * step for step in range(50)]
    with pytest.raises(BadInput, match=r"no 'token' in its history \(there is .*tokens"):
        opened(server, step_key="token")


def test_rows_that_the_server_counts_but_does_not_give_are_noted_once(server: WandbServer) -> None:
    server.lines = 2503
    (first,) = opened(server).pull(None)
    assert first.notes == {"rows that W&B counts but did not give": 3}
    assert list(opened(server).pull(first.cursor)) == []


def test_a_gap_of_the_clock_is_noted(server: WandbServer) -> None:
    server.rows = [
        dict(one, _timestamp=one["_timestamp"] + (3300 if one["_step"] >= 1200 else 0)) for one in server.rows
    ]
    batches = list(opened(server).pull(None))
    notes = [note for batch in batches for note in batch.notes]
    assert len(notes) == 1
    assert notes[0].startswith("no rows for 55 min before step 1,200: the run stood still, or it was restarted")


def test_a_slow_run_has_no_gaps(server: WandbServer) -> None:
    server.rows = [dict(one, _timestamp=1.79e9 + 900 * one["_step"]) for one in server.rows]
    assert [batch.notes for batch in opened(server).pull(None)] == [{}]


def test_batches_stay_small_and_each_cursor_goes_on(server: WandbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wandb_history, "FLUSH_ROWS", 150)
    server.rows = history(800)
    batches = list(opened(server).pull(None))
    assert len(batches) > 5
    assert max(len(batch.rows) for batch in batches) < 160
    assert told(batches) == repr(samples(server.rows))
    for at, batch in enumerate(batches):
        assert told(batches[: at + 1] + list(opened(server).pull(batch.cursor))) == repr(samples(server.rows))


def test_a_run_of_many_metrics_is_asked_for_in_small_pages(
    server: WandbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wandb_online, "VALUES", 5_000)
    server.rows = [row(step, **{f"norm/{at}": 1.0 for at in range(96)}) for step in range(120)]
    assert sum(len(batch.rows) for batch in opened(server).pull(None)) == 120 * 97
    pages = [q["variables"]["maxStep"] - q["variables"]["minStep"] for q in server.asked if "minStep" in q["variables"]]
    assert pages == [50, 50, 20]


def test_an_answer_that_is_too_large_is_asked_for_in_parts(
    server: WandbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "MAX_ANSWER_BYTES", 40_000)
    assert told(list(opened(server).pull(None))) == repr(samples(server.rows))
    monkeypatch.setattr(web, "MAX_ANSWER_BYTES", 1_000)
    server.rows = [row(0, **{f"norm/{at}": 1.0 for at in range(400)}), row(1)]
    with pytest.raises(SourceUnavailable, match="more than 0 MB"):
        list(opened(server).pull(None))


def half(handler: Any) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "5000")
    handler.end_headers()
    handler.wfile.write(b'{"data": {"project": {"run": {"his')
    handler.close_connection = True


FAULTS = {
    "429": ((429, {"Retry-After": "7"}, b"slow down"), "it answers 429"),
    "500": ((500, {}, b"oops"), "it answers 500"),
    "503": ((503, {"Retry-After": "2"}, b""), "it answers 503"),
    "half": (half, "the connection failed"),
    "garbage": ((200, {}, b"\x00\xff{{{"), "no whole JSON"),
    "cut JSON": ((200, {}, b'{"data": {"project": '), "no whole JSON"),
    "HTML": ((200, {"Content-Type": "text/html"}, b"<html>log in</html>"), "no whole JSON"),
    "redirect": ((302, {"Location": "https://login.example/"}, b""), "redirects elsewhere"),
    "an error of GraphQL": ((200, {}, b'{"errors": [{"message": "boom"}], "data": null}'), "answers with an error: boom"),
    "no run": ((200, {}, b'[1, 2]'), "no data"),
}  # fmt: skip


@pytest.mark.parametrize("fault", [name for name in FAULTS if name not in {"an error of GraphQL", "no run"}])
def test_a_fault_that_passes_is_overcome(server: WandbServer, waits: list[float], fault: str) -> None:
    source = opened(server)
    server.faults = [FAULTS[fault][0]] * 2
    assert told(list(source.pull(None))) == repr(samples(server.rows))
    assert len(waits) == 2
    assert waits[0] >= {"429": 7.0, "503": 2.0}.get(fault, 0.2)


@pytest.mark.parametrize(
    "fault",
    [pytest.param(name, marks=[] if name in {"429", "half"} else [pytest.mark.faults]) for name in FAULTS],
)
def test_a_fault_that_stays_is_for_now_and_keeps_what_was_stored(
    server: WandbServer, waits: list[float], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(wandb_history, "FLUSH_ROWS", 1000)
    source, store = opened(server), open_store(":memory:", clock=lambda: 0.0)
    pages, ask = [0], wandb_online.ask

    def failing(*args: Any, **words: Any) -> Any:
        pages[0] += 1
        if pages[0] == 3:  # about, the first page, then this
            server.faults = [FAULTS[fault][0]] * (web.TRIES + 1)
        return ask(*args, **words)

    with monkeypatch.context() as broken:
        broken.setattr(wandb_online, "ask", failing)
        with pytest.raises(SourceUnavailable, match=FAULTS[fault][1]):
            pull(store, source, lambda name: Role("other"))
    assert len(waits) < web.TRIES
    kept = store.samples("hero", ["loss"], -math.inf, math.inf)
    assert 0 < len(kept) < 1000
    server.faults = []
    pull(store, source, lambda name: Role("other"))
    assert store.samples("hero", ["loss"], -math.inf, math.inf)["value"].to_list() == [
        one["loss"] for one in server.rows
    ]


def test_an_interrupted_pull_keeps_what_was_stored_and_goes_on_there(
    server: WandbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, store, stored = opened(server), open_store(":memory:", clock=lambda: 0.0), list[int]()

    def interrupt(rows: int) -> None:
        stored.append(rows)
        if len(stored) == 12:
            raise KeyboardInterrupt

    with monkeypatch.context() as slow:
        slow.setattr(wandb_history, "BATCH_SECONDS", 0.0)  # as if each row took that long
        with pytest.raises(KeyboardInterrupt):
            pull(store, source, lambda name: Role("other"), progress=interrupt)
    assert stored[0] == 2
    assert stored == sorted(set(stored))
    asked = len(server.asked)
    rest = pull(store, source, lambda name: Role("other"))
    assert stored[-1] + rest.new_rows == len(samples(server.rows))
    # what the run is, and then from the last row on that is stored
    assert server.asked[asked + 1]["variables"]["minStep"] == 11


def test_a_server_that_asks_for_long_patience_is_left_alone(server: WandbServer, waits: list[float]) -> None:
    server.faults = [(429, {"Retry-After": "3600"}, b"")]
    with pytest.raises(SourceUnavailable, match=r"answers 429 and asks to wait 3600 s; the next pass asks again"):
        opened(server)
    assert waits == []


def test_a_date_to_come_back_at_is_taken_by_the_servers_own_clock(server: WandbServer, waits: list[float]) -> None:
    now, then = "Mon, 30 Nov 2020 12:00:00 GMT", "Mon, 30 Nov 2020 12:00:09 GMT"

    def dated(handler: Any) -> None:
        handler.send_response_only(429)
        for name, value in (("Date", now), ("Retry-After", then), ("Content-Length", "0")):
            handler.send_header(name, value)
        handler.end_headers()

    server.faults = [dated]
    opened(server)
    assert waits == [9.0]


def test_a_server_that_does_not_answer_is_not_waited_for(
    server: WandbServer, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "TIMEOUT", 0.05)
    released = threading.Event()
    server.faults = [lambda handler: released.wait(5)] * web.TRIES
    with pytest.raises(SourceUnavailable, match=r"does not answer in time, 5 times; is the server there\?"):
        opened(server)
    released.set()


def test_an_answer_that_drips_is_given_up(
    server: WandbServer, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "WHOLE_SECONDS", -1.0)
    with pytest.raises(SourceUnavailable, match="does not answer in time"):
        opened(server)


@pytest.mark.parametrize("status", [401, 403])
def test_what_may_not_be_read_is_refused_and_no_key_is_told(
    server: WandbServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", server.url)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    server.faults = [(status, {}, b"no")]
    with pytest.raises(BadInput, match=rf"not allowed to be read \({status}\); set WANDB_API_KEY") as refused:
        opened(server)
    assert KEY not in str(refused.value)
    assert "Basic" in server.headers[0]["Authorization"]


def test_a_private_run_without_a_key_is_refused_with_what_to_do(server: WandbServer) -> None:
    server.private = True
    with pytest.raises(
        BadInput, match=r"no such run, or a private one; check the address; to read .* set WANDB_API_KEY"
    ):
        opened(server)


def test_a_refused_connection_is_for_now(server: WandbServer, waits: list[float]) -> None:
    server.close()
    with pytest.raises(SourceUnavailable, match=r"the connection failed \(ConnectError\), 5 times"):
        opened(server)


def test_check_reads_an_address_and_writes_the_key_nowhere(server: WandbServer, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        "PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join([str(NETWORK), *sys.path]), "HOME": str(home),
        "WATCHKEEPER_NET_LOG": str(tmp_path / "network.log"), "WANDB_BASE_URL": server.url, "WANDB_API_KEY": KEY,
    }  # fmt: skip
    command = [sys.executable, "-m", "flows.cli", "check", server.run_url, "--json", "--store", "kept.duckdb"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=120, check=False)
    assert done.returncode in {0, 1}, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert (run["run"], run["source"], run["format"], run["last_step"]) == ("hero", server.run_url, "wandb", 2499.0)
    assert list(home.iterdir()) == []
    assert not (tmp_path / "network.log").exists()
    assert "Basic" in server.headers[0]["Authorization"]
    for written in (done.stdout, done.stderr, *(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())):
        assert KEY.encode() not in written


def test_the_sdk_gives_the_same_rows_and_leaves_nothing_behind(
    server: WandbServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(NETWORK))
    monkeypatch.setenv("WATCHKEEPER_NET_LOG", str(tmp_path / "network.log"))
    monkeypatch.setenv("WANDB_BASE_URL", server.url)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    before = {thread for thread in threading.enumerate() if "process_request" not in thread.name}
    (theirs,) = open_sources("wandb+sdk://team/moe/hero")
    (ours,) = open_sources("wandb://team/moe/hero")
    mine, other = list(ours.pull(None)), list(theirs.pull(None))
    key = ["step", "name"]
    assert rows_of(mine).sort(key).equals(rows_of(other).sort(key))
    assert mine[-1].cursor == other[-1].cursor
    assert {thread for thread in threading.enumerate() if "process_request" not in thread.name} == before
    assert list((tmp_path / "home").iterdir()) == []
    # neither did it talk to anybody else
    assert not (tmp_path / "network.log").exists()
    # both ways ask for the same pages
    pages = [q["variables"] for q in server.asked if "HistoryPage" in q["query"]]
    assert [(page["minStep"], page["maxStep"]) for page in pages] == [(0, 1000), (1000, 2000), (2000, 2500)] * 2


@pytest.mark.faults
@pytest.mark.parametrize("what", ["resume", "rewound", "no account", "no run"])
def test_the_sdk_resumes_and_fails_as_our_reader_does(
    server: WandbServer, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_BASE_URL", server.url)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    (theirs,) = open_sources("wandb+sdk://team/moe/hero")
    (first,) = theirs.pull(None)
    if what == "resume":
        server.rows = [*server.rows, row(2500)]
        assert told(list(theirs.pull(first.cursor))) == repr([(2500.0, "loss", 4 / 2501)])
    elif what == "rewound":
        server.rows = server.rows[:40]
        (again,) = theirs.pull(first.cursor)
        assert again.restart
        assert len(again.rows.filter(name="loss")) == 40
    elif what == "no account":
        monkeypatch.delenv("WANDB_API_KEY")
        with pytest.raises(BadInput, match="reads nothing without an account; set WANDB_API_KEY"):
            list(theirs.pull(None))
    else:
        server.private = True
        with pytest.raises(BadInput, match="no such run, or a private one"):
            list(theirs.pull(None))
