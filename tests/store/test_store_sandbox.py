from pathlib import Path

import duckdb
import pytest

from flows.errors import BadConfig, BadQuery
from flows.records import Description
from flows.store import Limits, connect, open_store
from flows.store.connection import Database
from flows.store.sandbox import admit, answer

NO_SELECT = """
INSERT INTO runs (run) VALUES ('x')
UPDATE runs SET run = 'x'
DELETE FROM runs
TRUNCATE runs
MERGE INTO runs USING (SELECT 1 AS a) ON false WHEN NOT MATCHED THEN INSERT VALUES (1)
DROP TABLE runs
ALTER TABLE runs ADD COLUMN x INT
COMMENT ON TABLE runs IS 'x'
CREATE TABLE x (a INT)
CREATE TEMP TABLE x (a INT)
CREATE VIEW v AS SELECT 1
CREATE MACRO f() AS 1
COPY runs TO '/tmp/x.csv'
COPY (SELECT 1) TO '/tmp/x.csv'
COPY runs FROM '/etc/passwd'
EXPORT DATABASE '/tmp/x'
IMPORT DATABASE '/tmp/x'
ATTACH '/tmp/x.duckdb' AS a
ATTACH ':memory:' AS m
DETACH store
USE system
SET memory_limit = '10GB'
RESET memory_limit
PRAGMA database_list
PRAGMA version
CALL pragma_version()
INSTALL httpfs
LOAD httpfs
LOAD json
CHECKPOINT
FORCE CHECKPOINT
VACUUM
ANALYZE
BEGIN
COMMIT
PREPARE p AS SELECT 1
EXECUTE p
DEALLOCATE p
EXPLAIN INSERT INTO runs (run) VALUES ('x')
EXPLAIN COPY (SELECT 1) TO '/tmp/x.csv'
EXPLAIN ANALYZE CREATE TEMP TABLE x AS SELECT 1
EXPLAIN (FORMAT json) SELECT 1
SELECT 1; SELECT 2
SELECT 1; DROP TABLE runs
PIVOT runs ON run
selec 1
""".strip().splitlines()

NOT_THE_STORE = """
SELECT * FROM read_text('/etc/passwd')
SELECT * FROM read_json('/etc/passwd')
SELECT * FROM read_ndjson_objects('/etc/passwd')
SELECT * FROM parquet_schema('/etc/passwd')
SELECT * FROM parquet_scan('/etc/passwd')
SELECT * FROM read_blob('/etc/passwd')
SELECT * FROM read_csv('/etc/passwd')
SELECT * FROM sniff_csv('/etc/passwd')
SELECT * FROM read_parquet('/etc/passwd')
SELECT * FROM parquet_metadata('/etc/passwd')
SELECT * FROM read_duckdb('/tmp/x.duckdb')
SELECT * FROM glob('/*')
SELECT * FROM sqlite_scan('/x', 'y')
SELECT * FROM duckdb_settings()
SELECT * FROM duckdb_secrets()
SELECT * FROM duckdb_extensions()
SELECT * FROM duckdb_databases()
SELECT * FROM duckdb_temporary_files()
SELECT * FROM pragma_storage_info('runs')
SELECT * FROM duckdb_memory()
SELECT * FROM duckdb_variables()
SELECT * FROM test_all_types()
SELECT * FROM arrow_scan(1, 2, 3)
FROM duckdb_databases
FROM duckdb_logs
FROM pragma_database_list
FROM pg_settings
FROM pg_catalog.pg_settings
FROM main."DuckDB_Databases"
SELECT current_setting('secret_directory')
SELECT system.main.current_setting('secret_directory')
SELECT getenv('HOME')
SELECT write_log('x')
SELECT nextval('s')
SELECT * FROM query('SELECT * FROM duckdb_settings()')
SELECT * FROM query_table('duckdb_databases')
FROM json_execute_serialized_sql('x')
WITH x AS (FROM duckdb_settings()) FROM x
SELECT (SELECT value FROM duckdb_settings() LIMIT 1)
SELECT * FROM runs WHERE EXISTS (FROM read_text('/etc/passwd'))
SELECT 1 ORDER BY (SELECT current_setting('x'))
SUMMARIZE FROM duckdb_settings()
EXPLAIN ANALYZE SELECT * FROM read_text('/etc/passwd')
""".strip().splitlines()

