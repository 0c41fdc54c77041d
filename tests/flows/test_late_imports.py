"""What is loaded only when it is needed: Prefect takes a second that `check`, `sql` and `incidents` must not pay."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flows.store import open_store

pytestmark = pytest.mark.xdist_group("late imports")  # one process for all of them
ROOT = Path(__file__).parents[2]
COMMANDS = (
    ("--help",),  # first: of all commands the one that must load least
    ("init", "run.csv", "--config", "written.toml"),
    ("check", "run.csv", "--store", "s.duckdb"),
    ("sql", "SELECT 1"),
    ("incidents", "list"),
    ("events", "list"),
    ("doctor",),
    # a block is asked only by who needs the secret
    ("upkeep", "--dry-run", "--config", "blocks.toml"),
    ("report", "--dry-run", "--config", "blocks.toml"),
)
# a start of Python takes longer than what is looked at
PROGRAM = """
import json, sys
from flows import cli
for arguments in json.loads(sys.argv[1]):
    try:
        cli.app(arguments)
    except SystemExit as ended:
        status = ended.code
    loaded = sorted({name.partition(".")[0] for name in sys.modules})
    print(json.dumps([arguments[0], status, loaded]), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Of each command the top-level modules in a process that has run it, and those before it."""
    folder = tmp_path_factory.mktemp("late")
    (folder / "run.csv").write_text("step,loss\n" + "".join(f"{step},2.5\n" for step in range(60)))
    (folder / "watchkeeper.toml").write_text('[store]\nurl = "kept.duckdb"\n[[run]]\nsource = "run.csv"\n')
    kept = '[store]\nurl = "kept.duckdb"\n[[channel]]\nname = "ops"\nurl = "block:secret/ops"\n'
    (folder / "blocks.toml").write_text(f'{kept}[record]\nout = "pages"\n[phone]\nsecret = "block:secret/phone"\n')
    open_store(folder / "kept.duckdb", clock=lambda: 0.0)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(COMMANDS)],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    told = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("[")]
    assert [(name, status) for name, status, _ in told] == [(command[0], 0) for command in COMMANDS], done.stderr
    return {name: set(modules) for name, _, modules in told}


@pytest.mark.parametrize("command", [command[0] for command in COMMANDS])
def test_no_command_but_watch_and_serve_loads_prefect(loaded: dict[str, set[str]], command: str) -> None:
    assert "typer" in loaded[command]
    assert "prefect" not in loaded[command]


def test_help_loads_next_to_nothing(loaded: dict[str, set[str]]) -> None:
    assert loaded["--help"].isdisjoint({"duckdb", "scipy", "apprise", "altair"})


@pytest.mark.parametrize("command", ["init", "check"])
def test_a_file_of_text_loads_no_library_of_a_tracker_or_server(loaded: dict[str, set[str]], command: str) -> None:
    assert "polars" in loaded[command]
    assert loaded[command].isdisjoint(
        {"google", "httpx", "fsspec", "regex", "wandb", "mlflow", "trackio", "tensorboard"}
    )
