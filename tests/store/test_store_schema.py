import re
from datetime import datetime
from pathlib import Path

import duckdb
import pytest

from flows.errors import BadConfig, StoreTooNew
from flows.store import open_store
from flows.store.connection import Database
from flows.store.schema import Migration, bring_up_to_date, migrations

NOW = datetime(2026, 11, 30, 12, 0, 0)
NEXT = Migration(99, "colour", "ALTER TABLE runs ADD COLUMN colour VARCHAR; UPDATE runs SET colour = 'red'")
BROKEN = Migration(100, "broken", "ALTER TABLE runs ADD COLUMN size VARCHAR; SELECT * FROM nowhere")
STORE = Path(__file__).parents[2] / "flows" / "store"


def columns(path: Path) -> list[str]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return [row[0] for row in connection.execute("DESCRIBE runs").fetchall()]


NEWEST = migrations()[-1].version


def versions(path: Path) -> list[int]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return [
            row[0] for row in connection.execute("SELECT version FROM schema_migrations ORDER BY version").fetchall()
        ]


def test_a_new_store_has_every_step_with_its_own_record(file_store):
    assert versions(file_store.path) == sorted({step.version for step in migrations()})
    assert file_store.backup is None


def test_an_older_store_is_migrated_after_a_backup_that_still_opens(file_store, append):
    append(file_store, (0, "loss", 2.0))
    backup = bring_up_to_date(Database(file_store.path), NOW, (*migrations(), NEXT))
    assert backup == file_store.path.with_name(f"store.schema-{NEWEST}.20261130T120000.backup.duckdb")
    assert columns(file_store.path)[-1] == "colour" and versions(file_store.path)[-1] == 99
    assert "colour" not in columns(backup)
    assert open_store(backup, clock=lambda: 0.0).history("hero", "loss")["value"].to_list() == [2.0]


def test_a_migration_that_fails_leaves_the_old_store_untouched(file_store, append):
    append(file_store, (0, "loss", 2.0))
    before = file_store.path.read_bytes()
    with pytest.raises(duckdb.Error):
        bring_up_to_date(Database(file_store.path), NOW, (*migrations(), NEXT, BROKEN))
    assert file_store.path.read_bytes() == before
    # and what is left of the attempt does not stand in the way of the next
    bring_up_to_date(Database(file_store.path), NOW, (*migrations(), NEXT))
    assert columns(file_store.path)[-1] == "colour"


def test_a_newer_store_is_refused_with_a_sentence_and_left_alone(file_store):
    bring_up_to_date(Database(file_store.path), NOW, (*migrations(), NEXT))
    before = file_store.path.read_bytes()
    with pytest.raises(StoreTooNew, match=rf"has schema 99, this watchkeeper knows {NEWEST}\. Upgrade watchkeeper"):
        open_store(file_store.path, clock=lambda: 0.0)
    assert file_store.path.read_bytes() == before


def test_a_file_that_is_no_database_is_named(tmp_path):
    path = tmp_path / "notes.duckdb"
    path.write_text("not a database\n" * 1000)
    with pytest.raises(BadConfig, match=r"notes\.duckdb: this is no DuckDB file"):
        open_store(path, clock=lambda: 0.0)


def test_a_scheme_that_is_not_supported_is_named():
    with pytest.raises(BadConfig, match="only the path of a DuckDB file"):
        open_store("ducklake:postgres:x", clock=lambda: 0.0)


@pytest.mark.parametrize("path", sorted([*STORE.rglob("*.sql"), *STORE.glob("*.py")]), ids=lambda path: path.name)
def test_all_sql_stays_within_what_ducklake_accepts(path):
    text = re.sub(r"--.*|#.*", "", path.read_text())
    sql = text if path.suffix == ".sql" else " ".join(re.findall(r'"([^"\n]*)"', text))
    for word in (
        "PRIMARY KEY",
        "UNIQUE",
        "CHECK (",
        "ENUM",
        "CREATE SEQUENCE",
        "CREATE INDEX",
        "ON CONFLICT",
        "REFERENCES",
        "DEFAULT",
    ):
        assert not re.search(rf"\b{re.escape(word)}", sql), word
    assert not re.search(r"INSERT INTO \w+\s+(?!\()(SELECT|VALUES|FROM)", sql), "an INSERT without column names"


def test_every_statement_file_is_used_and_every_used_one_exists():
    used = {name for path in STORE.glob("*.py") for name in re.findall(r'statement\("(\w+)"\)', path.read_text())}
    used |= set(re.findall(r'"((?:insert|update|link)_\w+)"', (STORE / "judgements.py").read_text()))
    assert used == {path.stem for path in (STORE / "queries").glob("*.sql")}