# the parser cannot tell a file from a table here: the locked connection refuses them
FILES_AS_TABLES = [
    "FROM '/etc/passwd'",
    "FROM '{csv}'",
    "FROM 'http://127.0.0.1:9/x.csv'",
    "FROM 's3://bucket/x.parquet'",
    'SELECT * FROM "{csv}"',
]

ALLOWED = """
SELECT count(*) AS n FROM samples
FROM runs
TABLE runs
VALUES (1), (2)
WITH a AS (SELECT 1 AS x) FROM a
(SELECT 1)
SELECT 1;
SELECT i FROM unnest([1, 2]) t(i)
SELECT * FROM range(3)
DESCRIBE runs
DESCRIBE SELECT 1
SHOW TABLES
SUMMARIZE runs
EXPLAIN SELECT * FROM history
EXPLAIN ANALYZE SELECT * FROM history
PIVOT metrics ON name IN ('loss', 'grad') USING sum(samples) GROUP BY run
SELECT arg_max(value, step) OVER () FROM samples
SELECT detail ->> '$.x' FROM events
SELECT table_name FROM information_schema.tables
SELECT column_name FROM duckdb_columns
""".strip().splitlines()


@pytest.mark.parametrize("sql", [*NO_SELECT, "", "   ", ";", "-- nothing", "SELECT " + "1," * 60_000 + "1"])
def test_what_is_no_single_select_is_refused(sql):
    with pytest.raises(BadQuery):
        admit(sql)


@pytest.mark.parametrize("sql", NOT_THE_STORE)
def test_what_reaches_beyond_the_store_is_refused_by_name(sql):
    with pytest.raises(BadQuery, match="is refused"):
        admit(sql)


@pytest.fixture(scope="module")
def asked(tmp_path_factory, append):
    """A store with two samples that is only asked."""
    store = open_store(tmp_path_factory.mktemp("asked") / "store.duckdb", clock=lambda: 1e9)
    store.register_run(Description("hero", "runs/hero.jsonl", "jsonl", "_step"))
    append(store, (0, "loss", 2.0), (0, "grad", 1.0))
    return store


@pytest.mark.parametrize("sql", FILES_AS_TABLES)
def test_a_file_in_the_place_of_a_table_is_refused(asked, tmp_path, sql):
    csv = tmp_path / "x.csv"
    csv.write_text("a\n1\n")
    with pytest.raises(BadQuery):
        answer(Database(asked.path), sql.format(csv=csv), Limits())


@pytest.mark.parametrize("sql", NOT_THE_STORE[:9])
def test_even_without_the_parser_the_connection_itself_reads_no_file(asked, sql):
    with connect(asked.path) as connection, pytest.raises(duckdb.Error):
        connection.sql(sql).fetchall()


@pytest.mark.parametrize("sql", ALLOWED)
def test_questions_to_the_store_are_answered(asked, sql):
    answer(Database(asked.path), sql, Limits())


def test_an_answer_is_a_frame_and_a_longer_one_is_cut_with_a_note(file_store):
    found = file_store.query("SELECT i FROM range(10) t(i)", limits=Limits(rows=3))
    assert found.rows["i"].to_list() == [0, 1, 2]
    assert found.note == "only the first 3 rows are shown; add LIMIT, or raise --rows."
    assert file_store.query("SELECT run, judged_batch FROM runs").rows.rows() == [("hero", 0)]


