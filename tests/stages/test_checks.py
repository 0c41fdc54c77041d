"""A user's own SQL checks: what a file may give, and what becomes of its rows over passes."""

import json
from pathlib import Path

import polars as pl
import pytest

from flows.errors import BadConfig, BadQuery
from flows.playbook import load_playbook
from flows.records import SAMPLE_SCHEMA, Description
from flows.sources.roles import role_of
from flows.stages import checks
from flows.stages.attempts import Tracker, assign
from flows.stages.checks import Check, ask, is_waiting, news
from flows.stages.judge import judge, tell
from flows.stages.runstate import RunState
from flows.store import Limits, open_store

DOCS = Path(__file__).parents[2] / "docs"


class Lab:
    """A store with runs that grow, and a check asked after each pass."""

    def __init__(self, folder):
        self.folder, self.store, self.trackers = folder, open_store(":memory:", clock=lambda: 1e9), {}

    def log(self, run, values, first=0, name="train/loss", final=False):
        """Append values at steps first, first + 1, ... and judge them."""
        if run not in self.trackers:
            self.store.register_run(Description(run, "made", "test", "step"))
        tracker = self.trackers.setdefault(run, Tracker())
        rows = [(float(first + k), None, name, float(v)) for k, v in enumerate(values)]
        rows = assign(pl.DataFrame(rows, schema=SAMPLE_SCHEMA, orient="row"), tracker, final=final)
        self.store.append(run, rows, tracker.attempts, "c", tracker.dump(), {}, role_of)
        judge(self.store, run, load_playbook, clock=lambda: 1e9)

    def check(self, sql, **more):
        path = self.folder / "mine.sql"
        path.write_text(sql)
        return Check("mine", path, **more)

    def ask(self, sql, **more):
        return ask(self.store, self.check(sql, **more))

    def told(self, rows, run="a", fresh=True, configured=("mine",)):
        """The changes of incidents when the check (None: it failed) gives these rows after a pass."""
        answered = {} if rows is None else {"mine": [row for row in rows if row.run == run]}

        def find(state):
            return news(
                answered, configured, state, self.store.attempts(run), self.store.metrics(run), fresh=fresh
            )  # fmt: skip

        done = tell(self.store, run, find, load_playbook, clock=lambda: 1e9)
        return [(each.what, each.incident.severity, each.step) for each in done.transitions]

    def waiting(self, run="a"):
        return is_waiting(RunState.load(self.store.run_state(run)))


@pytest.fixture
def lab(tmp_path):
    lab = Lab(tmp_path)
    lab.log("a", [2.0] * 40)
    return lab


ONE = "SELECT 'a' AS run, 'train/loss' AS metric, 30 AS step"


def refused(lab, sql, **more):
    with pytest.raises(BadQuery) as caught:
        lab.ask(sql, **more)
    return str(caught.value).removeprefix(str(lab.folder / "mine.sql"))


# what a file gives


def test_run_metric_and_step_are_enough(lab):
    (row,) = lab.ask(f"-- a word before it\n{ONE};\n", severity=3, why="mine")
    assert (row.run, row.metric, row.step) == ("a", "train/loss", 30.0)
    assert (row.severity, row.kind, row.direction, row.why) == (3, "level", "none", "mine")
    assert (row.value, row.magnitude, row.detected_step, row.title) == (None, None, None, "")


def test_every_column_that_is_known_is_taken_and_the_rest_is_kept(lab):
    (row,) = lab.ask(
        f"{ONE}, 35 AS detected_step, 2.5::DECIMAL(4, 2) AS value, 0.5 AS magnitude, 'S4' AS severity, 'up' AS direction,"
        " 'trend' AS kind, 'it drifts' AS title, 'look at it' AS why, DATE '2026-01-02' AS day, 7 AS samples",
        why="not this",
    )
    assert (row.detected_step, row.value, row.magnitude, row.severity) == (35.0, 2.5, 0.5, 4)
    assert (row.direction, row.kind, row.title, row.why) == ("up", "trend", "it drifts", "look at it")
    assert row.rest == {"day": "2026-01-02", "samples": 7}


