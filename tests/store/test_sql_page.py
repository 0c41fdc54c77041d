import re
from datetime import datetime
from pathlib import Path

import pytest

from flows.records import Attempt, Event
from flows.store.sandbox import admit

PAGE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0].strip(): part for part in PAGE.split("\n## ")[1:]}
INTERNAL = SECTIONS.pop("Behind the names")
CONTRACT = {
    "runs", "segments", "metrics", "samples", "history", "latest", "events", "incidents", "findings", "deliveries",
    "expectations", "coverage",
}  # fmt: skip


def columns(store, look) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    sql = (
        "SELECT table_name, column_name, data_type FROM duckdb_columns"
        " WHERE schema_name = 'main' AND NOT internal ORDER BY table_name, column_index"
    )
    for table, column, kind in look(store, sql).rows():
        found.setdefault(table, []).append((column, kind))
    return found


def test_the_page_lists_exactly_the_tables_and_columns_of_the_store(store, look):
    of_page = {name: re.findall(r"^\| `(\w+)` \| ([A-Z]+) \|", part, re.M) for name, part in SECTIONS.items()}
    behind = dict(re.findall(r"^\| `(\w+)` \| (`.*`) \|$", INTERNAL, re.M))
    real = columns(store, look)
    assert of_page == {name: real[name] for name in of_page}
    assert {name: re.findall(r"`(\w+)`", text) for name, text in behind.items()} == {
        name: [column for column, _ in real[name]] for name in real if name not in of_page
    }
    assert set(of_page) >= CONTRACT


@pytest.mark.parametrize("sql", re.findall(r"```sql\n(.*?)\n```", PAGE, re.S))
def test_every_example_of_the_page_is_admitted_and_runs(store, look, sql):
    admit(sql)
    look(store, sql)


LINE = [Attempt(1, 0.0, None, "start", 2.0), Attempt(2, 2.0, 1, "rewind")]
CLOCK = [datetime(2026, 1, 1, 0, 0, second) for second in range(5)]
GOLDEN = {
    "runs": [("hero", "runs/hero.jsonl", "jsonl", "_step", 1)],
    "segments": [(1, 0.0, 2.0, None, "start", CLOCK[0]), (2, 2.0, None, 1, "rewind", CLOCK[2])],
    "metrics": [
        ("grad", "other", "", "none", "", 2, 0.0, 3.0, 9.0),
        ("loss", "loss", "nats", "down", "", 6, 0.0, 3.0, 1.1),
    ],
    "samples": [
        ("grad", 1, 0.0, 7.0, False, 1), ("grad", 1, 3.0, 9.0, False, 1), ("loss", 1, 0.0, 4.0, False, 1),
        ("loss", 1, 1.0, 3.5, False, 1), ("loss", 1, 2.0, 2.0, False, 1), ("loss", 1, 3.0, 1.0, False, 1),
        ("loss", 2, 2.0, 2.1, False, 2), ("loss", 2, 3.0, 1.1, False, 2),
    ],
    "history": [
        ("grad", 1, 0.0, 7.0, CLOCK[0]), ("loss", 1, 0.0, 4.0, CLOCK[0]), ("loss", 1, 1.0, 3.5, CLOCK[1]),
        ("loss", 2, 2.0, 2.1, CLOCK[2]), ("loss", 2, 3.0, 1.1, CLOCK[3]),
    ],
    "latest": [("grad", "other", 0.0, CLOCK[0], 7.0), ("loss", "loss", 3.0, CLOCK[3], 1.1)],
    "rewritten": [("loss", 1, 1.0, 3.0, 1)],
    "events": [("batch_ramp", 2.0, None, "to 4M", '{"from": 2}')],
    "coverage": [
        ("pull", "", "no JSON", 3),
        ("samples", "loss", "the same step was written again with another value; the last one is kept", 1),
    ],
}  # fmt: skip
ASK = {
    "runs": "SELECT run, source, format, step_key, judged_batch FROM runs",
    "segments": "SELECT attempt, first_step, valid_until, parent, reason, started_at FROM segments ORDER BY attempt",
    "metrics": "SELECT * EXCLUDE (run) FROM metrics ORDER BY name",
    "samples": "SELECT name, attempt, step, value, late, batch FROM samples ORDER BY ALL",
    "history": "SELECT name, attempt, step, value, logged_at FROM history ORDER BY ALL",
    "latest": "SELECT * EXCLUDE (run) FROM latest ORDER BY name",
    "rewritten": "SELECT * EXCLUDE (run) FROM rewritten",
    "events": "SELECT kind, step, end_step, note, detail FROM events",
    "coverage": "SELECT check_name, metric, reason, count FROM coverage ORDER BY ALL",
}


@pytest.mark.parametrize("view", GOLDEN)
def test_a_small_run_with_a_rewind_reads_as_expected_in_every_view(store, append, look, view):
    append(
        store,
        *[(0, "loss", 4.0), (0, "grad", 7.0), (1, "loss", 3.0), (2, "loss", 2.0), (3, "loss", 1.0), (3, "grad", 9.0)],
        attempts=LINE[:1], notes={"no JSON": 1},
    )  # fmt: skip
    append(store, (2, "loss", 2.1, 2), (3, "loss", 1.1, 2), (1, "loss", 3.5, 1), attempts=LINE, notes={"no JSON": 2})
    store.add_event("hero", Event("batch_ramp", 2.0, note="to 4M", detail={"from": 2}))
    store.save_judgement("hero", upto_batch=1, run_state="", states={})
    assert look(store, ASK[view]).rows() == GOLDEN[view]
