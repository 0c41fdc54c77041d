"""The ladder from the configuration to incidents: on record before what it judges, never overwritten, the same in slices."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from shell import watchkeeper

from flows.config import load_config
from flows.errors import BadConfig
from flows.playbook import load_playbook
from flows.records import SAMPLE_SCHEMA, Description
from flows.sections import LadderSection, RungSection, SizeSection
from flows.sources.roles import role_of
from flows.stages import ladder
from flows.stages.against import Against
from flows.stages.attempts import Tracker, assign
from flows.stages.judge import judge
from flows.store import open_store
from flows.wiring import one_pass

SIZES = {"a": 1e5, "b": 3e5, "c": 1e6}
STEPS = 1000


def rows(parameters: float, steps: int = STEPS, drift: float = 0.0, scale: int = 1) -> pl.DataFrame:
    """Loss and rate of a run by its size, with a loss that drifts up from 40 % on."""
    rng = np.random.default_rng(int(parameters))
    data = []
    for step in range(0, steps):
        at = (step + 1) / (STEPS * scale)
        loss = (1.2 + 15 * parameters**-0.25 * (1 + 0.5 * at**-0.4)) * np.exp(0.004 * rng.standard_normal())
        data.append((float(step), None, "train/loss", loss * np.exp(drift * max(at - 0.4, 0))))
        data.append((float(step), None, "optim/learning_rate", 0.01 * min(at / 0.05, 1 - at)))
    return pl.DataFrame(data, schema=SAMPLE_SCHEMA, orient="row")


def write(path: Path, frame: pl.DataFrame) -> str:
    by_step: dict[float, dict[str, float]] = {}
    for step, _, name, value in frame.iter_rows():
        by_step.setdefault(step, {"step": step})[name] = value
    path.write_text("".join(json.dumps(row) + "\n" for row in by_step.values()))
    return str(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A configuration with three rungs and a large run that drifts, and its expectations on record."""
    at = tmp_path_factory.mktemp("ladder")
    for name, size in SIZES.items():
        write(at / f"{name}.jsonl", rows(size))
    write(at / "big.jsonl", rows(3e6, drift=0.6))
    rungs = "".join(
        f'[[ladder.rung]]\nname = "{n}"\nsource = "{n}.jsonl"\nactive_parameters = {s:g}\nsteps = {STEPS}\n'
        for n, s in SIZES.items()
    )
    (at / "watchkeeper.toml").write_text(
        f'[[run]]\nname = "big"\nsource = "big.jsonl"\n[run.ladder]\nactive_parameters = 3e6\nsteps = {STEPS}\n'
        f"tokens_per_step = 64\n{rungs}"
    )
    done = watchkeeper("ladder", "fit", "--out", "big.json", cwd=at)
    assert done.returncode == 0, done.stderr
    assert "big: 1 metrics expected, version 1" in done.stdout
    return at


def judged(body: dict, cuts: list[int]):
    store = open_store(":memory:", clock=lambda: 1e9)
    store.register_run(Description("big", "made", "test", "step"))
    tracker, whole = Tracker(), rows(3e6, drift=0.6)
    for a, b in pairwise([0, *cuts, len(whole)]):
        placed = assign(whole[a:b], tracker, final=b == len(whole))
        store.append("big", placed, tracker.attempts, "c", tracker.dump(), {}, role_of)
        judge(store, "big", load_playbook, clock=lambda: 1e9, against=Against(expectations=[body]))
    return store


def test_a_drift_is_an_incident_that_says_what_it_is_worth_whatever_the_cadence(folder):
    body = json.loads((folder / "big.json").read_text())
    whole, sliced = judged(body, []), judged(body, [33, 400, 701, 1500])
    assert json.dumps(whole.incidents("big"), default=str) == json.dumps(sliced.incidents("big"), default=str)
    found = [f for f in whole.findings("big") if f["detector"] == "departure" and f["severity"]]
    assert {f["kind"] for f in found} == {"ladder"}
    assert max(f["severity"] for f in found) >= 2
    assert 400 < min(f["detected_step"] for f in found) < 550
    titles = [i["title"] for i in whole.incidents("big")]
    assert any("what smaller runs predict, by" in t and "of the tokens so far" in t for t in titles), titles
    rows_ = {(r["check_name"], r["reason"]) for r in whole.coverage("big").iter_rows(named=True)}
    assert ("ladder", "checked") in rows_


