"""Who may acknowledge, how often, and what a request can do that may not."""

import hashlib
import hmac
import http.client
import json
import socket
import threading
from urllib.parse import urlencode

import pytest

from flows.errors import StoreBusy
from flows.links import ACK, signed, verified
from flows.messages.blocks import to_json
from flows.messages.compose import compose_all
from flows.phone import callbacks
from flows.phone.desk import Desk
from flows.phone.server import PhoneServer
from flows.records import Description
from flows.store import open_store

NOW = 1_800_000_000.0
SECRET = "a secret of our own, long enough"
PD, OG = "signing-secret-of-pagerduty", "bearer-of-opsgenie-0123456"


class House:
    def __init__(self, incident, context):
        self.now = NOW
        self.store = open_store(":memory:", clock=lambda: self.now)
        self.store.register_run(Description("hero", "hero.jsonl", "jsonl", "step"))
        rows = [
            {
                "incident_id": name, "severity": 3, "status": "open", "title": f"{name} <b>rose</b>", "onset_step": 5204.0,
                "detected_step": 5222.0,
            }
            for name in ("i0", "i1", "i2", "i3")
        ]  # fmt: skip
        rows.append({**rows[0], "incident_id": "over", "status": "resolved", "resolved_step": 5900.0})
        (many,) = compose_all("hero", [({**incident, "id": f"i{n}"}, "opened") for n in range(4)], context)
        text = to_json(many)
        told = {
            "delivery_id": "d", "incident_id": "i0", "transition": "opened", "channel": "pd", "message": text,
            "message_id": "<d@x>",
        }  # fmt: skip
        self.store.save_judgement("hero", upto_batch=0, run_state="{}", states={}, incidents=rows, deliveries=[told])
        self.store.mark_delivered("d", NOW, "i0")
        self.desk = Desk(
            lambda: self.store, lambda: self.now, SECRET, {"pagerduty": PD, "opsgenie": OG}, {"pagerduty": ["pd"]}
        )

    def ask(self, method, path, body=b"", **headers):
        return self.desk.answer(method, path, headers, body)

    def acks(self):
        return [(each.incident_id, each.who, each.why) for each in self.store.log() if each.kind == "ack"]


@pytest.fixture
def house(incident, context):
    return House(incident, context)


def path_of(incident, until=NOW + 60, secret=SECRET):
    return signed("", secret, ACK, incident, until)


def form(**fields):
    return urlencode(fields).encode()


def test_a_link_shows_a_page_and_only_its_button_acknowledges(house):
    for method in ("GET", "HEAD", "GET"):
        reply = house.ask(method, path_of("i1"))
        assert reply.status == 200 and "<button>I have it in hand" in reply.html
    assert house.acks() == []
    assert "<b>rose" not in reply.html and "&lt;b&gt;rose" in reply.html
    reply = house.ask("POST", path_of("i1"), form(who="Ana <i>", why="looking at the loader"))
    assert reply.status == 200 and "Ana &lt;i&gt; has it in hand" in reply.html
    assert house.acks() == [("i1", "Ana <i>", "looking at the loader")]
    (done,) = [each for each in house.store.log("hero") if each.kind == "ack"]
    assert (done.run, done.severity, done.at) == ("hero", 3, NOW)  # as `incidents ack` writes it


def test_a_form_that_is_sent_twice_is_one_acknowledgement_and_another_person_is_a_second(house):
    for who in ("Ana", "Ana", "Bo"):
        assert house.ask("POST", path_of("i1"), form(who=who)).status == 200
    assert [who for _, who, _ in house.acks()] == ["Ana", "Bo"]
    assert "Bo has it in hand already" in house.ask("GET", path_of("i1")).html


@pytest.mark.parametrize(
    "body", [b"", b"who=", b"who=%20%00", b"\xff\xfe", b"&".join([b"a=1"] * 99), form(why="no name")]
)
def test_without_a_name_nothing_is_written(house, body):
    assert house.ask("POST", path_of("i1"), body).status == 400
    assert house.acks() == []


