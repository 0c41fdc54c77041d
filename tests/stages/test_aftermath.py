"""How an incident goes on, and whether what people did has helped: told once each, whatever the pace of the passes."""

import json

import numpy as np
import polars as pl
import pytest

from flows.messages.blocks import from_json
from flows.playbook import load_playbook
from flows.records import STORED_SCHEMA, Attempt, Description, Event, Role
from flows.stages.aftermath import aftermath
from flows.stages.announce import announcer
from flows.stages.judge import judge
from flows.store import open_store

NOW = 1_800_000_000.0
JUMP = 1_200


def losses(count, jump=JUMP, seed=3):
    """A loss of 2.0 that settles at 3.0 from step `jump` on."""
    value = 2.0 + np.random.default_rng(seed).normal(0, 0.02, count)
    value[jump:] += 1.0
    return value


class Run:
    """A run that is read, judged and followed piece by piece."""

    def __init__(self, store, name):
        self.store, self.name, self.attempts = store, name, [Attempt(0, 0.0, None, "start")]
        store.register_run(Description(name, f"{name}.jsonl", "jsonl", "step"))

    def read(self, first, value, attempt=0):
        rows = {
            "step": np.arange(first, first + len(value), dtype=float), "logged_at": [None] * len(value),
            "name": ["train/loss"] * len(value), "value": value, "attempt": [attempt] * len(value), "late": [False] * len(value),
        }  # fmt: skip
        frame = pl.DataFrame(rows, schema=STORED_SCHEMA)
        self.store.append(
            self.name, frame, self.attempts, f"{first}", "t", {}, lambda name: Role("loss", "nats", "down")
        )
        announce = announcer(self.store, self.name, CHANNELS, clock=lambda: NOW)
        judge(self.store, self.name, load_playbook, clock=lambda: NOW, announce=announce)
        return aftermath(self.store, self.name, CHANNELS, clock=lambda: NOW)

    def went_back(self, step):
        self.attempts = [Attempt(0, 0.0, None, "start", float(step)), Attempt(1, float(step), 0, "rewind")]

    def lines(self):
        kinds = ("followed", "worked", "failed")
        return [each for each in self.store.log(self.name) if each.kind in kinds and each.run == self.name]


CHANNELS = {"mail": lambda incident: incident.severity >= 2}


@pytest.fixture
def store():
    return open_store(":memory:", clock=lambda: NOW)


def test_follow_ups_come_at_the_same_samples_however_the_run_is_read(store):
    whole, parts = Run(store, "whole"), Run(store, "parts")
    value = losses(2_400)
    whole.read(0, value)
    for first in range(0, 2_400, 240):
        parts.read(first, value[first : first + 240])
    seen = [(each.kind, each.step, each.why, each.metric) for each in whole.lines()]
    assert [(each.kind, each.step, each.why, each.metric) for each in parts.lines()] == seen
    assert [kind for kind, *_ in seen] == ["followed", "followed", "followed", "failed"]
    assert "150 samples later train/loss plateaued at 3, expected 1.97 to 2.0" in seen[1][2]
    assert seen[3][3] == "wait"
    assert parts.read(2_400, losses(10, jump=0)) == []  # once


def test_the_last_of_several_follow_ups_is_told_in_the_thread_of_the_incident(store):
    run = Run(store, "hero")
    told = run.read(0, losses(1_500))
    assert [each.what for each in told] == ["followed"]
    assert [each.silent for each in run.lines()] == [True, False]
    said = {each["transition"]: from_json(each["message"]) for each in store.pending_deliveries(NOW)}
    update = said["followed"]
    assert set(said) == {"opened", "followed"} and update.thread == said["opened"].thread
    assert "150 samples later train/loss plateaued" in dict(update.blocks[1].pairs)["Now"]


def test_a_rollback_that_helped_is_told_and_is_suggested_first_the_next_time(store):
    run = Run(store, "first")
    run.read(0, losses(1_500))
    run.went_back(1_150)
    store.add_event("first", Event("rollback", 1_150.0, note="skip the shard", recorded_at=NOW))
    told = run.read(1_150, losses(300, jump=300, seed=5), attempt=1)
    assert [each.what for each in told] == ["worked"]
    [line] = [each for each in run.lines() if each.kind == "worked"]
    assert line.why == "rollback to step 1,150: train/loss back on forecast after 51 steps"
    assert line.metric == "rollback"
    assert run.read(1_450, losses(50, jump=50), attempt=1) == []

    again = Run(store, "second")
    again.read(0, losses(1_500, seed=8))
    [row] = store.incidents("second")
    assert row["pattern"] == line.pattern
    offered = json.loads(row["suggestions"])
    back = next(each for each in offered if each["goes_back"])
    assert back["evidence"][0].startswith("in this store it helped 1 of 1 times; last first: rollback to step 1,150")
    assert offered[0]["goes_back"]


def test_a_rollback_that_did_not_help_is_counter_evidence(store):
    run = Run(store, "first")
    run.read(0, losses(1_500))
    run.went_back(1_150)
    store.add_event("first", Event("rollback", 1_150.0, recorded_at=NOW))
    told = run.read(1_150, losses(300, jump=50, seed=5), attempt=1)
    assert "failed" in [each.kind for each in run.lines()]
    assert [each.what for each in told if each.incident.attempt == 0] == ["failed"]


def test_of_what_is_over_it_is_enough_that_it_is_over(store):
    value = losses(3_000)
    value[JUMP + 10 :] -= 1.0
    run = Run(store, "hero")
    assert run.read(0, value) == []
    [incident] = [row for row in store.incidents("hero") if row["severity"] >= 2]
    assert [(each.kind, each.silent, each.step < incident["resolved_step"]) for each in run.lines()] == [
        ("followed", True, True)
    ]