def test_errors_of_a_query_keep_their_words(file_store):
    with pytest.raises(BadQuery, match="Table with name sampels does not exist"):
        file_store.query("FROM sampels")
    with pytest.raises(BadQuery, match="INSERT is refused"):
        file_store.query("INSERT INTO runs (run) VALUES ('x')")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM range(1000000000000)",
        "SELECT length(replace(repeat('x', 60000), 'x', repeat('y', 60000)))",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t",
    ],
)
def test_a_query_without_end_is_stopped(asked, sql):
    with pytest.raises(BadQuery, match="more than"):
        asked.query(sql, limits=Limits(seconds=0.5, memory_mb=100))


@pytest.mark.parametrize(
    "sql", ["SELECT length(range(400000000))", "SELECT length(repeat('x', 2000000000)) FROM range(10)"]
)
def test_a_query_that_wants_the_whole_memory_is_stopped(asked, sql):
    with pytest.raises(BadQuery, match="more than"):
        asked.query(sql, limits=Limits(seconds=5.0, memory_mb=100))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM (SELECT DISTINCT repeat('x', 9) || i AS h FROM range(2000000) t(i))",
        pytest.param("SELECT list(i ORDER BY hash(i)) FROM range(20000000) t(i)", marks=pytest.mark.faults),
        pytest.param(
            "SELECT sum(a.i) FROM range(9000000) a(i) JOIN (SELECT i, repeat('x', 50) AS x FROM range(9000000) t(i)) b"
            " ON a.i = b.i WHERE x <> 'y'",
            marks=pytest.mark.faults,
        ),
    ],
)
def test_a_query_that_would_spill_fills_no_disk(file_store, tmp_path, sql):
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(BadQuery, match="needs more than 100 MB"):
        file_store.query(sql, limits=Limits(seconds=30.0, memory_mb=100))
    assert [path for path in sorted(tmp_path.rglob("*")) if path not in before and path.suffix != ".lock"] == []


@pytest.mark.faults
def test_a_query_that_takes_long_is_answered_all_the_same(file_store):
    # after two seconds DuckDB shows how far it is, on standard output
    slow = "SELECT count(*) FROM range(4000000) t(i) WHERE md5(md5(i::VARCHAR)) LIKE 'abcdef%'"
    found = file_store.query(slow, limits=Limits(seconds=100.0, threads=1))
    assert found.rows.height == 1


def test_more_than_sixty_ways_out_are_tried_here():
    assert len({*NO_SELECT, *NOT_THE_STORE, *FILES_AS_TABLES}) >= 60


def test_connect_gives_a_locked_view_of_the_store_as_it_stood_and_blocks_nobody(file_store, append):
    append(file_store, (0, "loss", 2.0))
    with connect(file_store.path) as connection:
        append(file_store, (1, "loss", 1.0))
        assert connection.sql("SELECT value FROM history").fetchall() == [(2.0,)]
        for refused in (
            "COPY runs TO '/tmp/x.csv'",
            "SET threads = 3",
            "CREATE TABLE x (a INT)",
            "ATTACH '/tmp/x.duckdb'",
        ):
            with pytest.raises(duckdb.Error):
                connection.execute(refused)
    with connect(file_store.path) as connection:
        assert connection.sql("SELECT value FROM history ORDER BY step").fetchall() == [(2.0,), (1.0,)]
    assert not list(file_store.path.parent.glob(".watchkeeper-*"))


def test_connect_without_a_url_takes_the_store_of_the_config_file_here(file_store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadConfig, match="there is no watchkeeper"):
        connect()
    Path("watchkeeper.toml").write_text('[store]\nurl = "store.duckdb"\n')
    with connect() as connection:
        assert connection.sql("SELECT run FROM runs").fetchall() == [("hero",)]


def test_a_store_that_is_not_there_is_not_made_by_asking(tmp_path):
    with pytest.raises(BadConfig, match="there is none yet"):
        open_store(tmp_path / "none.duckdb", clock=lambda: 0.0, must_exist=True)
    with pytest.raises(BadConfig, match="no such file"):
        connect(tmp_path / "none.duckdb")
    assert list(tmp_path.iterdir()) == []
