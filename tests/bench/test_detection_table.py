"""The whole command with made systems: what it counts, what it writes, and that a broken system stops nothing."""

import json

import detection
import plan
import polars as pl
import pytest
from cases import Alarm
from recorded import recorded_cases
from split import half_of_recording, half_of_seed, seeds_of


def oracle(case):
    return [
        Alarm(t.onset, t.onset, "x", sorted(t.roles)[0], 2, t.kind, t.patterns) for t in case.truths if not t.benign
    ]


def nervous(case):
    return [Alarm(t.onset, t.onset, "x", sorted(t.roles)[0], 3) for t in case.truths if t.benign]


def lame(case):
    if case.family == "injected":
        raise ValueError("no injected faults, please")
    return []


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    argv = ["--family", "recorded", "--family", "injected", "--family", "null", "--base", "runs/healthy", "--quick"]
    argv += ["--fault", "level_shift", "--fault", "resume_hot_rate", "--fault", "twin_data_mix"]
    argv += ["--null-samples", "1", "--jobs", "1", "--out", str(out)]
    return detection.main(argv, {"oracle": oracle, "nervous": nervous, "lame": lame}), out


def test_an_oracle_finds_all_at_once_and_a_nervous_system_pages_every_twin(report):
    systems = report[0]["systems"]
    best, worst = systems["oracle"]["all"], systems["nervous"]["all"]
    assert best["recall"] == best["precision"] == best["score"] == best["patterns"]["top1"] == 1.0
    assert best["delay"]["steps"] == {"median": 0.0, "p90": 0.0}
    assert (best["twins"]["paged"], best["alarms"]["false"]) == (0, 0)
    assert worst["twins"]["paged"] == worst["twins"]["runs"] >= 6
    assert worst["recall"] == worst["score"] == 0.0


def test_a_system_that_breaks_has_missed_and_the_others_go_on(report):
    row = report[0]["systems"]["lame"]["all"]
    assert row["broken"] == len(report[0]["errors"]["lame"]) == report[0]["cases"]["injected"]
    assert report[0]["errors"]["lame"][0]["error"] == "ValueError: no injected faults, please"
    assert row["truths"] == report[0]["systems"]["oracle"]["all"]["truths"]


def test_each_half_has_its_row_and_its_null_runs(report):
    rows = report[0]["systems"]["oracle"]
    assert set(rows) == {"all", "tuning"} | ({"held_out"} if len(recorded_cases()) > 4 else set())
    assert rows["tuning"]["null"] == {
        "runs": 1, "samples": 250_000, "alarms": 0, "per_100k": 0.0,
        "upper_95": pytest.approx(1.198, abs=1e-3), "notes_per_1000": 0.0,
    }  # fmt: skip


def test_the_files_say_how_to_make_them_again(report):
    made, out = report
    assert json.loads((out / "detection.json").read_text()) == json.loads(json.dumps(made))
    assert {"date", "command", "versions", "cases", "seeds"} <= set(made)
    text = (out / "detection.md").read_text()
    assert "| oracle | all | 100.0 % | 100.0 % (" in text
    assert "| level_shift | 4 |" in text
    assert "no injected faults, please" in text


def test_a_run_out_of_time_says_what_it_left_out(tmp_path):
    argv = ["--family", "recorded", "--minutes", "0", "--jobs", "1", "--out", str(tmp_path)]
    made = detection.main(argv, {"oracle": oracle})
    assert made["notes"] == [f"oracle: {len(recorded_cases())} cases and 0 null runs left out, its time was up"]
    assert made["systems"]["oracle"]["all"]["recall"] is None


def test_an_unknown_system_is_refused_with_the_known_ones():
    with pytest.raises(SystemExit, match="no system 'x'; there are oracle"):
        detection.chosen(["x"], {"oracle": oracle})


def test_every_fault_and_amplitude_is_placed_equally_often_in_both_halves():
    plans = plan.injected(6, ["runs/healthy", "runs/capacity_cut"])
    counts = pl.DataFrame({"what": [(p.name, p.amplitude) for p in plans]}, strict=False)["what"].value_counts()[
        "count"
    ]
    assert counts.unique().to_list() == [3]  # both bases are of the tuning half, which has half of the placements
    assert {p.seed for p in plans} == {1, 3, 5}
    assert {p.of.name for p in plans} == {"runs/healthy", "runs/capacity_cut"}
    assert [p.seed for p in plans] == sorted(p.seed for p in plans)


def test_the_split_file_decides_and_a_label_must_agree():
    assert half_of_recording("runs/healthy.parquet") == "tuning"
    assert half_of_recording("faults/a.parquet", seed=2) == "held_out"
    assert half_of_recording("faults/a.parquet", said="held_out") == "held_out"
    assert (half_of_seed(7), seeds_of("held_out", 2)) == ("tuning", [2, 4])
    with pytest.raises(ValueError, match=r"its label says tuning, tests/bench/split\.toml says held_out"):
        half_of_recording("faults/a.parquet", seed=2, said="tuning")
    with pytest.raises(ValueError, match="give its label a seed"):
        half_of_recording("faults/a.parquet")