def test_a_link_ends_and_is_for_one_incident_one_action_and_one_secret(house):
    good = path_of("i1")
    house.now = NOW + 61
    assert house.ask("POST", good, form(who="Ana")).status == 410
    house.now = NOW
    later = good.replace(str(int(NOW + 60)), str(int(NOW + 6000)))
    other = good.replace("/i1/", "/i2/")
    for bad in (
        later,
        other,
        path_of("i1", secret="another secret altogether"),
        good[:-1],
        good + "x",
        good.swapcase(),
    ):
        assert house.ask("POST", bad, form(who="Ana")).status in (403, 404)
    assert not verified(SECRET, "snooze", "i1", int(NOW + 60), good.rsplit("/", 1)[1])
    assert not verified(SECRET, ACK, "i1", int(NOW + 60), "\ud800é")
    assert house.acks() == []


ELSEWHERE = [
    "/", "/ack", "/ack/i1/9/x/y", "//evil.example/", "/../etc/passwd", "/callbacks/", "/ack/i1/-1/x", "/ack/\x00/1/x",
]  # fmt: skip


@pytest.mark.parametrize("path", ELSEWHERE)
def test_there_is_nothing_else(house, path):
    assert house.ask("GET", path).status in (403, 404)
    assert house.ask("POST", path, form(who="Ana")).status in (403, 404)


def test_what_is_over_or_unknown_is_said(house):
    assert "It is over" in house.ask("POST", path_of("over"), form(who="Ana")).html
    assert house.ask("GET", path_of("gone")).status == 404
    assert house.acks() == []


def pagerduty(word="incident.acknowledged", key="i0", agent=None):
    person = {"type": "user_reference", "summary": "Earline Greenholt", "id": "PXPGF42"}
    event = {"id": "5ac6", "event_type": word, "resource_type": "incident", "agent": agent or person}
    body = json.dumps({"event": {**event, "data": {"id": "PT4KHLK", "type": "incident", "incident_key": key}}}).encode()
    return body, "v1=" + hmac.new(PD.encode(), body, hashlib.sha256).hexdigest()


def send(house, body, signature):
    return house.ask("POST", "/callbacks/pagerduty", body, **{"x-pagerduty-signature": signature}).status


def test_an_answer_in_pagerduty_acknowledges_every_incident_of_the_page_once(house):
    body, signature = pagerduty()
    assert send(house, body, f"v1=0000, {signature}") == 202
    assert send(house, body, signature) == 202
    who = "Earline Greenholt (PagerDuty)"
    assert house.acks() == [(f"i{n}", who, "acknowledged in PagerDuty") for n in range(4)]


def test_only_what_pagerduty_signed_counts(house):
    body, signature = pagerduty()
    for bad in ("", "v1=", signature[3:], signature.replace("v1", "v0"), "é"):
        assert send(house, body, bad) == 401
    assert send(house, body + b" ", signature) == 401
    assert house.ask("POST", "/callbacks/nobody", body).status == 404
    assert Desk(lambda: house.store, lambda: NOW, SECRET).answer("POST", "/callbacks/pagerduty", {}, body).status == 404
    assert house.acks() == []


@pytest.mark.parametrize(
    "given",
    [
        {"word": "incident.triggered"}, {"word": "pagey.ping"}, {"word": ["x"]}, {"key": "unknown"}, {"key": None},
        {"agent": {"type": "service_reference", "summary": "watchkeeper"}},  # our own word comes back
    ],
)  # fmt: skip
def test_what_is_no_answer_of_a_person_is_taken_and_does_nothing(house, given):
    assert send(house, *pagerduty(**given)) == 202
    assert house.acks() == []


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"event": []}', b"\xff", b"[" * 99999])
def test_a_signed_body_that_is_no_event_does_nothing(house, body):
    assert send(house, body, "v1=" + hmac.new(PD.encode(), body, hashlib.sha256).hexdigest()) == 202
    assert callbacks.from_opsgenie(body) is None
    assert house.acks() == []


