"""`watchkeeper check` as people and scripts call it: documents, exit statuses, one clear line for bad input."""

import json
import subprocess
import sys
from importlib.resources import files

import jsonschema
import numpy as np
import pytest
from shell import watchkeeper

SCHEMA = json.loads(files("flows.verbs").joinpath("check.schema.json").read_text())


def write_log(path, size=400, spoil=None):
    rng = np.random.default_rng(0)
    loss = 2 + 3 * np.arange(1, size + 1) ** -0.4
    with path.open("w") as file:
        for step in range(size):
            value = loss[step] * np.exp(0.01 * rng.standard_normal())
            value = spoil(step, value) if spoil else value
            file.write(json.dumps({"step": step, "train/loss": value, "optim/learning_rate": 1e-3}) + "\n")
    return path


def document(done):
    read = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    jsonschema.validate(read, SCHEMA)
    return read["runs"]


def test_a_healthy_run_gives_status_0_and_says_what_was_not_checked(tmp_path):
    done = watchkeeper("check", write_log(tmp_path / "healthy.jsonl"), "--json")
    (run,) = document(done)
    assert done.returncode == 0
    assert run["run"] == "healthy"
    assert (run["first_step"], run["last_step"], run["samples"]) == (0, 399, 800)
    assert run["incidents"] == []
    assert {"check": "mfu", "reason": "no metric with this role"} in run["not_checked"]
    assert done.stderr == ""


def test_a_diverged_run_gives_status_1_and_names_onset_and_detection(tmp_path):
    log = write_log(tmp_path / "bad.jsonl", spoil=lambda step, v: v * 3 if step >= 300 else v)
    done = watchkeeper("check", log, "--json")
    (run,) = document(done)
    assert done.returncode == 1
    loudest = max(run["incidents"], key=lambda i: i["severity"])
    assert loudest["severity"] >= "S3"
    assert loudest["onset_step"] == 300
    assert 300 < min(f["detected_step"] for f in loudest["findings"] if f["kind"] == "divergence") <= 302
    assert loudest["suggestions"]


def test_nan_is_written_so_that_every_json_reader_can_read_it(tmp_path):
    log = write_log(tmp_path / "nan.jsonl", spoil=lambda step, v: float("nan") if step >= 200 else v)
    (run,) = document(watchkeeper("check", log, "--json"))
    (incident,) = [i for i in run["incidents"] if i["severity"] == "S4"]
    assert incident["onset_step"] == 200
    assert {f["kind"] for f in incident["findings"]} == {"nonfinite"}


def test_fail_on_moves_the_line(tmp_path):
    log = write_log(tmp_path / "spike.jsonl", spoil=lambda step, v: v * 1.5 if step == 300 else v)
    assert watchkeeper("check", log).returncode == 0
    assert watchkeeper("check", log, "--fail-on", "S1").returncode == 1
    refused = watchkeeper("check", log, "--fail-on", "loud")
    assert refused.returncode == 2
    assert "S0, S1, S2, S3 and S4" in refused.stderr


def test_the_text_names_the_verdict_first(tmp_path):
    log = write_log(tmp_path / "bad.jsonl", spoil=lambda step, v: v * 3 if step >= 300 else v)
    text = watchkeeper("check", log).stdout
    assert text.splitlines()[0].startswith("bad: 1 S")
    assert "not checked:" in text


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("missing.jsonl", None, "missing.jsonl"),
        ("empty.jsonl", "", "empty"),
        ("words.txt", "just some words\nand more of them\n", "words.txt"),
        ("picture.png", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(range(256)), "picture.png"),
    ],
)
def test_bad_input_is_one_clear_line_and_status_2(tmp_path, name, content, word):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = watchkeeper("check", path)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_it_leaves_nothing_behind_unless_a_store_is_named(tmp_path):
    log = write_log(tmp_path / "log.jsonl")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    assert watchkeeper("check", log, cwd=folder).returncode == 0
    assert list(folder.iterdir()) == []
    watchkeeper("check", log, "--store", folder / "kept.duckdb", cwd=folder)
    assert (folder / "kept.duckdb").is_file()
    asked = watchkeeper(
        "sql",
        "--store",
        folder / "kept.duckdb",
        "--format",
        "csv",
        "SELECT run, count(*) AS n FROM history GROUP BY run",
    )
    assert asked.stdout == "run,n\nlog,800\n"


