"""The watch as a Prefect flow, against a real server: run in the foreground, and deployed to a work pool."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.serving import Server
from flows.store import open_store

WriteLog = Callable[..., None]
pytestmark = pytest.mark.xdist_group("prefect")  # one server for all of them
ROOT = Path(__file__).parents[2]
TWO_RUNS = (
    '[[run]]\nsource = "a.jsonl"\n[[run]]\nsource = "b.jsonl"\n[watch]\nout = "pages"\n'
    '[[channel]]\nname = "here"\nurl = "folder:alerts"\n'
)


def ask(server: Server, path: str, question: dict[str, Any]) -> Any:
    """POST to the API."""
    request = urllib.request.Request(
        f"{server.api}/{path}", json.dumps(question).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.fixture
def with_server(folder: Any, prefect_server: Server) -> Iterator[Any]:
    """The folder, with a Prefect server configured."""
    folder.environment.update({"PREFECT_API_URL": prefect_server.api, "PREFECT_HOME": str(folder.path / "client")})
    yield folder
    assert folder.outside() == ""


def test_a_pass_leaves_alerts_pages_artifacts_and_events_and_names_what_failed(
    with_server: Any, prefect_server: Server, write_log: WriteLog
) -> None:
    with_server.configure(TWO_RUNS)
    write_log(with_server.path / "a.jsonl", 0, 300)
    write_log(with_server.path / "a.jsonl", 300, 310, lambda step: float("nan"))
    done = with_server.run("watch", "--once")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1] == "watchkeeper: 1 of 2 runs watched; 1 change of incidents; failed: b.jsonl"
    assert len(list((with_server.path / "alerts").glob("*.png"))) == 1
    assert (with_server.path / "pages/a/index.html").exists()

    runs = ask(prefect_server, "flow_runs/filter", {"sort": "EXPECTED_START_TIME_DESC", "limit": 1})
    assert runs[0]["state_name"] == "Completed"
    tasks = ask(prefect_server, "task_runs/filter", {"flow_runs": {"id": {"any_": [runs[0]["id"]]}}})
    states = {task["name"]: (task["state_type"], task["run_count"]) for task in tasks}
    assert states["pull run a.jsonl"] == ("COMPLETED", 1)
    assert states["open run b.jsonl"] == ("FAILED", 1)  # there is no file: trying again cannot help
    artifacts = ask(prefect_server, "artifacts/filter", {"sort": "CREATED_DESC"})
    kinds = {artifact["type"] for artifact in artifacts if artifact["flow_run_id"] == runs[0]["id"]}
    assert kinds == {"markdown", "table"}
    assert _event(prefect_server, "watchkeeper.incident.opened")["payload"]["onset_step"] == 300


def _event(server: Server, name: str) -> Any:
    """The newest event of a name; the server writes events down a little later."""
    for _ in range(100):
        found = ask(server, "events/filter", {"filter": {"event": {"name": [name]}}})["events"]
        if found:
            return found[0]
        time.sleep(0.2)
    raise AssertionError(f"no event {name}")


def test_a_pass_that_another_one_holds_up_is_dropped_with_status_3(with_server: Any, write_log: WriteLog) -> None:
    with_server.configure('[[run]]\nsource = "a.jsonl"\n')
    write_log(with_server.path / "a.jsonl", 0, 50)
    with open_store(with_server.path / "watchkeeper.duckdb", clock=time.time).lease("a", "another pass", 600):
        done = with_server.run("watch", "--once")
    assert done.returncode == 3
    assert done.stderr == "watchkeeper: 0 of 1 runs watched; skipped: a.jsonl\n"


def test_a_pass_that_could_watch_nothing_is_a_failed_flow_run(with_server: Any, prefect_server: Server) -> None:
    with_server.configure('[[run]]\nsource = "none.jsonl"\n')
    done = with_server.run("watch", "--once")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "watchkeeper: 0 of 1 runs watched; failed: none.jsonl"
    assert "Traceback" not in done.stderr
    runs = ask(prefect_server, "flow_runs/filter", {"sort": "EXPECTED_START_TIME_DESC", "limit": 1})
    assert (runs[0]["state_type"], runs[0]["state"]["message"]) == ("FAILED", "0 of 1 runs watched; failed: none.jsonl")


def test_the_deployment_file_deploys_to_a_work_pool_and_runs(
    with_server: Any, prefect_server: Server, write_log: WriteLog
) -> None:
    with_server.configure('[[run]]\nsource = "a.jsonl"\n')
    write_log(with_server.path / "a.jsonl", 0, 50)
    with_server.environment["WATCHKEEPER_CONFIG"] = str(with_server.path / "watchkeeper.toml")

    def prefect(*arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "prefect", *arguments],
            cwd=with_server.path,
            env={**with_server.environment, "DO_NOT_TRACK": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    ask(prefect_server, "work_pools/", {"name": "watchkeeper", "type": "process"})
    prefect("--no-prompt", "deploy", "--prefect-file", str(ROOT / "deploy/prefect.yaml"), "--all")
    prefect("deployment", "run", "watch/watchkeeper")
    prefect("worker", "start", "--pool", "watchkeeper", "--type", "process", "--run-once")
    store = open_store(with_server.path / "watchkeeper.duckdb", clock=time.time, must_exist=True)
    assert store.metrics("a")["samples"].to_list() == [50]
