"""Which messages are given links to the operating record, and which."""

from dataclasses import replace

import pytest

from flows.channels.contract import Receipt
from flows.messages.blocks import Link, to_json
from flows.messages.compose import compose, compose_all
from flows.messages.digest import compose_digest
from flows.record.places import Served
from flows.record.veil import Policy
from flows.records import Description
from flows.stages.firing import keep_firing
from flows.stages.notify import notify
from flows.stages.pagelink import paging
from flows.store import open_store

NOW = 1_800_000_000.0
URL = "https://runs.example/record/"
ACKNOWLEDGE = Link("I have it in hand", "https://w.example/ack/1")


def row(name, severity=3):
    return {
        "incident_id": name, "severity": severity, "status": "open", "onset_step": 1.0, "detected_step": 2.0, "title": "x",
        "severity_history": "[]",
    }  # fmt: skip


def finding(name, metric):
    return {
        "finding_id": f"f{name}{metric}", "incident_id": name, "attempt": 1, "detector": "shifts", "kind": "level",
        "metric": metric, "role": "loss", "direction": "up", "onset_step": 1.0, "detected_step": 2.0, "magnitude": 1.0,
        "unit": "log", "severity": 2, "episode": "e", "evidence": "{}",
    }  # fmt: skip


@pytest.fixture
def store():
    kept = open_store(":memory:", clock=lambda: NOW)
    kept.register_run(Description("hero", "hero.jsonl", "jsonl", "step"))
    kept.save_judgement(
        "hero", upto_batch=0, run_state="{}", states={}, incidents=[row("a"), row("b", 4), row("note", 0), row("hid")],
        findings=[finding("a", "train/loss"), finding("b", "train/loss"), finding("hid", "secret/loss")],
    )  # fmt: skip
    return kept


def links(message):
    return [(each.text, each.url) for each in message.blocks if isinstance(each, Link)]


def told(incident, *names):
    return [({**incident, "id": name}, "opened") for name in names]


def test_a_message_leads_to_the_page_of_its_incident(store, incident):
    page = paging(store, "hero", Served(URL))
    for transition in ("opened", "escalated", "still", "followed", "acknowledged", "resolved"):
        message = compose("hero", {**incident, "id": "a", "resolved_step": 9000.0}, transition)
        assert links(page(message)) == [("Page of this incident", f"{URL}hero/incident-a.html")]


def test_many_lead_to_the_gravest_and_to_the_run_and_a_digest_to_the_run(store, incident):
    page = paging(store, "hero", Served(URL))
    (many,) = compose_all(
        "hero", [({**incident, "id": n, "severity": "S4" if n == "b" else "S3"}, "opened") for n in "abcd"]
    )
    assert links(page(many)) == [
        ("Page of the gravest", f"{URL}hero/incident-b.html"), ("All of them", f"{URL}hero/index.html"),
    ]  # fmt: skip
    digest = compose_digest("hero", [{**incident, "id": "a"}])
    assert links(page(digest)) == [("Page of this run", f"{URL}hero/index.html")]


@pytest.mark.parametrize(
    ("served", "name"),
    [
        (Served(), "a"),
        (Served(URL, Policy(runs=("other",))), "a"),
        (Served(URL), "note"),
        (Served(URL), "gone"),
        (Served(URL, Policy(metrics=("train/*",))), "hid"),
    ],
)
def test_what_the_record_does_not_publish_has_no_link(store, incident, served, name):
    message = compose("hero", {**incident, "id": name}, "opened")
    assert paging(store, "hero", served)(message) == message


def test_a_run_is_called_as_it_is_published(store, incident):
    served = Served(URL, Policy(names={"hero": "big-moe"}))
    message = compose("hero", {**incident, "id": "a"}, "opened")
    assert links(paging(store, "hero", served)(message)) == [
        ("Page of this incident", f"{URL}big-moe/incident-a.html"),
    ]  # fmt: skip


class Team:
    name = "team"

    def __init__(self):
        self.heard = []

    def send(self, outgoing):
        self.heard.append(outgoing)
        return Receipt(self.name, reference=outgoing.message.thread)

    keep = send


def test_what_leaves_has_the_link_what_went_before_too_and_no_table_has_it(store, incident):
    team, page = Team(), paging(store, "hero", Served(URL))
    for number, transition in enumerate(("opened", "escalated")):
        message = compose("hero", {**incident, "id": "a"}, transition)
        sent = {"delivery_id": f"d{number}", "incident_id": "a", "transition": transition, "channel": "team",
                "message": to_json(message), "message_id": f"<{number}@x>"}  # fmt: skip
        store.save_judgement("hero", upto_batch=0, run_state="{}", states={}, deliveries=[sent])
        notify(store, {"team": team}, lambda: NOW, link=lambda *_: ACKNOWLEDGE, pages=page)
    mine = ("Page of this incident", f"{URL}hero/incident-a.html")
    assert links(team.heard[1].message) == [mine, ("I have it in hand", "https://w.example/ack/1")]
    assert [links(each.message) for each in team.heard[1].before] == [[mine]]
    assert "runs.example" not in str(store.query("SELECT * FROM deliveries").rows.rows())
    assert keep_firing(store, "hero", "team", team, lambda: NOW, page) == 1
    assert links(team.heard[2].message) == [mine]
    assert replace(team.heard[2].message, blocks=()) == replace(team.heard[1].message, blocks=())