def test_a_second_run_of_the_same_name_is_refused(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    done = watchkeeper(
        "check", write_log(tmp_path / "a" / "log.jsonl", 50), write_log(tmp_path / "b" / "log.jsonl", 50)
    )
    assert done.returncode == 2
    assert "one by one" in done.stderr


def test_the_page_is_written_where_it_was_asked_for(tmp_path):
    log = write_log(tmp_path / "bad.jsonl", spoil=lambda step, v: v * 3 if step >= 300 else v)
    watchkeeper("check", log, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<svg" in page
    assert "diverged" in page


def test_prefect_is_never_loaded_by_check_sql_and_incidents(tmp_path):
    log = write_log(tmp_path / "log.jsonl", 50)
    code = (
        "import sys\nfrom flows.cli import main\nsys.argv = ['watchkeeper', *sys.argv[1:]]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\nprint('prefect' in sys.modules, file=sys.stderr)"
    )
    kept = tmp_path / "kept.duckdb"
    for arguments in (
        ["check", log, "--store", kept],
        ["sql", "--store", kept, "SELECT 1"],
        ["incidents", "list", "--store", kept],
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.stderr.strip().endswith("False"), done.stderr


def test_a_page_is_never_written_over_a_log_or_into_nowhere(tmp_path):
    log = write_log(tmp_path / "log.jsonl", 60)
    before = log.read_bytes()
    over = watchkeeper("check", log, "--html", log)
    assert (over.returncode, log.read_bytes()) == (2, before)
    assert "no HTML page" in over.stderr
    for option in ("--html", "--store"):
        nowhere = watchkeeper("check", log, option, tmp_path / "missing" / "file")
        assert nowhere.returncode == 2
        assert len(nowhere.stderr.strip().splitlines()) == 1
        assert not (tmp_path / "missing").exists()


def test_a_store_that_is_something_else_is_one_clear_line(tmp_path):
    log = write_log(tmp_path / "log.jsonl", 60)
    done = watchkeeper("check", log, "--store", log)
    assert done.returncode == 2
    assert "no DuckDB file" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_log_without_a_single_number_is_bad_input_and_a_short_one_gets_no_green_light(tmp_path):
    (tmp_path / "head.csv").write_text("step,loss\n")
    assert watchkeeper("check", tmp_path / "head.csv").returncode == 2
    short = watchkeeper("check", write_log(tmp_path / "short.jsonl", 20))
    assert short.returncode == 0
    assert "too short to judge (20 of 112 samples)" in short.stdout.splitlines()[0]


def test_a_loss_that_keeps_rising_is_said_to_diverge_not_to_settle(tmp_path):
    log = write_log(tmp_path / "rise.jsonl", 900, spoil=lambda step, v: v + 0.02 * max(0, step - 500))
    (run,) = document(watchkeeper("check", log, "--json"))
    loudest = max(run["incidents"], key=lambda i: i["severity"])
    assert "diverged" in loudest["title"]
    assert "settled" not in loudest["title"]


def test_a_name_with_control_characters_cannot_reach_the_terminal(tmp_path):
    log, kept = tmp_path / "log.jsonl", tmp_path / "kept.duckdb"
    rows = [{"step": step, "\x1b[31mloss\x07": float("nan") if step > 50 else 2.0} for step in range(60)]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = watchkeeper("check", log, "--store", kept).stdout + watchkeeper("incidents", "--store", kept).stdout
    said += watchkeeper("sql", "--store", kept, "SELECT name FROM metrics").stdout
    assert "loss" in said
    assert not {"\x1b", "\x07"} & set(said)
