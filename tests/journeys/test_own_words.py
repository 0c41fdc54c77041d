"""A user's own bounds and checks from the configuration to the message, in plain passes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from flows.config import Config, load_config
from flows.store import open_store
from flows.verbs.doctor import examine
from flows.verbs.init import _TAIL
from flows.wiring import one_pass

WriteLog = Callable[..., None]

pytestmark = pytest.mark.usefixtures("undrawn")
BASE = '[[run]]\nsource = "a.jsonl"\n[[channel]]\nname = "here"\nurl = "folder:alerts"\n'
BOUND = '[[bound]]\nrole = "loss"\nabove = 2.8\nsamples = 3\nseverity = "S3"\nwhy = "the budget says so"\n'


def configured(folder: Path, more: str) -> Config:
    (folder / "watchkeeper.toml").write_text(BASE + more)
    return load_config(folder / "watchkeeper.toml")


def alerts(folder: Path) -> list[str]:
    """First lines of the messages in the folder channel."""
    return sorted(path.read_text().splitlines()[0] for path in (folder / "alerts").glob("*.txt"))


def test_a_bound_of_the_configuration_alerts_once_and_its_end_follows(tmp_path: Path, write_log: WriteLog) -> None:
    config = configured(tmp_path, BOUND)
    write_log(tmp_path / "a.jsonl", 0, 50)
    assert one_pass(config).good
    write_log(tmp_path / "a.jsonl", 50, 54, lambda step: 2.9)
    for _ in range(3):
        one_pass(config)
    said = "a: {}loss is above 2.8 (2.9) since step 50: the budget says so"
    assert alerts(tmp_path) == ["S3 " + said.format("")]
    write_log(tmp_path / "a.jsonl", 54, 70)
    one_pass(config)
    assert alerts(tmp_path) == ["S3 " + said.format("Resolved: "), "S3 " + said.format("")]


def test_a_bound_for_other_runs_says_nothing_of_this_one(tmp_path: Path, write_log: WriteLog) -> None:
    config = configured(tmp_path, BOUND + 'run = "hero-*"\n')
    write_log(tmp_path / "a.jsonl", 0, 5, lambda step: 9.0)
    assert one_pass(config).good
    assert open_store(config.store.url, clock=lambda: 0.0).incidents("a") == []


def test_both_sides_of_one_entry_are_watched(tmp_path: Path, write_log: WriteLog) -> None:
    config = configured(tmp_path, '[[bound]]\nmetric = "lo*"\nabove = 3\nbelow = 2\n')
    write_log(tmp_path / "a.jsonl", 0, 1, lambda step: 4.0)
    write_log(tmp_path / "a.jsonl", 1, 2, lambda step: 1.0)
    one_pass(config)
    found = open_store(config.store.url, clock=lambda: 0.0).findings("a")
    assert [(row["episode"], row["direction"]) for row in found] == [("above:3.0:1@0", "up"), ("below:2.0:1@1", "down")]


def examined(config: Config, what: str) -> list[tuple[str, str]]:
    return [(each.state, each.detail) for each in examine(config) if each.what.startswith(what)]


def test_doctor_names_the_bounds_that_nothing_has(tmp_path: Path, write_log: WriteLog) -> None:
    config = configured(
        tmp_path,
        '[[bound]]\nrole = "los"\nabove = 3\n[[bound]]\nmetric = "loss"\nabove = 3\nbelow = 1\n'
        '[[bound]]\nrole = "loss"\nabove = 3\nrun = "hero"\n',
    )
    assert examined(config, "bound role los")[0][1] == "no run was pulled yet that '*' is about"
    write_log(tmp_path / "a.jsonl", 0, 5)
    one_pass(config)
    assert examined(config, "bound ") == [
        ("not checked", "no such metric in a; did you mean loss?"),
        ("ok", "watches 1 metrics of 1 runs, S2"),
        ("not checked", "no run was pulled yet that 'hero' is about"),
    ]
    assert ("not checked", "no such metric: role los above 3 (3)") in examined(config, "a: bounds")


def test_the_examples_that_init_writes_hold_when_the_sign_before_them_is_taken_away(tmp_path: Path) -> None:
    blocks = ["\n".join(line.removeprefix("# ") for line in block.splitlines()) for block in _TAIL.split("\n\n")]
    mine = [block[block.index("[[") :] for block in blocks if "[[bound]]" in block or "[[check]]" in block]
    config = configured(tmp_path, "\n".join(mine))
    assert [each.label for each in config.bound] == ["role mfu below 30"]
    assert [each.label for each in config.check] == ["behind_reference"]


CHECK = '[[check]]\nsql = "checks/high.sql"\nseverity = "S3"\nwhy = "see the runbook"\n'
HIGH = """SELECT run, name AS metric, min(step) AS step, max(value) AS value FROM history
WHERE value > 2.8 AND step > (SELECT max(step) - 20 FROM history) GROUP BY ALL"""


def checked(folder: Path, sql: str) -> None:
    (folder / "checks").mkdir(exist_ok=True)
    (folder / "checks/high.sql").write_text(sql)


def test_a_row_of_a_check_is_an_alert_once_and_its_end_follows(tmp_path: Path, write_log: WriteLog) -> None:
    config = configured(tmp_path, CHECK)
    checked(tmp_path, HIGH)
    write_log(tmp_path / "a.jsonl", 0, 50)
    assert one_pass(config).good
    write_log(tmp_path / "a.jsonl", 50, 52, lambda step: 2.9)
    report = one_pass(config)
    assert [(c.what, c.incident.severity) for c in report.changes] == [("opened", 3)]
    assert [row["changes"] for row in report.rows()] == [1]
    one_pass(config)
    said = "a: {}check high found loss (2.9) since step 50: see the runbook"
    assert alerts(tmp_path) == ["S3 " + said.format("")]
    write_log(tmp_path / "a.jsonl", 52, 100)
    one_pass(config)
    assert alerts(tmp_path) == ["S3 " + said.format("Resolved: ") + "; back by step 99", "S3 " + said.format("")]


def test_a_check_for_other_runs_and_one_without_rows_say_nothing(tmp_path: Path, write_log: WriteLog) -> None:
    config = configured(tmp_path, CHECK + 'run = "hero"\n')
    checked(tmp_path, HIGH)
    write_log(tmp_path / "a.jsonl", 0, 50, lambda step: 2.9)
    assert one_pass(config).good
    assert alerts(tmp_path) == []


def test_a_broken_check_is_told_once_as_trouble_of_the_watch_and_stops_nothing(
    tmp_path: Path, write_log: WriteLog
) -> None:
    config = configured(tmp_path, CHECK + BOUND)
    write_log(tmp_path / "a.jsonl", 0, 50)
    checked(tmp_path, "SELECT run, name, step FROM history")
    report = one_pass(config)
    assert (report.good, report.blind, report.rows()[0]["state"]) == (False, False, "watched")
    assert examined(config, "check high")[0][0] == "broken"
    write_log(tmp_path / "a.jsonl", 50, 54, lambda step: 2.9)
    one_pass(config)
    bound = "S3 a: loss is above 2.8 (2.9) since step 50: the budget says so"
    assert alerts(tmp_path) == [bound, "watchkeeper: monitor stale: check high"]
    told = [path.read_text() for path in (tmp_path / "alerts").glob("*.txt")]
    said = "checks/high.sql: no column metric among run, name, step; write for instance SELECT run"
    assert sum(said in text for text in told) == 1
    checked(tmp_path, HIGH)
    one_pass(config)
    assert "watchkeeper: monitor recovered: check high" in alerts(tmp_path)
    assert examined(config, "check high") == [("ok", f"{tmp_path / 'checks/high.sql'}: answers, 1 rows now")]


def test_a_check_that_fails_ends_nothing_and_one_that_is_taken_away_does(tmp_path: Path, write_log: WriteLog) -> None:
    config = configured(tmp_path, CHECK)
    checked(tmp_path, HIGH)
    write_log(tmp_path / "a.jsonl", 0, 50, lambda step: 2.9)
    one_pass(config)
    checked(tmp_path, "nonsense")
    write_log(tmp_path / "a.jsonl", 50, 90)
    one_pass(config)
    store = open_store(config.store.url, clock=lambda: 0.0)
    assert [row["status"] for row in store.incidents("a")] == ["open"]
    report = one_pass(configured(tmp_path, ""))
    assert [change.what for change in report.changes] == ["resolved"]
    assert store.incidents("a")[0]["title"].endswith("; no longer asked for")


def test_a_check_that_is_asked_while_another_pass_holds_the_run_waits_for_the_next(
    tmp_path: Path, write_log: WriteLog
) -> None:
    config = configured(tmp_path, CHECK)
    checked(tmp_path, HIGH)
    write_log(tmp_path / "a.jsonl", 0, 50, lambda step: 2.9)
    store = open_store(config.store.url, clock=lambda: 1e9)
    with store.lease("a", "another", 60):
        assert one_pass(config, clock=lambda: 1e9).failures == []
    assert alerts(tmp_path) == []
    one_pass(config)
    assert len(alerts(tmp_path)) == 1
