"""Every entry of the playbook is complete, honest about counter-evidence, and its SQL runs."""

import duckdb
import polars as pl
import pytest

from detectors.pattern import Check, Hypothesis, Pattern, pattern_of
from flows.incidents.filling import fill
from flows.playbook import load_playbook
from flows.records import STORED_SCHEMA, Attempt, Description, Role
from flows.store import open_store
from flows.verbs.events import KINDS as EVENT_KINDS

PLAYBOOK = load_playbook()
KINDS = {
    "spike",
    "level",
    "trend",
    "divergence",
    "plateau",
    "overfit",
    "variance",
    "nonfinite",
    "stall",
    "rewind",
    "invariant",
    "schedule",
    "ladder",
    "replay",
}
ROLES = {
    "loss",
    "grad_norm",
    "update_norm",
    "param_norm",
    "mfu",
    "throughput",
    "step_time",
    "token_drop",
    "router_entropy",
    "router_load",
    "router_bias",
    "router_logit",
    "max_logit",
    "logsumexp",
    "learning_rate",
    "eval_loss",
    "eval_score",
    "batch_size",
    "sequence_length",
    "tokens",
    "memory",
    "data_wait",
    "clipped",
    "skipped_steps",
    "link_errors",
    "checkpoint",
    "gpu",
    "other",
}
EVENTS = {
    "batch_size",
    "sequence_length",
    "data_mix",
    "lr_schedule",
    "lr_decay",
    "warmup",
    "deploy",
    "restart",
    "rollback",
    "eval",
    "checkpoint",
    "capacity",
}


def each(pattern: Pattern) -> str:
    return pattern.name


def test_each_published_pattern_is_covered_exactly_once():
    assert sorted(pattern.id for pattern in PLAYBOOK if pattern.id) == [f"P{n:02d}" for n in range(1, 81)]


def test_there_are_patterns_for_every_kind_of_finding():
    covered = {kind for pattern in PLAYBOOK for sign in pattern.signs for kind in sign.kinds}
    assert covered >= KINDS
    assert "unattributed_change" in {pattern.name for pattern in PLAYBOOK}


@pytest.mark.parametrize("pattern", PLAYBOOK, ids=each)
def test_an_entry_uses_known_words_only(pattern):
    signs = (*pattern.signs, *pattern.against)
    assert {role for sign in signs for role in sign.roles} | set(pattern.flat) <= ROLES
    assert {kind for sign in signs for kind in sign.kinds} <= KINDS
    assert {sign.direction for sign in signs} <= {"any", "up", "down"}
    assert set(pattern.gate) | set(pattern.together) | set(pattern.explained_by) <= EVENTS
    assert set(pattern.order) <= ROLES
    assert all(glob == glob.lower() and glob.strip("*") for sign in signs for glob in sign.metrics)
    assert all(sign.lead[0] <= sign.lead[1] and sign is not pattern.anchor for sign in signs if sign.lead)
    assert set(pattern.lookalikes or {}) <= {other.name for other in PLAYBOOK} - {pattern.name}


@pytest.mark.parametrize("pattern", PLAYBOOK, ids=each)
def test_an_entry_is_complete(pattern):
    assert pattern.title and pattern.about and pattern.lookalikes is not None
    assert 0 <= pattern.severity <= 4
    assert pattern.signs
    assert pattern.checks and all(check.ask and check.expect and check.sql for check in pattern.checks)
    assert pattern.suggestions
    for item in pattern.suggestions:
        assert item.do and item.why and item.cost
        assert item.evidence and item.counter_evidence, "say 'none known' where there is none"
    assert not (pattern.never_explained and pattern.explained_by)


@pytest.fixture(scope="module")
def store():
    made = open_store(":memory:", clock=lambda: 0.0)
    made.register_run(Description("a'b", "runs/a'b.jsonl", "jsonl", "step"))
    rows = pl.DataFrame(
        {
            "step": [1.0, 2.0],
            "logged_at": [None, None],
            "name": ["train/loss"] * 2,
            "value": [2.0, float("nan")],
            "attempt": [0, 0],
            "late": [False, False],
        },
        schema=STORED_SCHEMA,
    )
    made.append("a'b", rows, [Attempt(0, 1.0, None, "start")], "{}", "{}", {}, lambda name: Role("loss"))
    return made


@pytest.mark.parametrize("pattern", PLAYBOOK, ids=each)
def test_the_sql_of_an_entry_runs_in_the_sandbox_of_a_store(pattern, found, whole_shell_word, store):
    (filled,) = fill([Hypothesis(pattern.name, 1.0, checks=pattern.checks)], found(metric="train/loss"), "a'b")
    for check in filled.checks:
        store.query(whole_shell_word(check.sql))


def test_a_metric_name_with_shell_and_sql_specials_comes_through(found, whole_shell_word):
    name = """it's "$(echo no)"  `x` \\ y"""
    check = Check("ask", "expect", "SELECT {metric} AS name, {onset} AS step")
    (filled,) = fill([Hypothesis("p", 1.0, checks=(check,))], found(metric=name, onset=12.5), "r")
    assert duckdb.sql(whole_shell_word(filled.checks[0].sql)).fetchall() == [(name, 12.5)]


def test_an_entry_with_a_missing_key_is_refused_by_name():
    with pytest.raises(ValueError, match=r"entry \[half\].*suggestions"):
        pattern_of("half", {"title": "Half", "severity": 1, "signs": []})


def test_every_kind_of_event_that_the_command_offers_explains_something():
    assert set(EVENT_KINDS) <= {kind for pattern in PLAYBOOK for kind in pattern.explained_by}