def test_a_severity_may_be_a_number_and_a_metric_may_be_none(lab):
    (row,) = lab.ask("SELECT 'a' AS run, NULL AS metric, 1 AS step, 1 AS severity")
    assert (row.metric, row.severity) == ("", 1)


def test_the_same_row_twice_is_one(lab):
    assert len(lab.ask(f"{ONE} UNION ALL {ONE}")) == 1
    assert lab.ask(f"{ONE} WHERE false") == []


def test_a_missing_column_is_named_with_those_that_are_there_and_a_way_to_mend_it(lab):
    assert refused(lab, "SELECT run, name, 1 AS step FROM metrics") == (
        f": no column metric among run, name, step; write for instance {checks.LIKE}."
    )


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ("NULL::INT AS step", "step is None; give the step at which it began, as a number."),
        ("'NaN'::DOUBLE AS step", "step is nan; give the step at which it began, as a number."),
        ("DATE '2026-01-02' AS step", "step is datetime.date(2026, 1, 2); it must be a number."),
        ("1 AS step, 'loud' AS severity", "severity is 'loud'; it must be one of S0, S1, S2, S3, S4."),
        ("1 AS step, 7 AS severity", "severity is 'S7'; it must be one of S0, S1, S2, S3, S4."),
        ("1 AS step, 'left' AS direction", "direction is 'left'; it must be one of up, down, none."),
        ("1 AS step, 'x' AS value", "value is 'x'; it must be a number."),
    ],
)
def test_a_cell_that_cannot_be_understood_is_named_by_row_and_column(lab, cells, said):
    assert refused(lab, f"SELECT 'a' AS run, 'm' AS metric, {cells}") == f": row 1: {said}"


def test_a_run_that_the_store_does_not_have_is_a_mistake_in_the_column(lab):
    assert refused(lab, "SELECT 'b' AS run, 'm' AS metric, 1 AS step") == (
        ": row 1: run is 'b', which is none of the table `runs`."
    )


def test_rows_without_end_are_refused_with_the_reason(lab):
    said = refused(lab, "SELECT 'a' AS run, 'm' AS metric, i AS step FROM range(1001) t(i)")
    assert said == ": more than 1,000 rows; a row is a finding, not a sample: GROUP BY run, metric."
    assert len(lab.ask("SELECT 'a' AS run, 'm' AS metric, i AS step FROM range(1000) t(i)")) == 1000


@pytest.mark.parametrize("sql", ["DELETE FROM runs", "selec 1", "SELECT * FROM nowhere", "SELECT 1; SELECT 2", ""])
def test_what_is_no_single_select_over_the_store_is_refused_by_file(lab, sql):
    assert refused(lab, sql).startswith(": ")


def test_a_file_outside_of_the_store_is_out_of_reach(lab):
    assert "refused" in refused(lab, "SELECT content AS run, 'm' AS metric, 1 AS step FROM read_text('/etc/hostname')")


def test_a_query_that_takes_too_long_is_stopped(lab, monkeypatch):
    monkeypatch.setattr(checks, "LIMITS", Limits(seconds=0.2, rows=10))
    endless = "SELECT 'a' AS run, 'm' AS metric, sum(a.i * b.i) AS step FROM range(10000000) a(i), range(10000000) b(i)"
    assert refused(lab, endless).startswith(": the query took more than 0.2 s and was stopped.")


def test_a_file_that_cannot_be_read_is_named(lab):
    with pytest.raises(BadConfig, match=r"gone\.sql: cannot be read \(No such file or directory\); mend `sql`"):
        ask(lab.store, Check("mine", lab.folder / "gone.sql"))


# what becomes of the rows


