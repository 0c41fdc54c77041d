"""The pages in a real Chromium over its own protocol: what several suites need of it."""

import json
import os
import shutil
import subprocess
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pytest

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
NEEDS_CHROMIUM = pytest.mark.skipif(
    CHROMIUM is None and "WATCHKEEPER_TEST_ALL" not in os.environ,
    reason="no chromium here: apt-get install chromium (CI installs it)",
)
AXE = find_spec("axe_playwright_python")
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


@pytest.fixture(scope="session")
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


def show(tab, file, width, dark=False):
    for domain in ("Page", "Network", "Log", "Runtime"):
        tab.ask(f"{domain}.enable")
    tab.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    tab.ask("Emulation.setEmulatedMedia", features=[scheme])
    tab.events.clear()
    tab.ask("Page.navigate", url=file.as_uri())
    tab.wait_for("Page.loadEventFired")


def complaints(tab):
    """What the browser reported: errors on the console, exceptions of scripts."""
    return [e for e in tab.events if e["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")]


def audited(tab):
    """What axe-core finds wrong with the page that is shown."""
    if AXE is None:
        pytest.skip("axe-core is not here: make setup installs it")
    tab.ask("Page.setBypassCSP", enabled=True)
    tab.value((Path(AXE.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8") + ";0")
    run = "axe.run().then(found => found.violations.map(v => [v.id, v.impact, v.nodes.map(n => n.html.slice(0, 120))]))"
    answer = tab.ask("Runtime.evaluate", expression=run, returnByValue=True, awaitPromise=True)
    return answer["result"]["value"]
