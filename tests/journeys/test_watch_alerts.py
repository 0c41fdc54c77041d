"""From a growing log to the message and back: plain passes, real SMTP and HTTP on loopback."""

import email
import email.policy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.config import Config, load_config
from flows.store import open_store
from flows.store.connection import Database
from flows.wiring import one_pass

WriteLog = Callable[..., None]

pytestmark = pytest.mark.usefixtures("undrawn")


def configured(folder: Path, channels: str = "", runs: tuple[str, ...] = ("a",), watch: str = "") -> Config:
    (folder / "watchkeeper.toml").write_text(
        "".join(f'[[run]]\nsource = "{name}.jsonl"\n' for name in runs) + channels + f"[watch]\n{watch}\n"
    )
    return load_config(folder / "watchkeeper.toml")


def titles(folder: Path) -> list[str]:
    """First lines of the messages in the folder channel."""
    return sorted(path.read_text().splitlines()[0] for path in (folder / "alerts").glob("*.txt"))


def text_of(mail: bytes) -> tuple[str, str, str]:
    parsed = email.message_from_bytes(mail, policy=email.policy.default)
    return str(parsed["Subject"]), str(parsed["Message-ID"]), str(parsed["References"])


def test_an_alert_arrives_once_and_its_end_follows_in_the_same_thread(
    tmp_path: Path, write_log: WriteLog, mailbox: tuple[int, list[bytes]], http_service: Any
) -> None:
    port, mails = mailbox
    config = configured(
        tmp_path,
        f'[[channel]]\nname = "mail"\nurl = "mailto://127.0.0.1:{port}?from=w@example.org&to=me@example.org"\n'
        f'[[channel]]\nname = "hook"\nurl = "json://127.0.0.1:{http_service.server_port}/"\n',
    )
    write_log(tmp_path / "a.jsonl", 0, 600)
    assert one_pass(config).good
    assert (mails, http_service.got) == ([], [])

    write_log(tmp_path / "a.jsonl", 600, 610, lambda step: float("nan"))
    report = one_pass(config)
    assert [(c.what, c.incident.severity) for c in report.changes] == [("opened", 4)]
    assert len(mails) == len(http_service.got) == 1
    subject, _, thread = text_of(mails[0])
    assert subject.startswith("S4 a: loss became NaN at step 600")
    assert http_service.got[0]["severity"] == "S4"

    one_pass(config)
    assert len(mails) == len(http_service.got) == 1

    write_log(tmp_path / "a.jsonl", 610, 1400)
    assert [c.what for c in one_pass(config).changes] == ["resolved"]
    assert len(mails) == len(http_service.got) == 2
    ended, _, same_thread = text_of(mails[1])
    assert ended.startswith("S4 a: Resolved: ")
    assert same_thread == thread
    assert http_service.got[1]["transition"] == "resolved"


def test_one_broken_source_of_three_stops_none_of_the_others(tmp_path: Path, write_log: WriteLog) -> None:
    config = configured(tmp_path, '[[channel]]\nname = "here"\nurl = "folder:alerts"\n', runs=("a", "b", "c"))
    for name in ("a", "c"):
        write_log(tmp_path / f"{name}.jsonl", 0, 300)
    (tmp_path / "b.jsonl").write_bytes(b"PK\x03\x04 no log")
    report = one_pass(config)
    assert [row["state"] for row in report.rows()] == ["watched", "failed", "watched"]
    assert not report.blind
    assert report.summary() == "2 of 3 runs watched; failed: b.jsonl"
    assert set(open_store(config.store.url, clock=lambda: 0.0).runs()["run"]) == {"a", "c"}
    # permanent: told at once, told once
    one_pass(config)
    assert titles(tmp_path) == ["watchkeeper: monitor stale: run b.jsonl"]

    (tmp_path / "b.jsonl").unlink()
    write_log(tmp_path / "b.jsonl", 0, 300)
    assert one_pass(config).good
    assert titles(tmp_path) == [
        "watchkeeper: monitor recovered: run b.jsonl",
        "watchkeeper: monitor stale: run b.jsonl",
    ]


