"""From a growing log to a page and back: PagerDuty, Alertmanager and Slack at home."""

import http.client
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import services
from services import SECRET
from typer.testing import CliRunner

from flows.cli import app
from flows.config import load_config
from flows.store import open_store
from flows.wiring import one_pass

WriteLog = Callable[..., None]


class Night:
    """A run that is watched by three services, and its clock."""

    def __init__(self, folder: Path, write_log: WriteLog) -> None:
        self.folder, self.write, self.now = folder, write_log, 1_900_000_000.0
        self.pager, self.prometheus, self.slack = services.PagerDuty(), services.Alertmanager(), services.Slack()
        places = {
            "pager": f'service = "pagerduty"\ntoken = "env:PAGES"\nurl = "{self.pager.address}"',
            "prometheus": f'service = "alertmanager"\nurl = "{self.prometheus.address}"',
            "team": f'service = "slack"\nto = "C1"\ntoken = "env:PAGES"\nurl = "{self.slack.address}"',
        }
        channels = "".join(f'[[channel]]\nname = "{name}"\n{text}\n' for name, text in places.items())
        (folder / "watchkeeper.toml").write_text(f'[[run]]\nsource = "a.jsonl"\n{channels}')
        self.config = load_config(folder / "watchkeeper.toml")
        write_log(folder / "a.jsonl", 0, 300)
        write_log(folder / "a.jsonl", 300, 310, lambda step: float("nan"))

    def watch(self) -> Any:
        self.now += 60.0
        return one_pass(self.config, clock=lambda: self.now)

    def close(self) -> None:
        for each in (self.pager, self.prometheus, self.slack):
            each.close()
            assert each.problems == []


@pytest.fixture
def night(tmp_path: Path, write_log: WriteLog, monkeypatch: pytest.MonkeyPatch) -> Iterator[Night]:
    monkeypatch.setenv("PAGES", SECRET)
    monkeypatch.setattr("flows.wiring.house.chart_of", lambda store: None)  # what is drawn is tested elsewhere
    made = Night(tmp_path, write_log)
    monkeypatch.setattr("time.time", lambda: made.now)
    yield made
    made.close()


def test_a_page_rings_is_kept_firing_taken_in_hand_and_ends(night: Night) -> None:
    assert night.watch().good
    incident = open_store(night.config.store.url, clock=lambda: night.now).incidents()[0]["incident_id"]
    assert (night.pager.pages, night.pager.rung) == ({incident: "triggered"}, [incident])
    assert "loss became NaN" in night.slack.texts()[0]
    (labels,) = night.prometheus.firing("2030-03-18T17:00:00.000+00:00")  # it holds for hours without a watch
    assert (labels["alertname"], labels["run"], labels["severity"]) == ("watchkeeper", "a", "critical")

    environment = {"WATCHKEEPER_STORE": str(night.config.store.url)}
    CliRunner().invoke(app, ["incidents", "ack", incident, "--who", "ana"], env=environment, catch_exceptions=False)
    night.prometheus.alerts.clear()  # it was started anew
    assert night.watch().good
    assert len(night.prometheus.firing("2030-03-18T17:00:00.000+00:00")) == 1
    assert night.pager.pages == {incident: "acknowledged"}
    assert "In hand: loss became NaN" in night.slack.texts()[0] and "in charge: ana" in night.slack.texts()[0]

    night.write(night.folder / "a.jsonl", 310, 1200)
    assert night.watch().good
    assert night.pager.pages == {}
    assert [each.get("thread_ts") for each in night.slack.messages.values()] == [None, "1700000000.000000"]
    assert [call[1] for call in night.slack.calls][:2] == ["/chat.postMessage", "/chat.update"]  # in hand: told nobody
    assert night.prometheus.firing("2030-03-17T17:50:00.000+00:00") == []
    calls = len(night.prometheus.calls)
    assert night.watch().good
    assert len(night.prometheus.calls) == calls


def test_an_alertmanager_that_is_down_is_shown_and_holds_up_nothing(night: Night) -> None:
    night.prometheus.script = [(503, {}, b"")] * 2
    report = night.watch()
    assert not report.good and not report.blind
    assert {each.owner for each in report.failures} == {"channel prometheus"}
    assert night.pager.rung and night.slack.count() == 1


@pytest.mark.faults  # it starts a process that loads all of the watch
def test_a_phone_acknowledges_by_the_link_in_its_message_and_the_link_stands_in_no_store(
    tmp_path: Path, write_log: WriteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The endpoint is a process of its own, beside a watch that is at work."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{probe.getsockname()[1]}"
    team = services.Slack()
    monkeypatch.setenv("PAGES", SECRET)
    monkeypatch.setattr("flows.wiring.house.chart_of", lambda store: None)
    (tmp_path / "watchkeeper.toml").write_text(
        '[[run]]\nsource = "a.jsonl"\n'
        f'[phone]\nlisten = "{place}"\nurl = "http://{place}"\nsecret = "env:PAGES"\n'
        f'[[channel]]\nname = "team"\nservice = "slack"\nto = "C1"\ntoken = "env:PAGES"\n'
        f'url = "{team.address}"\nack_link = true\n'
    )
    config = load_config(tmp_path / "watchkeeper.toml")
    write_log(tmp_path / "a.jsonl", 0, 300)
    write_log(tmp_path / "a.jsonl", 300, 310, lambda step: float("nan"))
    assert one_pass(config).good
    links = re.findall(rf'"url": ?"http://{place}(/ack/[^"]+)"', team.calls[0][3].decode())
    assert len(links) == 1
    store = open_store(config.store.url, clock=time.time)
    assert "/ack/" not in str(store.query("SELECT * FROM deliveries").rows.rows())

    command = [sys.executable, "-m", "flows.phone", str(tmp_path / "watchkeeper.toml")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as phone:

        def ask(method: str, body: str | None = None) -> tuple[int, str]:
            line = http.client.HTTPConnection(place, timeout=20)
            line.request(method, links[0], body)
            answer = line.getresponse()
            return answer.status, answer.read().decode()

        give_up = time.monotonic() + 60
        while True:
            try:
                status, page = ask("GET")
                break
            except OSError:
                assert phone.poll() is None and time.monotonic() < give_up
                time.sleep(0.1)
        assert status == 200 and "loss became NaN" in page
        assert ask("POST", "who=Ana&why=on+my+way")[0] == 200
        phone.terminate()
        assert phone.communicate()[0] == b""
    assert [(each.kind, each.who, each.why) for each in store.log("a")][-1] == ("ack", "Ana", "on my way")
    assert one_pass(config).good
    assert "In hand: loss became NaN" in team.texts()[0] and "in charge: Ana" in team.texts()[0]
    team.close()
    assert team.problems == []
