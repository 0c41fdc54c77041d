"""`watchkeeper replay`: what would have been said, when; against a budget; against what was said."""

import json
import shlex

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.messages.blocks import Code
from flows.messages.compose import compose
from flows.store import open_store
from flows.verbs.check import run_checks

RATE = "data/faults/lr_too_high-1.parquet"


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A store with one run in it, judged, and what `check` said of it."""
    path = tmp_path_factory.mktemp("replay") / "w.duckdb"
    [document] = run_checks([RATE], step_key=None, store=path, html=None)
    return path, document


@pytest.fixture
def replayed(kept):
    def run(*words):
        done = CliRunner().invoke(app, ["replay", *words, "--store", str(kept[0])])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    return run


def test_it_says_what_the_watch_has_said_and_leaves_the_store_alone(kept, replayed):
    before = kept[0].read_bytes()
    done = replayed("lr_too_high-1", "--json")
    assert kept[0].read_bytes() == before
    said = json.loads(done.stdout)
    assert said["incidents"] and [i["id"] for i in said["incidents"]] == [
        i["id"] for i in sorted(kept[1]["incidents"], key=lambda i: (i["detected_step"], i["onset_step"]))
    ]


def test_up_to_a_step_nothing_later_is_known(replayed):
    lines = replayed("lr_too_high-1", "--to", "1402").stdout
    assert (
        "step 1,401  S2 opened  lr_schedule_reset: optim/adam_lr was set from 0.000965 to 0.00963 at step 1,400"
        in lines
    )
    assert "S3" not in lines


def test_the_same_version_says_nothing_otherwise_and_another_one_is_told_apart(kept, replayed):
    assert "nothing of S2 or above is said otherwise" in replayed("lr_too_high-1", "--diff").stdout
    store = open_store(str(kept[0]), clock=lambda: 0.0)
    row = next(r for r in store.incidents("lr_too_high-1") if r["severity"] == 3)
    history = json.dumps([{"step": 1401.0, "severity": 2}])
    changed = {**row, "severity": 2, "severity_history": history, "incident_id": row["incident_id"]}
    keys = ("hypotheses", "suggestions")
    changed |= {key: changed[key] if isinstance(changed[key], str) else json.dumps(changed[key]) for key in keys}
    store.save_told("lr_too_high-1", [], [changed], [])
    lines = replayed("lr_too_high-1", "--diff").stdout
    assert "louder: S2 then, S3 now" in lines and "now schedule 3, shifts" in lines


def test_a_budget_is_kept_or_broken_and_it_says_what_would_keep_it(replayed):
    good = replayed("lr_too_high-1", "--budget", "2 pages a week")
    assert good.exit_code == 0 and "S3 or above: 1" in good.stdout and "kept" in good.stdout
    bad = replayed("lr_too_high-1", "--budget", "1 alert a week")
    assert bad.exit_code == 1 and 'kept with min_severity = "S3"' in bad.stdout


def test_a_run_that_is_not_there_is_named(replayed):
    with pytest.raises(Exception, match="no run 'nope' in the store; it has lr_too_high-1"):
        replayed("nope")


def test_the_commands_of_a_message_run_as_they_stand(kept):
    incident = next(each for each in kept[1]["incidents"] if each["severity"] == "S3")
    message = compose("lr_too_high-1", incident, "opened")
    lines = [block.text for block in (*message.blocks, *message.more) if isinstance(block, Code)]
    commands = [line for line in lines if line.startswith("watchkeeper ")]
    assert {line.split()[1] for line in commands} == {"sql", "incidents", "replay"}
    for line in commands:
        done = CliRunner().invoke(app, shlex.split(line)[1:], env={"WATCHKEEPER_STORE": str(kept[0])})
        assert done.exit_code == 0, (line, done.output, done.exception)
        assert (len(done.stdout.splitlines()) > 2 and "lr_schedule_reset" in done.stdout) or "sql" in line