def test_a_foreign_process_on_the_store_is_named_after_three_passes_without_the_store(
    tmp_path: Path, write_log: WriteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(Database.__init__.__kwdefaults__, "foreign_patience_seconds", 0.3)
    config = configured(tmp_path, '[[channel]]\nname = "here"\nurl = "folder:alerts"\n')
    write_log(tmp_path / "a.jsonl", 0, 300)
    one_pass(config)
    held = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", held, config.store.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as foreign:
        assert foreign.stdout is not None and foreign.stdout.readline() == b"held\n"
        assert one_pass(config).blind
        one_pass(config)
        assert not (tmp_path / "alerts").exists()
        one_pass(config)
        foreign.communicate(b"")
    texts = [path.read_text() for path in (tmp_path / "alerts").glob("*.txt")]
    assert len(texts) == 1
    assert texts[0].startswith("watchkeeper: monitor stale: store")
    assert f"(PID {foreign.pid})" in texts[0]
    assert one_pass(config).good
    assert len(list((tmp_path / "alerts").glob("*.txt"))) == 2


def test_a_run_that_another_pass_holds_is_skipped(tmp_path: Path, write_log: WriteLog) -> None:
    config = configured(tmp_path, runs=("a", "b"))
    for name in ("a", "b"):
        write_log(tmp_path / f"{name}.jsonl", 0, 50)
    store = open_store(config.store.url, clock=lambda: 1e9)
    with store.lease("a", "another", 60):
        report = one_pass(config, clock=lambda: 1e9)
    assert [row["state"] for row in report.rows()] == ["skipped", "watched"]
    assert not report.good
    assert report.failures == []


def test_the_heartbeat_is_pinged_after_a_good_pass_only(tmp_path: Path, write_log: WriteLog, http_service: Any) -> None:
    config = configured(
        tmp_path, runs=("a", "b"), watch=f'heartbeat_url = "http://127.0.0.1:{http_service.server_port}/ping"'
    )
    write_log(tmp_path / "a.jsonl", 0, 50)
    one_pass(config)
    assert http_service.got == []
    write_log(tmp_path / "b.jsonl", 0, 50)
    one_pass(config)
    assert http_service.got == ["/ping"]


def test_a_channel_that_fails_is_told_of_through_the_others_and_its_message_is_kept(
    tmp_path: Path, write_log: WriteLog, http_service: Any
) -> None:
    clock = {"now": 1.8e9}
    config = configured(
        tmp_path,
        f'[[channel]]\nname = "hook"\nurl = "json://127.0.0.1:{http_service.server_port}/"\n'
        '[[channel]]\nname = "here"\nurl = "folder:alerts"\nmin_severity = "S4"\n',
    )
    http_service.status = 503
    write_log(tmp_path / "a.jsonl", 0, 300)
    write_log(tmp_path / "a.jsonl", 300, 310, lambda step: float("nan"))
    for _ in range(4):
        one_pass(config, clock=lambda: clock["now"])
        clock["now"] += 60
    assert titles(tmp_path)[0].startswith("S4 a: loss became NaN at step 300")
    assert titles(tmp_path)[1:] == ["watchkeeper: monitor stale: channel hook"]
    http_service.status = 200
    http_service.got.clear()
    clock["now"] += 3600
    one_pass(config, clock=lambda: clock["now"])
    assert [got["severity"] for got in http_service.got] == ["S4"]
    assert titles(tmp_path)[1] == "watchkeeper: monitor recovered: channel hook"


def test_what_began_and_ended_between_two_passes_is_told_once(tmp_path: Path, write_log: WriteLog) -> None:
    config = configured(tmp_path, '[[channel]]\nname = "here"\nurl = "folder:alerts"\n')
    write_log(tmp_path / "a.jsonl", 0, 300)
    write_log(tmp_path / "a.jsonl", 300, 310, lambda step: float("nan"))
    write_log(tmp_path / "a.jsonl", 310, 1200)
    one_pass(config)
    assert [title[:15] for title in titles(tmp_path)] == ["S4 a: Resolved:"]
