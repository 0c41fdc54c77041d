import json
import os
import pty
import subprocess
import sys
import time

import polars as pl
import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.errors import BadConfig, BadQuery
from flows.records import STORED_SCHEMA, Attempt, Description, Role
from flows.store import open_store
from flows.verbs.shell import completer


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    kept = open_store(tmp_path_factory.mktemp("sql") / "s.duckdb", clock=lambda: 0.0)
    kept.register_run(Description("hero", "x", "jsonl", "step"))
    rows = [(float(s), None, name, s / 2, 1, False) for s in range(4) for name in ("train/loss", "eval/loss", "mfu")]
    frame = pl.DataFrame(rows, schema=STORED_SCHEMA, orient="row")
    roles = {"train/loss": "loss", "eval/loss": "eval_loss", "mfu": "mfu"}
    kept.append("hero", frame, [Attempt(1, 0.0, None, "start")], "1", "t", {}, lambda name: Role(roles[name]))
    return kept


def run(store, *words):
    return CliRunner().invoke(app, ["sql", "--store", str(store.path), *words], catch_exceptions=True)


def test_a_named_query_with_its_parameters(store):
    told = run(
        store, "--name", "curve", "--param", "run=hero", "--param", "name=mfu", "--param", "parts=2", "--format", "json"
    )
    assert [json.loads(line)["median"] for line in told.stdout.splitlines()] == [0.25, 1.25]


def test_the_list_names_every_query_and_needs_no_store(tmp_path):
    told = CliRunner().invoke(app, ["sql", "--list", "--store", str(tmp_path / "none.duckdb")])
    assert told.exit_code == 0
    assert "--param parts=40: into how many parts the steps are cut" in told.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wanted", "columns"),
    [
        (["mfu"], ["step", "mfu"]),
        (["*loss"], ["step", "eval/loss", "train/loss"]),
        (["loss", "mfu"], ["step", "train/loss", "mfu"]),
    ],
)
def test_a_pivot_by_name_pattern_or_role(store, wanted, columns):
    told = run(store, *(word for each in wanted for word in ("--pivot", each)), "--format", "csv")
    assert told.stdout.splitlines()[0].split(",") == columns
    assert len(told.stdout.splitlines()) == 5


def test_show_prints_what_would_be_asked(store):
    told = run(store, "--pivot", "mfu", "--show")
    assert told.stdout.startswith("SELECT step,\n       any_value(value) FILTER (name = 'mfu') AS \"mfu\"")


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.json"])
def test_an_answer_goes_to_a_file_whole(store, tmp_path, name):
    told = run(store, "SELECT step, value FROM history WHERE name = 'mfu' ORDER BY step", "--out", str(tmp_path / name))
    assert "4 rows" in told.stderr and [path.name for path in tmp_path.iterdir()] == [name]
    read = {"a.parquet": pl.read_parquet, "a.csv": pl.read_csv, "a.json": pl.read_ndjson}[name]
    assert read(tmp_path / name).rows() == [(0.0, 0.0), (1.0, 0.5), (2.0, 1.0), (3.0, 1.5)]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--pivot", "nothing*"], "run hero has no such metric or role"),
        (["--pivot", "mfu", "--run", "other"], "the store has hero"),
        (["SELECT 1", "--out", "x.xlsx"], "must end in .parquet, .csv, .json"),
        (["SELECT 1", "--out", "/nowhere/x.csv"], "cannot be written"),
        (["SELECT 1", "--name", "runs"], "exclude each other"),
        (["--name", "curve", "--param", "run"], "write it as KEY=VALUE"),
        (["--name", "curve", "--param", "run=hero"], "needs --param name="),
    ],
)
def test_what_cannot_be_done_is_one_clear_error(store, words, told):
    error = run(store, *words).exception
    assert isinstance(error, BadConfig | BadQuery) and told in str(error)


def test_tab_completes_the_words_of_the_store_which_are_asked_for_once():
    asked = []
    complete = completer(lambda: asked.append(1) or ["segments", "severity", "'hero'"])
    assert [complete("se", n) for n in range(4)] == ["SELECT", "segments", "severity", None]
    assert complete("'h", 0) == "'hero'" and asked == [1]


def test_the_shell_on_a_terminal_completes_and_remembers_what_was_asked(store, tmp_path):
    near, far = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb", "COLUMNS": "200"}
    command = [sys.executable, "-m", "flows.cli", "sql", "--store", str(store.path)]
    shell = subprocess.Popen(command, stdin=far, stdout=far, stderr=far, env=environment, close_fds=True)
    os.close(far)
    seen = b""

    def wait_for(text):
        nonlocal seen
        give_up = time.monotonic() + 60
        while text not in seen and time.monotonic() < give_up:
            try:
                seen += os.read(near, 65536)
            except OSError:
                break
        assert text in seen, seen
        seen = seen[seen.index(text) + len(text) :]

    wait_for(b"sql> ")
    os.write(near, b"SELECT 20 + 22 AS a, count(*) FROM hist\t;\n")
    wait_for(b"42")
    wait_for(b"sql> ")
    os.write(near, b"DROP TABLE runs;\n")
    wait_for(b"DROP is refused")
    os.write(near, b".exit\n")
    assert shell.wait(60) == 0
    os.close(near)
    remembered = tmp_path / "watchkeeper" / "sql_history"
    assert "SELECT 20 + 22 AS a, count(*) FROM history;" in remembered.read_text()
    assert remembered.stat().st_mode & 0o077 == 0
