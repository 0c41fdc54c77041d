"""The page in a real Chromium, at phone and desk width: no error, no request, nothing wider than the screen."""

import json
import os
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from flows.record.page import page
from flows.record.pictures import draw

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None and "WATCHKEEPER_TEST_ALL" not in os.environ,
    reason="no chromium here: apt-get install chromium (CI installs it)",
)
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--hide-scrollbars", "--remote-debugging-port=0",
    "--disable-dev-shm-usage",
]  # fmt: skip


class Tab:
    """One tab over Chromium's own protocol; `events` holds what it reported."""

    def __init__(self, socket):
        self.socket, self.events, self.number = socket, [], 0

    def ask(self, method, **parameters):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            told = json.loads(self.socket.recv(timeout=60))
            if told.get("id") == self.number:
                assert "error" not in told, told
                return told["result"]
            self.events.append(told)

    def value(self, expression):
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait_for(self, event):
        while not any(seen["method"] == event for seen in self.events):
            self.events.append(json.loads(self.socket.recv(timeout=60)))


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    home = tmp_path_factory.mktemp("chromium")
    running = subprocess.Popen(
        [CHROMIUM, *FLAGS, f"--user-data-dir={home}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        port_file = Path(home) / "DevToolsActivePort"
        for _ in range(600):
            if port_file.exists() and port_file.read_text().count("\n"):
                break
            time.sleep(0.1)
        yield port_file.read_text().split("\n")[0]
    finally:
        running.kill()
        running.wait()


@pytest.fixture
def tab(browser):
    from websockets.sync.client import connect

    request = urllib.request.Request(f"http://127.0.0.1:{browser}/json/new?about:blank", method="PUT")
    with urllib.request.urlopen(request, timeout=60) as answer:
        address = json.load(answer)["webSocketDebuggerUrl"]
    with connect(address, max_size=None) as socket:
        yield Tab(socket)


@pytest.fixture
def file(tmp_path, incident, curves, events, attempts):
    document = {
        "run": "hero-moe", "source": "hero.jsonl", "format": "jsonl", "step_key": "step", "first_step": 0.0,
        "last_step": 5400.0, "samples": 3020, "incidents": [incident],
        "metrics": [
            {"name": f"layer/{n}/a_rather_long_name_of_a_leaf/grad_norm", "role": "grad_norm", "samples": 9} for n in range(9)
        ],
        "not_checked": [{"check": "mfu", "reason": "no metric with this role"}],
    }  # fmt: skip
    path = tmp_path / "index.html"
    path.write_text(page([document], {("hero-moe", incident["id"]): draw(incident, curves, events, attempts)}))
    return path


def show(tab, file, width, dark=False):
    for domain in ("Page", "Network", "Log", "Runtime"):
        tab.ask(f"{domain}.enable")
    tab.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    tab.ask("Emulation.setEmulatedMedia", features=[scheme])
    tab.events.clear()
    tab.ask("Page.navigate", url=file.as_uri())
    tab.wait_for("Page.loadEventFired")


@pytest.mark.parametrize("width", [320, 400, 1200])
def test_the_page_fits_the_screen_and_asks_for_nothing(tab, file, width):
    show(tab, file, width)
    assert tab.value("document.documentElement.scrollWidth") <= width
    requests = [e["params"]["request"]["url"] for e in tab.events if e["method"] == "Network.requestWillBeSent"]
    assert requests == [file.as_uri()]
    assert [e for e in tab.events if e["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")] == []
    assert tab.value("document.querySelector('h1').textContent") == "hero-moe"


@pytest.mark.parametrize(("width", "shown", "hidden"), [(400, "narrow", "wide"), (1200, "wide", "narrow")])
def test_each_width_has_its_own_drawing_with_letters_large_enough(tab, file, width, shown, hidden):
    show(tab, file, width)
    visible = "getComputedStyle(document.querySelector('figure .{}')).display"
    assert tab.value(visible.format(shown)) == "block" and tab.value(visible.format(hidden)) == "none"
    letters = f"[...document.querySelectorAll('.{shown} svg text')].map(t => t.getBoundingClientRect().height)"
    assert min(height for height in tab.value(letters) if height) >= 9
    drawn = tab.value(f"document.querySelector('.{shown} svg').getBoundingClientRect().width")
    assert drawn <= width and drawn > 0.7 * min(width, 900)


def test_the_dark_page_is_dark_and_its_lines_are_light(tab, file):
    ground = "getComputedStyle(document.body).backgroundColor"
    line = "getComputedStyle(document.querySelector('svg [stroke=\"var(--line)\"]')).stroke"
    show(tab, file, 1200, dark=True)
    assert (tab.value(ground), tab.value(line)) == ("rgb(21, 23, 26)", "rgb(116, 180, 245)")
    show(tab, file, 1200, dark=False)
    assert (tab.value(ground), tab.value(line)) == ("rgb(255, 255, 254)", "rgb(29, 95, 169)")


def test_a_reader_for_the_blind_finds_landmarks_names_and_the_picture(tab, file):
    show(tab, file, 1200)
    tab.ask("Accessibility.enable")
    nodes = tab.ask("Accessibility.getFullAXTree")["nodes"]
    known = {
        (n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n.get("ignored") and "role" in n
    }
    roles = {role for role, _ in known}
    assert {"main", "contentinfo", "article", "heading", "table"} <= roles
    assert any(role in ("image", "img") and name.startswith("Line charts of train/loss") for role, name in known)
    assert ("region", "Evidence") in known
