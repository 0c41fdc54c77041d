"""Which messages carry the link that acknowledges."""

from dataclasses import replace

import pytest
from pydantic import SecretStr

from flows.channels.contract import Receipt
from flows.links import ACK, verified
from flows.messages.blocks import to_json
from flows.messages.compose import compose
from flows.phoning import PhoneSection
from flows.records import Description
from flows.stages.acklink import linking
from flows.stages.notify import notify
from flows.store import open_store

NOW = 1_800_000_000.0
SECRET = "0123456789abcdef0123"


@pytest.fixture
def phone():
    return PhoneSection.model_construct(url="https://w.example", secret=SecretStr(SECRET), valid=3600.0)


def test_a_channel_that_asks_for_it_is_given_a_link_of_its_own_incident(phone, incident, context):
    link = linking(phone, {"team"})
    message = compose("hero", incident, "opened", context)
    _, action, name, until, signature = link("team", message, NOW).url.rsplit("/", 4)
    assert (action, name, int(until)) == (ACK, incident["id"], NOW + 3600)
    assert verified(SECRET, ACK, name, int(until), signature)
    assert link("other", message, NOW) is None
    for transition in ("resolved", "acknowledged", "follow-up"):
        assert link("team", replace(message, transition=transition), NOW) is None
    assert link("team", replace(message, over=(incident["id"],)), NOW) is None
    assert link("team", replace(message, incidents=()), NOW) is None  # a word of the watch about itself


def test_without_an_address_there_are_no_links(phone):
    assert linking(None, {"team"}) is None
    assert linking(phone.model_copy(update={"url": ""}), {"team"}) is None
    assert linking(phone, set()) is None


def test_the_link_is_in_what_is_sent_and_in_no_table(phone, incident, context):
    class Team:
        name = "team"
        sent = None

        def send(self, outgoing):
            self.sent = outgoing
            return Receipt(self.name, reference="1")

    store, team = open_store(":memory:", clock=lambda: NOW), Team()
    store.register_run(Description("hero", "hero.jsonl", "jsonl", "step"))
    row = {
        "delivery_id": "d", "incident_id": incident["id"], "transition": "opened", "channel": "team",
        "message": to_json(compose("hero", incident, "opened", context)), "message_id": "<d@x>",
    }  # fmt: skip
    store.save_judgement("hero", upto_batch=0, run_state="{}", states={}, deliveries=[row])
    assert notify(store, {"team": team}, lambda: NOW, link=linking(phone, {"team"})).delivered == 1
    assert "https://w.example/ack/" in str(team.sent.message.blocks[-1].url)
    assert "/ack/" not in str(store.query("SELECT * FROM deliveries").rows.rows())
