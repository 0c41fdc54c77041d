import base64
import json
import logging

import pytest

from flows.channels.apprise_bridge import AppriseChannel
from flows.channels.catalogue import open_channel
from flows.channels.contract import Outgoing, TryLater, message_id, redact, thread_id
from flows.errors import BadConfig, DeliveryFailed, UndeliverableError
from flows.messages.compose import compose

SECRET = "T0kenThatNobodyMaySee"


def outgoing(incident, context, png=None):
    message = compose("hero", incident, "opened", context)
    return Outgoing(message, message_id("d1"), thread_id(message.thread), png)


@pytest.fixture
def channel(endpoint):
    return open_channel("ops", f"json://127.0.0.1:{endpoint.port}/{SECRET}?+X-Key={SECRET}", 5.0)


def test_the_message_and_the_chart_arrive_with_the_same_id_on_a_repeat(channel, endpoint, incident, context, png):
    for _ in range(2):
        assert channel.send(outgoing(incident, context, png)).note == ""
    said = endpoint.json()
    assert said["title"].startswith("S3 hero: train/loss diverged")
    assert "Needed: page" in said["message"]
    assert base64.b64decode(said["attachments"][0]["base64"]) == png
    assert said["attachments"][0]["mimetype"] == "image/png"
    assert [json.loads(body)["message_id"] for _, _, body in endpoint.received] == ["<d1@watchkeeper.invalid>"] * 2
    assert endpoint.received[0][1]["Idempotency-Key"] == "<d1@watchkeeper.invalid>"
    assert said["thread_id"] == f"<incident-{incident['id']}@watchkeeper.invalid>"


@pytest.mark.parametrize("status", [500, 502, 503, 408, 425])
def test_a_server_in_trouble_is_tried_again(channel, endpoint, incident, context, status):
    endpoint.answers = [(status, {}, b"")]
    with pytest.raises(DeliveryFailed, match=str(status)):
        channel.send(outgoing(incident, context))


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_refusal_is_final(channel, endpoint, incident, context, status):
    endpoint.answers = [(status, {}, b"")]
    with pytest.raises(UndeliverableError, match=str(status)):
        channel.send(outgoing(incident, context))


def test_a_pause_that_the_service_asks_for_is_kept(channel, endpoint, incident, context):
    endpoint.answers = [(429, {"Retry-After": "77"}, b'{"retry_after": 77.5}'), (429, {}, b"slow down")]
    with pytest.raises(TryLater) as told:
        channel.send(outgoing(incident, context))
    assert told.value.retry_after_seconds == 77.5
    with pytest.raises(TryLater) as untold:
        channel.send(outgoing(incident, context))
    assert untold.value.retry_after_seconds == 60.0


def test_a_service_that_refuses_the_picture_gets_the_words(channel, endpoint, incident, context, png):
    endpoint.answers = [(413, {}, b"too large")]
    receipt = channel.send(outgoing(incident, context, png))
    assert "without the chart" in receipt.note
    assert endpoint.json()["attachments"] == [] and "Needed" in endpoint.json()["message"]


def test_nobody_at_home_is_tried_again(incident, context):
    with pytest.raises(DeliveryFailed, match="no answer"):
        open_channel("ops", "json://127.0.0.1:9/x", 1.0).send(outgoing(incident, context))


def test_no_secret_is_in_errors_logs_or_reprs(channel, endpoint, incident, context, caplog, png):
    caplog.set_level(logging.DEBUG)
    for name in ("apprise", "urllib3", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    told = [repr(channel), str(channel)]
    for status in (200, 401, 404, 429, 500):
        endpoint.answers = [(status, {}, SECRET.encode())]
        try:
            channel.send(outgoing(incident, context, png))
        except (DeliveryFailed, UndeliverableError) as error:
            told += [str(error), repr(error), repr(error.__cause__), repr(error.__context__)]
    with pytest.raises(BadConfig) as caught:
        open_channel("ops", f"nosuch://{SECRET}/{SECRET}")
    assert SECRET not in " ".join([*told, str(caught.value), caplog.text])
    assert len(endpoint.received) == 5


def test_the_loggers_are_as_they_were_after_a_send(channel, incident, context):
    before = [(logging.getLogger(name).level, len(logging.getLogger(name).filters)) for name in ("apprise", "urllib3")]
    channel.send(outgoing(incident, context))
    assert before == [
        (logging.getLogger(name).level, len(logging.getLogger(name).filters)) for name in ("apprise", "urllib3")
    ]


@pytest.fixture
def services(endpoint, monkeypatch):
    """Slack and Discord at home: Apprise's own addresses turned to loopback."""
    from apprise.plugins.discord import NotifyDiscord
    from apprise.plugins.slack import NotifySlack

    monkeypatch.setattr(NotifySlack, "webhook_url", f"http://127.0.0.1:{endpoint.port}/services")
    monkeypatch.setattr(NotifyDiscord, "notify_url", f"http://127.0.0.1:{endpoint.port}/webhooks")
    return endpoint


def test_slack_is_told_in_words_that_call_nobody(services, incident, context, png):
    incident["title"] = "<!channel> *x* & <b>y</b> @everyone"
    receipt = open_channel("ops", "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#general").send(
        outgoing(incident, context, png)
    )
    said = services.received[0][2].decode()
    assert "<!channel" not in said and "@everyone" not in said and "<b>" not in said
    assert "github" not in said  # no icon is loaded from elsewhere
    assert receipt.channel == "ops"


def test_discord_gets_escaped_markdown_and_the_picture_after_it(services, incident, context, png):
    incident["title"] = "@everyone *x* <@123>"
    channel = open_channel("ops", "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js")
    assert channel.send(outgoing(incident, context, png)).note == ""
    content = services.json(0)["content"]
    assert "@everyone" not in content and "<@123" not in content and "\\*x\\*" in content
    assert png in services.received[1][2]


def test_a_text_that_arrived_without_its_picture_is_not_sent_twice(services, incident, context, png):
    services.answers = [(200, {}, b"ok"), (500, {}, b"")]
    channel = open_channel("ops", "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js")
    assert channel.send(outgoing(incident, context, png)).note == "the text arrived, the chart did not"
    assert len(services.received) == 2


def test_a_long_message_is_split_not_refused(services, incident, context):
    incident["suggestions"] = [{"do": "x" * 160, "counter_evidence": ["y" * 140]}]
    incident["findings"] = [{**incident["findings"][0], "metric": f"layer/{n}/" + "m" * 50} for n in range(4)]
    incident["title"] = "w" * 240
    channel = open_channel("ops", "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js")
    channel.send(outgoing(incident, context))
    assert all(len(services.json(n)["content"]) <= 2000 for n in range(len(services.received)))
    assert "incident " in "".join(services.json(n)["content"] for n in range(len(services.received)))


def test_a_url_that_cannot_be_read_any_more_is_final(incident, context):
    with pytest.raises(UndeliverableError, match="cannot read"):
        AppriseChannel("ops", f"nosuch://{SECRET}", "nosuch").send(outgoing(incident, context))


def test_redacting_leaves_nothing_of_a_url():
    url = f"https://ana:{SECRET}@hooks.example.org/services/{SECRET}2?key={SECRET}3#x"
    assert SECRET not in redact(f"failed at {url} with {SECRET} and {SECRET}3", url)
