"""Services that fail, hang, limit their rate or answer garbage: each alert arrives, or doctor names it."""

import random
import re
import socket
import threading
from contextlib import closing

import pytest
from aiosmtpd.controller import Controller

from flows.channels.catalogue import open_channel
from flows.channels.contract import message_id
from flows.config import load_config
from flows.messages.blocks import to_json
from flows.messages.compose import compose
from flows.records import Description
from flows.stages.notify import notify
from flows.store import open_store
from flows.verbs.doctor import OK, examine

NOW = 1_800_000_000.0
HTTP = ("ok", "500", "503", "429", "429 bare", "408", "garbage", "reset", "hang", "half", "empty")
FINAL = ("401", "404", "410")
REPLIES = {
    "ok": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "429": b'HTTP/1.1 429 Slow\r\nRetry-After: 90\r\nContent-Length: 18\r\n\r\n{"retry_after": 90}',
    "429 bare": b"HTTP/1.1 429 Slow\r\nRetry-After: soon\r\nContent-Length: 0\r\n\r\n",
    "garbage": b"\x00\xff\x1b[31m<html>' OR 1=1 --",
    "half": b"HTTP/1.1 200 OK\r\nContent-Le",
    "empty": b"",
}


class Rude:
    """A TCP server on loopback that plays its script, a connection each; then it is kind. `taken` are accepted ids."""

    def __init__(self, script):
        self.script, self.taken = list(script), []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                line, _ = self.socket.accept()
            except OSError:
                return
            what = self.script.pop(0) if self.script else "ok"
            threading.Thread(target=self.answer, args=(line, what), daemon=True).start()

    def answer(self, line, what):
        with closing(line):
            if what == "reset":
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                return
            body = b""
            while b'"message_id"' not in body or b"}" not in body:
                part = line.recv(65_536)
                if not part:
                    return
                body += part
            if what in ("ok", "half"):  # a 200 whose headers are cut off is a receipt
                self.taken += re.findall(rb'"message_id": ?"(<.*?>)"', body)
            if what == "hang":
                line.settimeout(5.0)
                line.recv(1)  # until the other side has had enough
                return
            line.sendall(REPLIES.get(what, f"HTTP/1.1 {what} X\r\nContent-Length: 0\r\n\r\n".encode()))


class Post:
    """An SMTP server that plays its script of answers, a message each, to RCPT or DATA; then it takes everything."""

    def __init__(self, script):
        self.script, self.taken = list(script), []

    async def handle_RCPT(self, server, session, envelope, address, options):
        if self.script and self.script[0].startswith("RCPT "):
            return self.script.pop(0).removeprefix("RCPT ")
        envelope.rcpt_tos.append(address)
        return "250 fine"

    async def handle_DATA(self, server, session, envelope):
        verdict = self.script.pop(0) if self.script else "250 taken"
        if verdict == "hang up":
            server.transport.abort()
        if verdict.startswith("250"):
            self.taken.append(re.search(rb"^Message-ID: (<.*?>)", envelope.content, re.M)[1])
        return verdict


SMTP = (
    "250 taken",
    "421 busy",
    "451 later",
    "452 full",
    "RCPT 450 grey",
    "hang up",
    "\x1b[31mgarbage",
    "RCPT 451 later",
)
SMTP_FINAL = ("550 no", "554 spam", "RCPT 550 unknown")


class Lab:
    def __init__(self, folder, incident, context):
        self.folder, self.now = folder, NOW
        self.store = open_store(folder / "watchkeeper.duckdb", clock=lambda: self.now)
        self.store.register_run(Description("hero", "hero.jsonl", "jsonl", "step"))
        text = to_json(compose("hero", incident, "opened", context))
        self.ids = [f"d{n}" for n in range(4)]
        rows = [
            {
                "delivery_id": name, "incident_id": incident["id"], "transition": "opened", "channel": "ops",
                "message": text, "message_id": message_id(name),
            }
            for name in self.ids
        ]  # fmt: skip
        self.store.save_judgement("hero", upto_batch=0, run_state="{}", states={}, deliveries=rows)
        (folder / "watchkeeper.toml").write_text('[[channel]]\nname = "ops"\nurl = "folder:x"\n')

    def passes(self, url, count):
        channel = open_channel("ops", url, 0.4)
        for _ in range(count):
            notify(self.store, {"ops": channel}, lambda: self.now)
            self.now += 3600.0

    def said(self):
        config = load_config(self.folder / "watchkeeper.toml")
        return [each for each in examine(config) if each.what == "outbox ops" and each.state != OK]

    def ends_well(self, taken):
        rows = {row["delivery_id"]: row for row in self.store.outbox("hero", ("pending", "delivered", "dead"))}
        assert sorted(rows) == self.ids
        arrived = [name.decode().strip("<>").partition("@")[0] for name in taken]
        assert [name for name in self.ids if rows[name]["state"] == "delivered"] == sorted(arrived)  # each exactly once
        lost = [row for row in rows.values() if row["state"] != "delivered"]
        said = self.said()
        assert bool(said) == bool(lost)
        if lost:
            dead = sum(row["state"] == "dead" for row in lost)
            assert (f"{dead} refused for good" in said[0].detail) == bool(dead)
            assert (f"{len(lost) - dead} tried again" in said[0].detail) == (dead < len(lost))
            assert "\x1b" not in said[0].detail and len(said[0].detail) < 400


@pytest.fixture
def lab(tmp_path, incident, context):
    return Lab(tmp_path, incident, context)


def through_http(lab, script, passes):
    server = Rude(script)
    try:
        lab.passes(f"json://127.0.0.1:{server.port}/", passes)
    finally:
        server.socket.close()
    lab.ends_well(server.taken)


def through_mail(lab, script, passes):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    post = Post(script)
    controller = Controller(post, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        lab.passes(f"mailto://127.0.0.1:{port}?from=watch@example.org&to=ana@example.com", passes)
    finally:
        controller.stop()
    lab.ends_well(post.taken)


def test_every_trouble_of_a_web_service_delays_and_none_loses(lab):
    through_http(lab, HTTP[1:], len(HTTP) + 1)
    assert lab.said() == []


def test_what_is_refused_for_good_is_named_after_later_messages_got_through(lab):
    through_http(lab, ["404"], 2)
    assert [(each.state, each.detail.partition(":")[0]) for each in lab.said()] == [("stale", "undelivered")]


def test_what_still_fails_is_named(lab):
    through_http(lab, ["500"] * 9, 3)
    assert lab.said()[0].state == "broken" and "4 tried again" in lab.said()[0].detail


def test_every_trouble_of_a_mail_server_delays_and_none_loses(lab):
    through_mail(lab, SMTP[1:], len(SMTP) + 1)
    assert lab.said() == []


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_troubles_over_http(lab, seed):
    chance = random.Random(seed)
    through_http(lab, chance.choices((*HTTP, *FINAL), k=12), chance.randint(1, 16))


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_troubles_over_smtp(lab, seed):
    chance = random.Random(seed)
    through_mail(lab, chance.choices((*SMTP, *SMTP_FINAL), k=12), chance.randint(1, 16))
