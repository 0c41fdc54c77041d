"""`init`, `doctor`, `events` and `watch` as a user meets them."""

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

from flows.config import load_config
from flows.sources.roles import role_of
from flows.stages.pull import pull
from flows.store import open_store
from flows.wiring import open_run

WriteLog = Callable[..., None]


def test_init_looks_at_a_run_and_writes_a_configuration_that_doctor_likes(folder: Any, write_log: WriteLog) -> None:
    write_log(folder.path / "a.jsonl", 0, 50)
    done = folder.run("init", "a.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "a.jsonl: run 'a', jsonl, step 'step', 1 metrics: loss (1)\n"
        "wrote watchkeeper.toml; next: watchkeeper watch --once\n"
    )
    config = load_config(folder.path / "watchkeeper.toml")
    assert [run.source for run in config.run] == [str(folder.path / "a.jsonl")]
    doctor = folder.run("doctor", "--json")
    states = {check["what"]: check["state"] for check in json.loads(doctor.stdout)["checks"]}
    assert doctor.returncode == 0
    assert states == {
        "config": "ok", "store": "not checked", "run a": "ok", "channel folder": "ok", "prefect": "ok",
        "heartbeat": "not checked",
    }  # fmt: skip
    assert not (folder.path / "watchkeeper.duckdb").exists()

    again = folder.run("init", "a.jsonl")
    assert again.returncode == 2
    assert again.stderr == (
        "watchkeeper: watchkeeper.toml: is there already; give --force to replace it, or --config for another file.\n"
    )
    assert folder.run("init", "a.jsonl", "--force").returncode == 0


def test_init_proposes_one_run_for_logs_that_go_on_where_others_were(folder: Any, write_log: WriteLog) -> None:
    for name, first, last in (("hero", 0, 100), ("hero-r2", 80, 150), ("hero_resume3", 150, 200), ("calm", 0, 50)):
        (folder.path / name).mkdir()
        write_log(folder.path / name / "metrics.jsonl", first, last, lambda step, name=name: len(name) + step / 1000)
    targets = [f"{name}/metrics.jsonl" for name in ("hero_resume3", "calm", "hero", "hero-r2")]
    done = folder.run("init", *targets)
    assert (done.returncode, done.stderr) == (0, "")
    assert "hero: 3 of these look like one run: they are called alike (hero)\n" in done.stdout
    written = (folder.path / "watchkeeper.toml").read_text()
    assert '# steps 0 to 99\nsource = "hero/metrics.jsonl"\nlast = 79 ' in written
    config = load_config(folder.path / "watchkeeper.toml")
    hero, calm = config.run
    assert calm.source == str(folder.path / "calm/metrics.jsonl")
    assert [(each.written, each.last, each.reason) for each in hero.segment] == [
        ("hero/metrics.jsonl", 79.0, "start"),
        ("hero-r2/metrics.jsonl", None, "restart"),
        ("hero_resume3/metrics.jsonl", None, "restart"),
    ]
    (source,) = open_run(config, hero)
    store = open_store(":memory:", clock=lambda: 0.0)
    pull(store, source, role_of)
    assert store.history("hero", "loss").select("step", "value").rows() == [
        (float(step), (4 if step < 80 else 7 if step < 150 else 12) + step / 1000) for step in range(200)
    ]


def test_init_writes_nothing_for_a_run_that_cannot_be_read(folder: Any) -> None:
    done = folder.run("init", "none.jsonl")
    assert done.returncode == 2
    assert done.stderr.startswith("watchkeeper: none.jsonl: no such file or folder")
    assert list(folder.path.glob("*.toml")) == []


def test_doctor_names_what_is_broken(folder: Any) -> None:
    folder.configure('[[run]]\nsource = "none.jsonl"\n[[channel]]\nname = "c"\nurl = "mailto://nowhere"\n')
    done = folder.run("doctor")
    assert done.returncode == 1
    broken = [line.split()[1:3] for line in done.stdout.splitlines() if line.startswith("broken")]
    assert broken[0] == ["run", "none.jsonl"]
    assert "Traceback" not in done.stderr


def test_events_are_put_on_record_and_listed(folder: Any, write_log: WriteLog) -> None:
    write_log(folder.path / "a.jsonl", 0, 50)
    folder.run("check", "a.jsonl", "--store", "watchkeeper.duckdb")
    added = folder.run("events", "add", "data_mix", "--step", "30", "--note", "phase 2")
    assert (added.stdout, added.stderr) == ("a: data_mix at step 30\n", "")
    assert folder.run("events", "list").stdout == "a  30  data_mix  phase 2\n"
    assert folder.run("events", "add", "x", "--step", "3", "--run", "zz").returncode == 2
    assert folder.outside() == ""


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
@pytest.mark.xdist_group("prefect")
def test_the_loop_goes_on_without_prefect_and_ends_when_asked(
    folder: Any, write_log: WriteLog, asked: signal.Signals
) -> None:
    # a server that does not answer: the watch must not depend on it
    folder.environment["PREFECT_API_URL"] = "http://127.0.0.1:9/api"
    folder.environment["PREFECT_CLIENT_MAX_RETRIES"] = "0"
    folder.configure('[[run]]\nsource = "a.jsonl"\n[watch]\ninterval = "1s"\n')
    write_log(folder.path / "a.jsonl", 0, 50)
    watching = folder.start("watch")
    assert watching.stderr is not None
    lines = [watching.stderr.readline() for _ in range(4)]
    assert lines[0].startswith("watchkeeper: the Prefect server cannot be used (")
    assert lines[1] == lines[3] == "watchkeeper: 1 of 1 runs watched\n"
    watching.send_signal(asked)
    _, rest = watching.communicate(timeout=60)
    assert watching.returncode == 0
    assert rest.splitlines()[-1] == "watchkeeper: stopped"
    assert "Traceback" not in rest


def test_a_bad_configuration_is_status_2_and_lists_its_problems(folder: Any) -> None:
    folder.configure('[wach]\n[[run]]\nsorce = "a"\n')
    done = folder.run("watch", "--once")
    assert done.returncode == 2
    assert "wach: no such key; did you mean watch?" in done.stderr
    assert "run[1].sorce: no such key; did you mean source?" in done.stderr
    assert "Traceback" not in done.stderr
