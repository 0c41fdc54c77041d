"""Each named query of the library against one small store, with the answer that stands in tests/golden/sql."""

import os
from datetime import datetime
from pathlib import Path

import duckdb
import pytest

from flows.errors import BadQuery
from flows.records import Attempt, Description, Event, Operation, Role
from flows.store import Limits, connect, named, open_store, wide
from flows.store.connection import Database
from flows.store.library import filled, library, parse
from flows.store.sandbox import admit, answer

NOW = 1_700_000_000.0
GOLDEN = Path(__file__).parents[1] / "golden" / "sql"
LINE = [Attempt(1, 0.0, None, "start", 6.0), Attempt(2, 6.0, 1, "rewind")]
GIVEN = {
    "latest": {"run": "hero"},
    "incident": {"id": "aaa"},
    "timeline": {"run": "hero"},
    "around": {"run": "hero", "name": "train/loss", "step": "6", "reach": "1"},
    "curve": {"run": "hero", "name": "train/loss", "parts": "4"},
    "compare": {"run": "hero", "other": "rung", "name": "train/loss", "width": "4"},
    "events-before-after": {"run": "hero", "name": "train/loss", "reach": "3"},
    "pauses": {"run": "hero", "most": "2"},
}


def role_of(name):
    return Role("loss", "nats", "down") if "loss" in name else Role("mfu")


def incident(name, severity, onset, status="open", resolved=None, run="hero"):
    return {
        "run": run, "incident_id": name, "attempt": 1, "severity": severity, "status": status, "title": f"{name} moved",
        "pattern": "loss_divergence", "confidence": 0.8, "onset_step": onset,
        "detected_step": onset + 2.0, "resolved_step": resolved,
        "severity_history": "[]", "hypotheses": "[]", "suggestions": "[]",
        "opened_at": datetime(2026, 1, 1), "updated_at": datetime(2026, 1, 1),
    }  # fmt: skip


def finding(name, belongs, metric, onset, detector="spikes", run="hero"):
    return {
        "run": run, "finding_id": name, "incident_id": belongs, "attempt": 1, "detector": detector, "version": "1",
        "parameters": "{}", "kind": "spike", "metric": metric, "role": "loss", "direction": "up", "onset_step": onset,
        "detected_step": onset + 2.0, "magnitude": 0.5, "unit": "log", "severity": 2, "episode": name, "evidence": "{}",
        "recorded_at": datetime(2026, 1, 1),
    }  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory, rows):
    """Two runs; hero went back from step 7 to 6, has a NaN, two incidents, an event, people's words and a message."""
    store = open_store(tmp_path_factory.mktemp("library") / "s.duckdb", clock=lambda: NOW)
    for run in ("hero", "rung"):
        store.register_run(Description(run, f"runs/{run}.jsonl", "jsonl", "_step"))
    first = rows(*((s, "train/loss", 4.0 - s / 10) for s in range(8)), *((s, "mfu", 0.4) for s in (0, 4)))
    store.append("hero", first, LINE[:1], "1", "t", {}, role_of)
    again = rows(*((s, "train/loss", 9.0 - s, 2) for s in range(6, 10)), (10, "train/loss", float("nan"), 2))
    store.append("hero", again, LINE, "2", "t", {"no JSON": 2}, role_of)
    other = rows(*((s, "train/loss", 2 * (4.0 - s / 10)) for s in range(8)))
    store.append("rung", other, LINE[:1], "1", "t", {}, role_of)
    store.add_event("hero", Event("deploy", 4.0, note="new kernels"))
    store.add_event("hero", Event("checkpoint", 5.0))
    message = {
        "delivery_id": "d1", "run": "hero", "incident_id": "aaa", "transition": "opened", "channel": "mail",
        "message": "{}", "message_id": "m1",
    }  # fmt: skip
    coverage = [
        {"check_name": "mfu", "metric": "", "reason": "no metric with this role", "count": 0},
        {"check_name": "trend", "metric": "train/loss", "reason": "10 of at least 512 samples", "count": 10},
        {"check_name": "spikes", "metric": "train/loss", "reason": "checked", "count": 10},
    ]
    store.save_judgement(
        "hero", upto_batch=2, run_state="", states={}, coverage=coverage, deliveries=[message],
        incidents=[incident("aaa", 3, 2.0), incident("bbb", 2, 6.0, "resolved", 9.0)],
        findings=[
            finding("f1", "aaa", "train/loss", 2.0), finding("f2", "aaa", "mfu", 3.0, "shifts"),
            finding("f3", "bbb", "train/loss", 6.0),
        ],
    )  # fmt: skip
    for number, (kind, why) in enumerate([("ack", ""), ("note", "a bad node"), ("wrong", "planned")]):
        store.operate(
            Operation("hero", kind, "ada", NOW + number, why, "aaa" if number < 2 else "bbb", step=8.0 + number)
        )
    return store


