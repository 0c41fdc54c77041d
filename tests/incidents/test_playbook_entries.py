"""Every entry of the playbook is complete, honest about counter-evidence, and its SQL runs."""

import duckdb
import pytest

from detectors.cause import Pattern
from flows.incidents.filling import fill
from flows.playbook import load_playbook

PLAYBOOK = load_playbook()
KINDS = set(
    "spike level trend divergence plateau overfit variance nonfinite stall rewind invariant schedule ladder".split()
)
ROLES = set(
    "loss grad_norm update_norm param_norm mfu throughput step_time token_drop router_entropy router_load router_bias "
    "router_logit max_logit logsumexp learning_rate eval_loss eval_score batch_size sequence_length tokens memory "
    "data_wait clipped skipped_steps link_errors gpu other".split()
)
EVENTS = set(
    "batch_size sequence_length data_mix lr_schedule lr_decay warmup deploy restart rollback eval checkpoint capacity".split()
)
VIEWS = """
CREATE TABLE samples(run VARCHAR, name VARCHAR, role VARCHAR, attempt INTEGER, step DOUBLE, logged_at TIMESTAMP, value DOUBLE);
CREATE VIEW history AS SELECT * FROM samples;
CREATE VIEW latest AS SELECT run, name, role, step, logged_at, value FROM samples;
CREATE TABLE metrics(run VARCHAR, name VARCHAR, role VARCHAR, unit VARCHAR, healthy VARCHAR, samples BIGINT, first_step DOUBLE,
    last_step DOUBLE, last_value DOUBLE);
CREATE TABLE events(run VARCHAR, event_id VARCHAR, kind VARCHAR, step DOUBLE, end_step DOUBLE, note VARCHAR, source VARCHAR,
    detail VARCHAR, recorded_at TIMESTAMP);
CREATE TABLE findings(run VARCHAR, finding_id VARCHAR, incident_id VARCHAR, attempt INTEGER, detector VARCHAR, kind VARCHAR,
    metric VARCHAR, role VARCHAR, direction VARCHAR, onset_step DOUBLE, detected_step DOUBLE, magnitude DOUBLE, unit VARCHAR,
    severity INTEGER);
INSERT INTO samples VALUES ('a''b', 'train/loss', 'loss', 0, 100, NULL, 2.0), ('a''b', 'train/loss', 'loss', 0, 101, NULL, 2.1);
"""


def each(pattern: Pattern) -> str:
    return pattern.name


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
    assert set(pattern.gate) | set(pattern.explained_by) <= EVENTS
    assert set(pattern.lookalikes or {}) <= {other.name for other in PLAYBOOK} - {pattern.name}


@pytest.mark.parametrize("pattern", PLAYBOOK, ids=each)
def test_an_entry_is_complete(pattern):
    assert pattern.title and pattern.about and pattern.lookalikes is not None
    assert 0 <= pattern.severity <= 4
    assert pattern.checks and all(check.ask and check.expect and check.sql for check in pattern.checks)
    assert pattern.suggestions
    for item in pattern.suggestions:
        assert item.do and item.why and item.cost
        assert item.evidence and item.counter_evidence, "say 'none known' where there is none"
    assert not (pattern.never_explained and pattern.explained_by)


@pytest.mark.parametrize("pattern", PLAYBOOK, ids=each)
def test_the_sql_of_an_entry_runs_on_the_contract_views(pattern, found, whole_shell_word):
    from detectors.cause import Hypothesis

    connection = duckdb.connect(":memory:")
    connection.execute(VIEWS)
    (filled,) = fill([Hypothesis(pattern.name, 1.0, checks=pattern.checks)], found(metric="train/loss"), "a'b")
    for check in filled.checks:
        query = whole_shell_word(check.sql)
        connection.execute(query).fetchall()
