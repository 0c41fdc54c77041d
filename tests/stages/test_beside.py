"""A reference run: in `check`, in the configuration, in slices, and when it is behind."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from flows.config import load_config
from flows.playbook import load_playbook
from flows.records import SAMPLE_SCHEMA, Description
from flows.sources.roles import role_of
from flows.stages.against import Against
from flows.stages.attempts import Tracker, assign
from flows.stages.beside import Reference
from flows.stages.judge import judge
from flows.store import open_store
from flows.wiring import one_pass

SIZE = 400


def rows(onset: int, seed: int = 0) -> pl.DataFrame:
    """Loss and gradient norm, the loss half a percent higher from `onset` on."""
    noise = np.random.default_rng(seed).standard_normal((2, SIZE))
    data = []
    for step in range(SIZE):
        loss = (2 + 3 * (step + 1) ** -0.4) * np.exp(0.02 * noise[0, step]) * (1.005 if step >= onset else 1)
        data += [
            (float(step), None, "train/loss", loss),
            (float(step), None, "grad/norm/total", np.exp(noise[1, step])),
        ]
    return pl.DataFrame(data, schema=SAMPLE_SCHEMA, orient="row")


def judged(run: list[pl.DataFrame], other: list[pl.DataFrame]):
    """Both runs slice by slice, the reference first; a reference that is behind comes up with its last slice."""
    store = open_store(":memory:", clock=lambda: 1e9)
    trackers = {"r": Tracker(), "other": Tracker()}
    for name in trackers:
        store.register_run(Description(name, "made", "test", "step"))
    for k, part in enumerate(run):
        for name, frame in (("other", other[k]), ("r", part)):
            placed = assign(frame, trackers[name], final=k == len(run) - 1)
            store.append(name, placed, trackers[name].attempts, "c", trackers[name].dump(), {}, role_of)
        judge(store, "r", load_playbook, clock=lambda: 1e9, against=Against(reference=Reference("other")))
    return store


def told(store) -> str:
    found = [{k: v for k, v in row.items() if k != "incident_id"} for row in store.findings("r")]
    return json.dumps(found, default=str)


def test_slices_and_a_reference_that_is_behind_change_nothing():
    run, other = rows(200), rows(SIZE)
    whole = judged([run], [other])
    (found,) = [f for f in whole.findings("r") if f["detector"] == "reference"]
    assert (found["metric"], found["severity"]) == ("train/loss", 2)
    assert 200 <= found["detected_step"] <= 220
    assert any("higher than the reference run" in i["title"] for i in whole.incidents("r"))
    cuts = [0, 33, 410, 500, 2 * SIZE]
    behind = [0, 20, 300, 450, 2 * SIZE]
    sliced = judged([run[a:b] for a, b in pairwise(cuts)], [other[a:b] for a, b in pairwise(behind)])
    assert told(sliced) == told(whole)


def test_other_data_and_a_reference_that_ended_are_said():
    store = judged([rows(SIZE)], [rows(SIZE, seed=1)])
    said = {r["reason"] for r in store.coverage("r").iter_rows(named=True) if r["check_name"] == "reference"}
    assert said == {"other saw other data at the same steps: only compared without pairing the noise"}
    assert all(f["severity"] == 0 for f in store.findings("r") if f["detector"] == "reference")
    store = judged([rows(SIZE)], [rows(SIZE)[:400]])
    said = {r["reason"] for r in store.coverage("r").iter_rows(named=True) if r["check_name"] == "reference"}
    assert said == {"other ends at step 199: nothing is compared behind it"}


def write(path: Path, frame: pl.DataFrame) -> Path:
    by_step: dict[float, dict[str, float]] = {}
    for step, _, name, value in frame.iter_rows():
        by_step.setdefault(step, {"step": step})[name] = value
    path.write_text("".join(json.dumps(row) + "\n" for row in by_step.values()))
    return path


def test_check_takes_a_reference_of_the_same_name_from_elsewhere(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    run, other = write(tmp_path / "a" / "run.jsonl", rows(200)), write(tmp_path / "b" / "run.jsonl", rows(SIZE))
    command = [sys.executable, "-m", "flows.cli", "check", str(run), "--reference", str(other), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    (document,) = json.loads(done.stdout)["runs"]
    assert "reference" in [f["detector"] for i in document["incidents"] for f in i["findings"]]


def test_a_watch_compares_with_another_run_of_its_configuration(tmp_path):
    write(tmp_path / "run.jsonl", rows(200))
    write(tmp_path / "other.jsonl", rows(SIZE))
    path = tmp_path / "watchkeeper.toml"
    path.write_text(
        '[[run]]\nsource = "run.jsonl"\nname = "run"\nreference = "other"\ngates = {"train/loss" = 0.003}\n'
        '[[run]]\nsource = "other.jsonl"\nname = "other"\n'
    )
    one_pass(load_config(path), clock=lambda: 1e9)
    store = open_store(str(tmp_path / "watchkeeper.duckdb"), clock=lambda: 1e9)
    (found,) = [f for f in store.findings("run") if f["detector"] == "reference"]
    assert (found["severity"], json.loads(found["evidence"])["gate"]) == (1, 0.003)
    path.write_text('[[run]]\nsource = "run.jsonl"\nname = "again"\nreference = "other.jsonl"\n')
    one_pass(load_config(path), clock=lambda: 1e9)
    assert [f["severity"] for f in store.findings("again") if f["detector"] == "reference"] == [2]