def test_a_row_is_told_once_and_is_over_when_it_is_gone_after_new_samples(lab):
    rows = lab.ask(f"{ONE}, 3.5 AS value, 'up' AS direction", severity=3, why="see the runbook")
    assert lab.told(rows) == [("opened", 3, 39.0)]
    assert lab.told(rows) == lab.told(rows, fresh=False) == []
    assert lab.told([], fresh=False) == []  # the run may only have stopped logging
    assert lab.told(None) == []  # the check failed: nothing is known
    assert lab.waiting()
    lab.log("a", [2.0] * 10, 40)
    assert lab.told([]) == [("resolved", 3, 49.0)]
    assert not lab.waiting()
    assert lab.told([]) == []
    (incident,) = lab.store.incidents("a")
    assert incident["title"] == "check mine found train/loss (3.5) since step 30: see the runbook; back by step 49"
    (finding,) = lab.store.findings("a")
    assert (finding["detector"], finding["role"], finding["episode"]) == ("checks", "loss", "mine@30")
    assert json.loads(finding["evidence"])["samples"] == 40


def test_a_row_that_becomes_more_severe_is_told_again_and_a_milder_one_is_not(lab):
    lab.told(lab.ask(ONE, severity=2))
    assert lab.told(lab.ask(ONE, severity=1)) == []
    lab.log("a", [2.0], 40)
    assert lab.told(lab.ask(ONE, severity=4)) == [("escalated", 4, 40.0)]
    assert lab.told(lab.ask(ONE, severity=4)) == []


def test_a_row_that_comes_back_is_told_again(lab):
    rows = lab.ask(ONE)
    lab.told(rows)
    lab.log("a", [2.0], 40)
    lab.told([])
    lab.log("a", [2.0], 41)
    assert [what for what, _, _ in lab.told(rows)] == ["reopened"]


def test_a_bad_row_is_told_by_its_number(lab):
    assert refused(lab, f"{ONE}, 'S2' AS severity UNION ALL SELECT 'a', 'm', 1, 'S9'").startswith(": row 2: severity")


def test_a_check_that_is_taken_away_ends_with_a_note(lab):
    lab.told(lab.ask(ONE))
    assert lab.told(None, configured=(), fresh=False) == [("resolved", 2, 39.0)]
    assert lab.store.incidents("a")[0]["title"].endswith("; no longer asked for")


def test_a_metric_that_no_run_logs_is_as_good_as_any(lab):
    assert lab.told(lab.ask("SELECT 'a' AS run, 'my index' AS metric, 12 AS step")) == [("opened", 2, 39.0)]


def test_a_row_cannot_have_been_known_after_the_runs_last_step_or_before_it_began(lab):
    lab.told(lab.ask("SELECT 'a' AS run, 'm' AS metric, 30 AS step, 1000 AS detected_step"))
    lab.told(lab.ask("SELECT 'a' AS run, 'n' AS metric, 30 AS step, 2 AS detected_step"))
    assert [row["detected_step"] for row in lab.store.findings("a")] == [30.0, 39.0]


def test_what_was_rolled_back_is_told_again_if_it_is_still_there(lab):
    rows = lab.ask(ONE)
    lab.told(rows)
    lab.log("a", [2.0] * 10, 20, final=True)
    assert [what for what, _, _ in lab.told(rows)] == ["opened"]
    assert [(row["attempt"], row["status"]) for row in lab.store.incidents("a") if row["pattern"] == "own_bound"] == [
        (0, "resolved"),
        (1, "open"),
    ]


# the example of the documentation


def test_the_check_of_the_documentation_finds_the_run_that_stays_behind(tmp_path):
    lab = Lab(tmp_path)
    check = Check("behind_reference", DOCS / "checks" / "behind_reference.sql")
    curve = [3.0 - 0.01 * step for step in range(100)]
    lab.log("reference", curve)
    lab.log("good", [1.01 * value for value in curve])
    lab.log("bad", [value * (1.05 if step >= 60 else 1.0) for step, value in enumerate(curve[:79])])
    assert ask(lab.store, check) == []  # 19 samples
    lab.log("bad", [1.05 * curve[79]], 79)
    (row,) = ask(lab.store, check)
    assert (row.run, row.metric, row.step, row.severity, row.direction) == ("bad", "train/loss", 60.0, 2, "up")
    assert row.magnitude == pytest.approx(0.05)
    assert row.value == pytest.approx(1.05 * 2.21)
    assert row.rest == {"samples": 20}
    assert (DOCS / "checks" / "behind_reference.sql").read_text() in (DOCS / "bounds.md").read_text()
