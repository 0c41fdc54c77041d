"""A store that DuckDB 2 made or wrote opens with the locked DuckDB, and the other way round."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]

# stores the next step under the version's own name, then tells all that is there
STEP = """
import sys
import duckdb, polars as pl
from flows.records import STORED_SCHEMA, Attempt, Description, Role
from flows.store import connect, open_store

store = open_store(sys.argv[1], clock=lambda: 0.0)
store.register_run(Description("hero", "x", "jsonl", "_step"))
step = float(store.pull_state("hero")[0] or 0)
rows = pl.DataFrame([(step, None, duckdb.__version__[0], step, 1, False)], schema=STORED_SCHEMA, orient="row")
store.append("hero", rows, [Attempt(1, 0.0, None, "start")], str(step + 1), "t", {}, Role)
store.save_judgement("hero", upto_batch=store.unjudged("hero", 9).upto_batch, run_state="", states={("a", 1): b"x"})
told = store.query("SELECT step, name FROM history ORDER BY step").rows.rows()
with connect(sys.argv[1]) as connection:
    assert connection.sql("SELECT step, name FROM history ORDER BY step").fetchall() == told
print([name for _, name in told])
"""


def run(python: Path | str, path: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    command = [str(python), "-W", "error", "-c", STEP, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=path.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def duckdb_2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("duckdb2")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    packages = ["duckdb>=2,<3", "polars", "pyarrow", "numpy"]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


@pytest.mark.faults
def test_a_store_goes_back_and_forth_between_the_two_versions(tmp_path, duckdb_2):
    path = tmp_path / "made_by_1.duckdb"
    assert run(sys.executable, path) == "['1']"
    assert run(duckdb_2, path) == "['1', '2']"
    assert run(sys.executable, path) == "['1', '2', '1']"


@pytest.mark.faults
def test_a_store_that_duckdb_2_made_opens_with_the_locked_one(tmp_path, duckdb_2):
    path = tmp_path / "made_by_2.duckdb"
    assert run(duckdb_2, path) == "['2']"
    assert run(sys.executable, path) == "['2', '1']"
    assert run(duckdb_2, path) == "['2', '1', '2']"
