"""A watch over addresses: from `init` to passes that fetch what is new, outlive a dead server, and leave copies in one place."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from wandb_server import WandbServer

from flows.config import load_config
from flows.errors import SourceUnavailable
from flows.sources import web
from flows.store import open_store
from flows.wiring import one_pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    peer = WandbServer(
        [{"_step": at, "_timestamp": 1.79e9 + at, "train/loss": 2.5 + at % 3 / 100} for at in range(200)]
    )
    yield peer
    peer.close()


def test_init_and_doctor_take_an_address(folder: Any, server: WandbServer) -> None:
    done = folder.run("init", server.run_url + "/workspace?nw=nwuser")
    assert (done.returncode, done.stderr) == (0, "")
    assert "run 'hero', wandb, step '_step', 1 metrics: loss (1)" in done.stdout
    assert [run.source for run in load_config(folder.path / "watchkeeper.toml").run] == [
        server.run_url + "/workspace?nw=nwuser"
    ]
    states = {check["what"]: check["state"] for check in json.loads(folder.run("doctor", "--json").stdout)["checks"]}
    assert states["run hero"] == "ok"
    assert folder.outside() == ""


def test_a_watch_fetches_what_is_new_and_outlives_a_dead_server(
    tmp_path: Path, server: WandbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "pause", lambda seconds: None)
    (tmp_path / "watchkeeper.toml").write_text(f'[[run]]\nsource = "{server.run_url}"\n')
    config = load_config(tmp_path / "watchkeeper.toml")
    assert one_pass(config).failures == []
    server.rows = [*server.rows, {"_step": 200, "_timestamp": 1.79e9 + 200, "train/loss": 2.5}]
    server.asked.clear()
    assert one_pass(config).failures == []
    assert [q["variables"]["minStep"] for q in server.asked if "minStep" in q["variables"]] == [199]
    server.close()
    report = one_pass(config)
    assert [type(failed.error) for failed in report.failures] == [SourceUnavailable]
    assert {(each.owner, each.stage) for each in report.outcomes if each.error is None} >= {
        (f"run {server.run_url}", "judge")
    }
    store = open_store(str(tmp_path / "watchkeeper.duckdb"), clock=lambda: 0.0)
    assert store.metrics("hero")["samples"].to_list() == [201]


def test_copies_of_remote_files_stay_beside_the_store(tmp_path: Path, write_log: Any) -> None:
    fsspec = pytest.importorskip("fsspec")
    write_log(tmp_path / "log.jsonl", 0, 300)
    store, target = fsspec.filesystem("memory"), f"memory://watched/{tmp_path.name}/run.jsonl"
    store.pipe(target, (tmp_path / "log.jsonl").read_bytes())
    (tmp_path / "watchkeeper.toml").write_text(f'[[run]]\nsource = "{target}"\n')
    config = load_config(tmp_path / "watchkeeper.toml")
    assert one_pass(config).failures == []
    (copy,) = (tmp_path / "watchkeeper.duckdb.remote").glob("*/run.jsonl")
    assert copy.read_bytes() == (tmp_path / "log.jsonl").read_bytes()
    write_log(tmp_path / "log.jsonl", 300, 400)
    store.pipe(target, (tmp_path / "log.jsonl").read_bytes())
    assert one_pass(config).failures == []
    kept = open_store(str(tmp_path / "watchkeeper.duckdb"), clock=lambda: 0.0)
    assert kept.metrics("run")["samples"].to_list() == [400]
