"""Secrets that a block of Prefect keeps: a real server gives them to the watch, and to nobody who reads what it leaves."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flows.serving import Server

WriteLog = Callable[..., None]
pytestmark = pytest.mark.xdist_group("prefect")  # one server for all of them
SECRET = "T0kenThatNobodyMaySee-4711_x"
# a start of Python and of Prefect takes longer than what is looked at
ASK = """
import json, sys
from flows.blocks import secret_of
from flows.errors import WatchkeeperError
from prefect.settings import PREFECT_API_URL, temporary_settings
for api, name in json.loads(sys.argv[1]):
    try:
        with temporary_settings({PREFECT_API_URL: api} if api else {}, restore_defaults=() if api else {PREFECT_API_URL}):
            said = secret_of(name)
    except WatchkeeperError as error:
        said = f"{type(error).__name__}: {error}"
    print(json.dumps(said))
"""


def ask(server: Server, path: str, question: dict[str, Any] | None = None) -> Any:
    """POST to the API, or GET without a question."""
    data = None if question is None else json.dumps(question).encode()
    request = urllib.request.Request(f"{server.api}/{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.fixture
def keep(prefect_server: Server) -> Callable[[str, Any], None]:
    """Put a value into a Secret block, as its page in the web interface does."""
    kind = ask(prefect_server, "block_types/slug/secret")["id"]
    (schema, *_) = ask(prefect_server, "block_schemas/filter", {"block_schemas": {"block_type_id": {"any_": [kind]}}})

    def put(name: str, value: Any) -> None:
        body = {"name": name, "data": {"value": value}, "block_schema_id": schema["id"], "block_type_id": kind}
        ask(prefect_server, "block_documents/", body)

    return put


@pytest.fixture
def with_server(folder: Any, prefect_server: Server) -> Iterator[Any]:
    """The folder, with a Prefect server configured."""
    folder.environment.update({"PREFECT_API_URL": prefect_server.api, "PREFECT_HOME": str(folder.path / "client")})
    yield folder
    assert folder.outside() == ""


@pytest.mark.faults
def test_the_watch_alerts_by_what_a_block_keeps_and_no_word_of_it_is_left_anywhere(
    with_server: Any, prefect_server: Server, keep: Any, http_service: Any, write_log: WriteLog
) -> None:
    keep("ops-url", f"json://127.0.0.1:{http_service.server_address[1]}/{SECRET}")
    with_server.configure(
        '[[run]]\nsource = "a.jsonl"\n[watch]\nout = "pages"\n[[channel]]\nname = "ops"\nurl = "block:secret/ops-url"\n'
        '[[channel]]\nname = "gone"\nservice = "slack"\nto = "C1"\ntoken = "block:secret/no-such"\n'
    )
    write_log(with_server.path / "a.jsonl", 0, 300)
    write_log(with_server.path / "a.jsonl", 300, 310, lambda step: float("nan"))
    done = with_server.run("watch", "--once")
    assert done.stderr.splitlines()[-1].endswith("trouble with channel gone")
    assert {each["severity"] for each in http_service.got} >= {"S4"}
    said = done.stdout + done.stderr
    for path in ("logs/filter", "artifacts/filter", "flow_runs/filter", "task_runs/filter", "events/filter"):
        said += json.dumps(ask(prefect_server, path, {}))
    assert SECRET not in said
    files = [path for path in with_server.path.rglob("*") if path.is_file()]
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def test_what_a_block_gives_and_what_it_does_not_is_said_with_its_name_and_the_way_to_mend_it(
    with_server: Any, prefect_server: Server, keep: Any, endpoint: Any
) -> None:
    keep("plain", f" {SECRET}\n")
    keep("empty", " ")
    keep("table", {"user": "x"})
    odd, gone = f"http://127.0.0.1:{endpoint.port}/api", "http://127.0.0.1:9/api"
    asked = [(prefect_server.api, name) for name in ("plain", "empty", "table", "no-such")]
    asked += [(api, "plain") for api in ("", odd, gone)]
    done = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps(asked)],
        cwd=with_server.path,
        env=with_server.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stderr == ""
    no_text = "there is no text in it; put the secret there on the page Blocks of Prefect"
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        SECRET,
        f"BadConfig: block:secret/empty: {no_text}",
        f"BadConfig: block:secret/table: {no_text}",
        "BadConfig: block:secret/no-such: the Prefect server has no Secret block of this name; make it on the page "
        "Blocks of its web interface, or mend the name",
        "SecretUnavailable: block:secret/plain: no Prefect server is known that could be asked; set PREFECT_API_URL, "
        "or let `watchkeeper serve` run",
        *(
            f"SecretUnavailable: block:secret/plain: the Prefect server does not give it ({why}); see that it runs and "
            "takes PREFECT_API_KEY"
            for why in ("501", "ConnectError")
        ),
    ]