@pytest.mark.parametrize("name", library())
def test_a_named_query_answers_as_it_did(small, name):
    sql = named(name, **GIVEN.get(name, {}))
    admit(sql)
    told = answer(Database(small.path), sql, Limits()).rows.write_csv()
    file = GOLDEN / f"{name}.csv"
    if "WATCHKEEPER_WRITE_GOLDEN" in os.environ:
        file.write_text(told, encoding="utf-8")
    assert told == file.read_text(encoding="utf-8")


def test_every_query_has_a_title_says_what_its_parameters_are_and_has_an_answer_on_file():
    assert len(library()) >= 15
    assert {path.stem for path in GOLDEN.glob("*.csv")} == set(library())
    for query in library().values():
        assert query.title.endswith(".") and len(query.title) > 20, query.name
        assert all(each.meaning for each in query.parameters)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"run": "hero"}, r"needs --param name=\.\.\.: the metric"),
        ({"run": "hero", "name": "x", "parts": "many"}, "parts='many' is no number"),
        ({"run": "hero", "name": "x", "part": "1"}, "has no parameter 'part'; it has run, name, parts"),
    ],
)
def test_a_parameter_that_is_missing_unknown_or_wrong_is_told(given, told):
    with pytest.raises(BadQuery, match=told):
        named("curve", **given)


def test_a_value_stays_a_value_whatever_it_says(small):
    hostile = "x' OR 1=1 --"
    sql = named("around", run=hostile, name="'; DROP TABLE runs; --", step="1")
    admit(sql)
    assert len(small.query(sql).rows) == 0


def test_a_file_of_ones_own_works_the_same_and_a_broken_head_is_told(small, tmp_path):
    (tmp_path / "mine.sql").write_text(
        "-- Mine.\n-- $role text = 'loss': which role\nSELECT name FROM metrics WHERE role = $role\n"
    )
    assert small.query(named(str(tmp_path / "mine.sql"))).rows["name"].to_list() == ["train/loss", "train/loss"]
    with pytest.raises(BadQuery, match="is no parameter"):
        parse("x", "-- T.\n-- $role word: x\nSELECT 1")
    with pytest.raises(BadQuery, match="has no line at its head"):
        filled(parse("x", "-- T.\nSELECT $role"), {})
    with pytest.raises(BadQuery, match="no query 'nope': there are around"):
        named("nope")


def test_the_wide_table_has_a_column_a_metric_and_nothing_for_what_was_not_logged(small):
    with connect(small.path) as connection:
        found = connection.sql(wide("hero", ["train/loss", "mfu"], 3, 6)).pl()
    assert found.columns == ["step", "train/loss", "mfu"]
    assert found.rows() == [(3.0, 3.7, None), (4.0, 3.6, 0.4), (5.0, 3.5, None), (6.0, 3.0, None)]


def test_a_hostile_metric_name_is_a_column_like_any_other(tmp_path, rows):
    name = "a\"b'; DROP TABLE runs; --"
    store = open_store(tmp_path / "s.duckdb", clock=lambda: 0.0)
    store.register_run(Description("hero", "x", "jsonl", "_step"))
    store.append("hero", rows((0, name, 1.0)), LINE[:1], "1", "t", {}, role_of)
    sql = wide("hero", [name])
    admit(sql)
    with duckdb.connect(str(store.path), read_only=True) as connection:
        assert connection.sql(sql).fetchall() == [(0.0, 1.0)]
        assert connection.sql(sql).columns == ["step", name]
