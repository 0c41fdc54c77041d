"""What is loaded only when it is needed: Prefect takes a second that `check`, `sql` and `incidents` must not pay."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def loaded(tmp_path: Path, *arguments: str) -> set[str]:
    """Top-level modules in a process that has run the command line with these arguments."""
    program = (
        "import sys\nfrom flows import cli\n"
        "try:\n    cli.app()\nexcept SystemExit:\n    pass\n"
        "print('\\nLOADED', *{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return set(done.stderr.rpartition("LOADED")[2].split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("check", "run.csv", "--store", "s.duckdb"),
        ("sql", "SELECT 1"),
        ("incidents", "list"),
        ("events", "list"),
        ("init", "run.csv"),
        ("doctor",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_no_command_but_watch_and_serve_loads_prefect(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    from flows.store import open_store

    (tmp_path / "run.csv").write_text("step,loss\n" + "".join(f"{step},2.5\n" for step in range(60)))
    if arguments[0] != "init":
        (tmp_path / "watchkeeper.toml").write_text('[store]\nurl = "kept.duckdb"\n[[run]]\nsource = "run.csv"\n')
    open_store(tmp_path / "kept.duckdb", clock=lambda: 0.0)
    open_store(tmp_path / "watchkeeper.duckdb", clock=lambda: 0.0)
    modules = loaded(tmp_path, *arguments)
    assert "typer" in modules
    assert "prefect" not in modules
    if arguments[0] == "--help":
        assert modules.isdisjoint({"duckdb", "scipy", "apprise", "altair"})