def test_a_page_that_a_person_ends_in_pagerduty_is_in_hand(house):
    assert send(house, *pagerduty("incident.resolved", "i3")) == 202
    assert house.acks() == [("i3", "Earline Greenholt (PagerDuty)", "resolved in PagerDuty")]


def test_an_answer_in_opsgenie_needs_the_header_that_was_agreed(house):
    told = {
        "action": "Acknowledge",
        "alert": {"alias": "i2", "username": "ana@example.org"},
        "source": {"type": "mobile"},
    }
    body = json.dumps(told).encode()
    for header in ("", OG, f"Bearer {OG}x", "Bearer "):
        assert house.ask("POST", "/callbacks/opsgenie", body, authorization=header).status == 401
    own = json.dumps({**told, "source": {"name": "watchkeeper", "type": "API"}}).encode()
    assert house.ask("POST", "/callbacks/opsgenie", own, authorization=f"Bearer {OG}").status == 202
    assert house.acks() == []
    assert house.ask("POST", "/callbacks/opsgenie", body, authorization=f"Bearer {OG}").status == 202
    assert house.acks() == [("i2", "ana@example.org (Opsgenie)", "acknowledged in Opsgenie")]


def test_a_store_that_is_held_is_a_matter_of_trying_again():
    def held():
        raise StoreBusy("held")

    desk = Desk(held, lambda: NOW, SECRET, {"pagerduty": PD})
    body, signature = pagerduty()
    assert desk.answer("POST", "/callbacks/pagerduty", {"x-pagerduty-signature": signature}, body).status == 503
    assert desk.answer("GET", path_of("i1"), {}, b"").status == 503


def test_no_secret_is_in_the_repr(house):
    assert not any(secret in repr(house.desk) for secret in (SECRET, PD, OG))


@pytest.fixture
def server(house, monkeypatch):
    monkeypatch.setattr("flows.phone.server.PATIENCE_SECONDS", 1.0)
    made = PhoneServer(("127.0.0.1", 0), house.desk)
    threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def call(server, method, path, body=None, headers=None):
    line = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    line.request(method, path, body, headers or {})
    answer = line.getresponse()
    return answer.status, answer.headers, answer.read().decode()


def test_over_a_socket_it_is_the_same_and_nothing_is_loaded_kept_or_framed(server, house, capfd):
    status, headers, page = call(server, "GET", path_of("i1"))
    assert status == 200 and "<button>" in page and "http" not in page.replace("<!doctype html>", "")
    assert (
        headers["Content-Security-Policy"].startswith("default-src 'none'") and headers["Cache-Control"] == "no-store"
    )
    assert headers["Referrer-Policy"] == "no-referrer"
    assert call(server, "HEAD", path_of("i1"))[2] == ""
    assert call(server, "POST", path_of("i1"), form(who="Ana"))[0] == 200
    assert house.acks() == [("i1", "Ana", "")]
    assert call(server, "GET", "/health")[0] == 200
    assert call(server, "DELETE", path_of("i1"))[0] == 501
    out = capfd.readouterr()
    assert out.out + out.err == ""  # a path may hold a signature


def test_a_body_that_is_too_large_or_has_no_length_is_refused_unread(server):
    assert call(server, "POST", "/callbacks/pagerduty", headers={"Content-Length": str(1 << 30)})[0] == 413
    assert call(server, "POST", "/callbacks/pagerduty", headers={"Content-Length": "-5"})[0] == 413


def test_a_caller_that_drips_is_hung_up_on(server):
    with socket.create_connection(server.server_address) as line:
        line.settimeout(0.2)
        line.sendall(b"POST /callbacks/pagerduty HTTP/1.1\r\nContent-Length: 1000\r\n\r\n")
        assert any(hung_up(line) for _ in range(50))
    assert call(server, "GET", "/health")[0] == 200


def hung_up(line):
    """Whether the other side is gone, one byte and a fifth of a second later."""
    try:
        line.sendall(b"x")
        return line.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True