def test_check_takes_the_file_and_watch_what_is_on_record(folder):
    done = watchkeeper("check", "big.jsonl", "--ladder", "big.json", "--json", cwd=folder)
    (run,) = json.loads(done.stdout)["runs"]
    assert "departure" in {f["detector"] for i in run["incidents"] for f in i["findings"]}
    one_pass(load_config(folder / "watchkeeper.toml"), clock=lambda: 1e9)
    store = open_store(str(folder / "watchkeeper.duckdb"), clock=lambda: 1e9)
    assert "departure" in {f["detector"] for f in store.findings("big")}
    (prediction,) = ladder.predictions(store, "big")
    assert prediction.inside is False  # it drifted away
    shown = watchkeeper("ladder", "show", cwd=folder)
    assert "ladder 1 of" in shown.stdout and "OUTSIDE" in shown.stdout
    assert watchkeeper("check", "big.jsonl", "--ladder", "big.jsonl", cwd=folder).returncode == 2


def test_a_later_version_judges_only_later_steps_and_the_first_stays():
    store = open_store(":memory:", clock=lambda: 1e9)
    store.expect("r", "ladder", {"x": 1})
    store.register_run(Description("r", "made", "test", "step"))
    placed = assign(rows(1e5, steps=100), tracker := Tracker(), final=True)
    store.append("r", placed, tracker.attempts, "c", tracker.dump(), {}, role_of)
    assert store.expect("r", "ladder", {"x": 2}) == "2"
    store.expect("r", "prediction", {"x": 3})
    assert [(e.name, e.version, e.body) for e in store.expectations("r")] == [
        ("ladder", "1", {"x": 1, "from_step": None}),
        ("ladder", "2", {"x": 2, "from_step": 99}),
        ("prediction", "1", {"x": 3, "from_step": 99}),
    ]


def test_each_version_judges_the_steps_behind_its_record(folder):
    body = json.loads((folder / "big.json").read_text())
    later = {**body, "from_step": 700.0}
    store = open_store(":memory:", clock=lambda: 1e9)
    store.register_run(Description("big", "made", "test", "step"))
    placed = assign(rows(3e6, drift=0.6), tracker := Tracker(), final=True)
    store.append("big", placed, tracker.attempts, "c", tracker.dump(), {}, role_of)
    judge(store, "big", load_playbook, clock=lambda: 1e9, against=Against(expectations=[later]))
    found = [f for f in store.findings("big") if f["detector"] == "departure"]
    assert found
    assert min(f["onset_step"] for f in found) > 700


def test_a_prediction_of_ones_own_stands_beside_its_result(folder, tmp_path):
    store = open_store(str(tmp_path / "s.duckdb"), clock=lambda: 1e9)
    store.register_run(Description("r", "made", "test", "step"))
    own = ["ladder", "predict", "train/loss", "--run", "r", "--step", "90", "--store", str(tmp_path / "s.duckdb")]
    done = watchkeeper(*own, "--value", "2", "--low", "1", "--high", "9", "--note", "a guess", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert ladder.predictions(store, "r")[0].result is None
    placed = assign(rows(1e5, steps=100), tracker := Tracker(), final=True)
    store.append("r", placed, tracker.attempts, "c", tracker.dump(), {}, role_of)
    (found,) = ladder.predictions(store, "r")
    assert (found.inside, found.note, found.step) == (True, "a guess", 90)
    assert watchkeeper(*own, "--value", "2", "--low", "3", "--high", "9", cwd=tmp_path).returncode == 2


def test_tokens_per_parameter_and_what_is_missing():
    large = SizeSection(active_parameters=100, steps=1000, tokens_per_step=10)
    by_tokens = LadderSection(align="tokens_per_parameter")
    small = RungSection(source="x", name="x", active_parameters=10, tokens_per_step=2)
    assert ladder.per_step(small, by_tokens, large, "x") == pytest.approx((2 / 10) / (10 * 1000 / 100))
    with pytest.raises(BadConfig, match="number of steps that were planned"):
        ladder.per_step(small, LadderSection(), large, "x")
    with pytest.raises(BadConfig, match="tokens_per_step"):
        ladder.per_step(RungSection(source="x", name="x", active_parameters=10, steps=3), by_tokens, large, "x")


def test_one_run_twice_is_refused(folder):
    path = folder / "watchkeeper.toml"
    twice = folder / "twice.toml"
    twice.write_text(path.read_text().replace('source = "b.jsonl"', 'source = "a.jsonl"'))
    done = watchkeeper("ladder", "fit", "--config", str(twice), cwd=folder)
    assert done.returncode == 2
    assert "rungs a and b begin with the same losses" in done.stderr
    assert load_config(twice).ladder.rung[1].source == str(folder / "a.jsonl")
