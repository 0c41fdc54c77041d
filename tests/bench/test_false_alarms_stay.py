"""No detector speaks more often than it did where nothing is wrong; false_alarms.toml says how often that was."""

import tomllib
from pathlib import Path

import healthy_counts

BASELINE = Path(__file__).parent / "false_alarms.toml"
AGAIN = "python tests/bench/healthy_counts.py > tests/bench/false_alarms.toml"


def risen(counted, known):
    """Every stream and detector that speaks more often than it is known to."""
    return {
        (stream, what): (known[stream].get(what, 0), n)
        for stream, said in counted.items()
        for what, n in said.items()
        if n > known[stream].get(what, 0)
    }


def test_no_detector_is_louder_on_healthy_runs_than_its_baseline():
    counted, known = healthy_counts.counts(), tomllib.loads(BASELINE.read_text(encoding="utf-8"))
    assert set(counted) == set(known), f"recordings came or went; after a look at them: {AGAIN}"
    assert risen(counted, known) == {}, f"more false alarms than before; if they are meant: {AGAIN}"


def test_a_louder_detector_is_named():
    known = {"a": {"shifts alarms": 1, "spikes notes": 4}}
    assert risen({"a": {"shifts alarms": 2, "spikes notes": 3, "new notes": 1}}, known) == {
        ("a", "shifts alarms"): (1, 2),
        ("a", "new notes"): (0, 1),
    }


def test_the_baseline_file_survives_its_own_writing():
    counted = {"runs/healthy": {"shifts alarms": 2}, "null/AR(1) 0.5": {}}
    assert tomllib.loads(healthy_counts.as_toml(counted)) == counted
