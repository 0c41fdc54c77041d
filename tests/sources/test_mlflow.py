"""MLflow runs on its real server, in its real database and in its real file store."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import mlflow_peer_steps as steps
import polars as pl
import programs
import pytest

from flows.errors import BadInput, SourceUnavailable
from flows.records import Batch, Role
from flows.sources import mlflow_server, web
from flows.sources.catalogue import open_sources
from flows.stages.pull import pull
from flows.store import open_store

pytestmark = pytest.mark.xdist_group("mlflow")  # one server for all of them


@dataclass(frozen=True)
class Peer:
    base: str
    folder: Path
    run: str  # in the database
    files: Path  # the run's folder in the file store

    def log(self, run: str, *metrics: tuple[str, float, int, int]) -> None:
        """Name, value, milliseconds, step."""
        body = [dict(zip(("key", "value", "timestamp", "step"), one, strict=True)) for one in metrics]
        httpx.post(
            f"{self.base}/api/2.0/mlflow/runs/log-batch", json={"run_id": run, "metrics": body}
        ).raise_for_status()

    def new_run(self) -> str:
        body = {"experiment_id": "0", "run_name": "other", "start_time": 1}
        answer = httpx.post(f"{self.base}/api/2.0/mlflow/runs/create", json=body)
        return str(answer.json()["run"]["info"]["run_id"])

    def targets(self, run: str) -> list[str]:
        """Its address on the server, and in the database."""
        return [f"{self.base}/#/experiments/0/runs/{run}/model-metrics", f"sqlite:///{self.folder}/mlflow.db#{run}"]


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    pytest.importorskip("flask")
    folder, port = tmp_path_factory.mktemp("mlflow"), programs.free_port()
    program = Path(programs.__file__).with_name("mlflow_peer.py")
    command = [sys.executable, str(program), str(folder), str(port)]
    with programs.running(command, f"http://127.0.0.1:{port}/health", folder):
        runs = json.loads((folder / "runs.json").read_text())
        yield Peer(f"http://127.0.0.1:{port}", folder, runs["base"], folder / "mlruns" / "0" / runs["files"])


def rows_of(batches: list[Batch]) -> pl.DataFrame:
    return pl.concat([batch.rows for batch in batches])


def pulled(target: str, cursor: str | None = None) -> list[Batch]:
    (source,) = open_sources(target)
    return list(source.pull(cursor))


def test_server_database_and_files_give_the_same_rows_in_the_order_of_the_log(peer: Peer) -> None:
    told = {}
    for target in [
        *peer.targets(peer.run),
        f"mlflow://{peer.base[7:]}/{peer.run}",
        str(peer.files),
        str(peer.files.parents[1]),
    ]:
        (source,) = open_sources(target)
        described = source.describe()
        assert (described.format, described.step_key) == ("mlflow", "step")
        assert described.run in {f"hero-{peer.run[:6]}", f"hero-{peer.files.name[:6]}"}
        rows = rows_of(list(source.pull(None)))
        assert rows["logged_at"].is_sorted()
        assert rows["step"].is_sorted()
        told[target] = repr(rows.sort("logged_at", "name").rows())
    assert len(set(told.values())) == 1
    assert told[str(peer.files)] == repr(sorted(steps.expected(), key=lambda row: (row[1], row[2])))


def test_a_source_is_called_as_it_was_named(peer: Peer) -> None:
    for target in peer.targets(peer.run):
        (source,) = open_sources(target, run="the hero")
        assert (source.describe().run, source.describe().source) == ("the hero", target)


def both(metrics: list[tuple[str, float, int, int]]) -> list[tuple[str, float, int, int]]:
    """Two metrics at each step."""
    return [(name, value, time, step) for _, value, time, step in metrics for name in ("loss", "grad")]


@pytest.mark.parametrize("way", [0, 1], ids=["server", "database"])
def test_a_later_pull_gives_what_is_new_and_a_rewind_in_its_order(peer: Peer, way: int) -> None:
    run = peer.new_run()
    target = peer.targets(run)[way]
    first = [("loss", 9.0 - step, 1_790_000_000_000 + step, step) for step in range(8)]
    peer.log(run, *both(first))
    store = open_store(":memory:", clock=lambda: 0.0)
    (source,) = open_sources(target)
    pull(store, source, lambda name: Role("other"))
    cursor, _ = store.pull_state(source.describe().run)
    assert pulled(target, cursor) == []
    # the run was restarted from step 5 and logs other values
    again = [("loss", 19.0 - step, 1_790_000_100_000 + step, step) for step in range(5, 9)]
    peer.log(run, *both(again))
    fresh = pulled(target, cursor)
    assert [batch.restart for batch in fresh] == [False]
    assert rows_of(fresh).filter(name="loss").select("step", "value").rows() == [(s, v) for _, v, _, s in again]
    assert rows_of(fresh)["step"].is_sorted()
    pull(store, source, lambda name: Role("other"), final=True)
    attempts = store.attempts(source.describe().run)
    assert [(one.first_step, one.reason) for one in attempts] == [(0.0, "start"), (5.0, "rewind")]


def test_long_histories_come_page_by_page_and_go_on_within_a_page(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_server, "HELD_ROWS", 300)
    asked: list[dict[str, Any]] = []
    ask = mlflow_server.ask
    monkeypatch.setattr(mlflow_server, "ask", lambda *a, **k: (asked.append(k.get("params", {})), ask(*a, **k))[1])
    target = peer.targets(peer.run)[0]
    whole = pulled(target)
    assert repr(
        sorted(rows_of(whole).select("step", "logged_at", "name", "value").rows(), key=lambda r: (r[1], r[2]))
    ) == repr(sorted(steps.expected(), key=lambda row: (row[1], row[2])))
    pages = [one for one in asked if one.get("metric_key") == "train/loss"]
    assert [one["max_results"] for one in pages] == [100, 100, 100]
    asked.clear()
    assert pulled(target, whole[-1].cursor) == []
    # of each metric the last page only
    assert sorted(one["metric_key"] for one in asked if "metric_key" in one) == ["eval", "grad", "train/loss"]


@pytest.mark.parametrize("way", [0, 1], ids=["server", "database"])
def test_a_history_that_was_written_over_begins_anew(peer: Peer, way: int) -> None:
    run = peer.new_run()
    target = peer.targets(run)[way]
    peer.log(run, *[("loss", 9.0 - step, 1_790_000_000_000 + step, step) for step in range(8)])
    (first,) = pulled(target)
    cursor = json.loads(first.cursor)
    if way == 0:
        # a sample with an earlier time has come late: what was read has moved
        peer.log(run, ("loss", 77.0, 1_789_999_999_000, 0))
        (again,) = pulled(target, first.cursor)
        assert len(again.rows) == 9
        assert list(again.notes.values()) == [1]
    else:
        (again,) = pulled(target, json.dumps({**cursor, "mark": "another"}))
        assert again.rows.equals(first.rows)
    assert again.restart


@pytest.mark.parametrize("cursor", ["no JSON", "[]", '{"format": "another"}', "{}"])
def test_a_cursor_of_something_else_begins_anew(peer: Peer, cursor: str) -> None:
    for target in (*peer.targets(peer.run), str(peer.files)):
        batches = pulled(target, cursor)
        assert batches[0].restart
        assert len(rows_of(batches)) == len(steps.expected())


def test_what_is_not_there_is_refused_with_what_to_do(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    server, database = peer.targets("0" * 32)
    with pytest.raises(BadInput, match=r"no such run there \(404\); check the address"):
        open_sources(server)
    with pytest.raises(BadInput, match=rf"no such run in it; put one of its runs behind a #: .*{peer.run} \(hero\)"):
        open_sources(database)
    with pytest.raises(BadInput, match="no such database; write sqlite:///"):
        open_sources("sqlite:///none.db#x")
    (peer.folder / "text.db").write_text("no database at all, but long enough to be one" * 100)
    with pytest.raises(BadInput, match="no sound SQLite database"):
        open_sources(f"sqlite:///{peer.folder}/text.db#{peer.run}")
    with pytest.raises(BadInput, match="no MLflow run; write mlflow://HOST:PORT/RUN_ID"):
        open_sources("mlflow://127.0.0.1:1")
    monkeypatch.setattr(web, "pause", lambda seconds: None)
    with pytest.raises(SourceUnavailable, match="the connection failed"):
        open_sources(f"mlflow://127.0.0.1:{programs.free_port()}/{peer.run}")


def test_a_database_is_only_read(peer: Peer) -> None:
    database = peer.folder / "mlflow.db"
    before = database.read_bytes()
    pulled(peer.targets(peer.run)[1])
    assert database.read_bytes() == before


def test_a_password_goes_to_its_server_and_into_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "hunter2")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert mlflow_server._client("http://a")._auth is not None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.corp.example")
    assert mlflow_server._client("https://mlflow.corp.example")._auth is not None
    assert mlflow_server._client("https://evil.example")._auth is None
