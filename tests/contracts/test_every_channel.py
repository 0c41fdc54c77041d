"""One suite over every channel with an API of its own, against services on loopback that check as the real ones do."""

import logging
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import services
from pydantic import SecretStr
from services import SECRET, Fake

from flows.channels.catalogue import open_configured
from flows.channels.contract import Channel, Outgoing, Receipt, Told, TryLater, message_id, thread_id
from flows.errors import DeliveryFailed, UndeliverableError
from flows.messages.blocks import Code, Facts, Header, Link, Message, Paragraph, to_json
from flows.messages.compose import compose, compose_all
from flows.records import Description
from flows.sections import ChannelSection
from flows.stages.notify import notify
from flows.store import open_store

NOW = 1_800_000_000.0


def section(service: str, address: str) -> ChannelSection:
    more: dict[str, Any] = {"url": SecretStr(address)}
    if service in ("slack", "github", "pagerduty", "opsgenie", "webhook"):
        more["token"] = SecretStr(SECRET)
    if service == "discord":
        more["url"] = SecretStr(f"{address}/api/webhooks/123/{SECRET}")
    if service == "teams":
        more["url"] = SecretStr(f"{address}/workflows/1/triggers/manual/paths/invoke?sig={SECRET}")
    more["to"] = {"slack": "C1", "github": "ana/hero#7"}.get(service, "")
    return ChannelSection.model_construct(name="ops", service=service, severities={}, **{"token": None, **more})


KINDS: dict[str, type[Fake]] = {
    "slack": services.Slack, "discord": services.Discord, "teams": services.Teams, "github": services.GitHub,
    "pagerduty": services.PagerDuty, "opsgenie": services.Opsgenie, "alertmanager": services.Alertmanager,
    "webhook": services.Webhook,
}  # fmt: skip
PAGERS = ("pagerduty", "opsgenie", "alertmanager", "webhook")


@dataclass
class Line:
    """A channel to a service at home, and what it has taken: as `notify` keeps it."""

    kind: str
    fake: Any
    channel: Channel
    taken: list[Told] = field(default_factory=list)
    now: float = NOW

    def outgoing(self, message: Message, chart: bytes | None = None) -> Outgoing:
        identity = message_id(f"{message.thread}-{message.transition}-{len(self.taken)}")
        return Outgoing(
            message, identity, thread_id(message.thread), chart, at=self.now, since=self.now, before=tuple(self.taken)
        )

    def send(self, message: Message, chart: bytes | None = None) -> Receipt:
        self.now += 60.0
        receipt = self.channel.send(self.outgoing(message, chart))
        self.taken.append(Told(message, receipt.reference, self.now))
        return receipt


@pytest.fixture(params=list(KINDS))
def line(request: pytest.FixtureRequest) -> Iterator[Line]:
    fake = KINDS[request.param]()
    yield Line(request.param, fake, open_configured(section(request.param, fake.address), 5.0))
    fake.close()


Make = Callable[..., Message]


@pytest.fixture
def make(incident: Any, context: Any) -> Make:
    def made(transition: str = "opened", **changes: Any) -> Message:
        about = {**incident, **changes}
        if transition == "resolved":
            about |= {"status": "resolved", "resolved_step": 5900.0}
        return compose("hero", about, transition, context)

    return made


def test_an_alert_arrives_with_its_sentence_and_what_is_needed(line: Line, make: Make) -> None:
    receipt = line.send(make())
    assert (receipt.channel, receipt.note, line.fake.problems) == ("ops", "", [])
    (text,) = line.fake.texts()
    assert "train/loss diverged from 1.83 to 4.61" in text.replace("\\", "")
    assert "page: look at it now; began at step 5,204" in text.replace("\\", "")
    assert receipt.reference or line.kind == "teams"


def test_a_life_is_one_thread_or_one_page(line: Line, make: Make) -> None:
    for transition, severity in (("opened", "S2"), ("escalated", "S4"), ("still", "S4"), ("resolved", "S4")):
        line.send(make(transition, severity=severity))
    assert line.fake.problems == []
    assert line.fake.roots() == (4 if line.kind == "teams" else 1)
    assert any("Resolved: train/loss diverged" in text.replace("\\", "") for text in line.fake.texts()) or (
        line.kind == "pagerduty"  # a resolve there has no text
    )
    if line.kind in ("pagerduty", "opsgenie"):
        assert line.fake.pages == {}
        assert line.fake.rung == [make().thread] * 2  # once more when it grew worse
    if line.kind == "alertmanager":
        assert line.fake.firing("2027-01-15T08:04:00.000+00:00") == []
    if line.kind == "webhook":
        assert [each["action"] for each in line.fake.documents] == ["trigger", "trigger", "trigger", "resolve"]


def test_a_repeat_stands_once_where_the_service_allows_it(line: Line, make: Make) -> None:
    first = line.outgoing(make())
    line.channel.send(first)
    line.channel.send(replace(first, again=True))
    assert line.fake.count() == (2 if line.kind in ("teams", "discord") else 1)
    line.taken.append(Told(first.message, line.channel.send(replace(first, again=True)).reference, NOW))
    later = line.outgoing(make("escalated", severity="S4"))
    line.channel.send(later)
    count = line.fake.count()
    line.channel.send(replace(later, again=True))
    assert line.fake.count() - count == (1 if line.kind in ("teams", "discord", "pagerduty", "opsgenie") else 0)


def test_of_many_at_once_the_page_ends_with_the_last(line: Line, incident: Any, context: Any) -> None:
    many = [({**incident, "id": f"i{n}"}, "opened") for n in range(5)]
    (message,) = compose_all("hero", many, context)
    line.send(message)
    for n in (3, 0, 1, 4):
        over = {**incident, "id": f"i{n}", "status": "resolved", "resolved_step": 5900.0}
        line.send(compose("hero", over, "resolved", context))
    assert line.fake.roots() == (5 if line.kind in ("teams", "discord") else 1)
    if line.kind in ("pagerduty", "opsgenie"):
        assert (list(line.fake.pages), line.fake.rung) == (["i0"], ["i0"])
    line.send(
        compose("hero", {**incident, "id": "i2", "status": "resolved", "resolved_step": 6000.0}, "resolved", context)
    )
    if line.kind in ("pagerduty", "opsgenie"):
        assert (line.fake.pages, line.fake.ended) == ({}, ["i0"])
    if line.kind == "webhook":
        assert [each["action"] for each in line.fake.documents] == ["trigger", *["update"] * 4, "resolve"]
        assert line.fake.documents[2]["still_open"] == ["i1", "i2", "i4"]
    assert line.fake.problems == []


def test_that_somebody_has_it_rings_nowhere(line: Line, make: Make) -> None:
    line.send(make())
    count = line.fake.count()
    line.send(make("acknowledged"))
    if line.kind in ("slack", "discord", "github", "alertmanager"):
        assert line.fake.count() == count
    if line.kind in ("pagerduty", "opsgenie"):
        assert line.fake.pages == {make().thread: "acknowledged"}
    assert line.fake.problems == []


PAGE = "https://runs.example/record/hero/incident-7f3a21c09b44.html"


def clickable(line: Line) -> list[str]:
    """Each request that carries a link to the page, by what makes it one there."""
    sent = [body.decode() for *_, body in line.fake.calls if body and PAGE in body.decode()]
    marks = {
        "slack": f'"type": "link", "url": "{PAGE}"', "discord": f"](<{PAGE}>)", "github": f"](<{PAGE}>)",
        "teams": f'"url": "{PAGE}"', "pagerduty": f'"client_url": "{PAGE}"', "opsgenie": f'"Page of this incident": "{PAGE}"',
        "alertmanager": f'"generatorURL": "{PAGE}"', "webhook": f'"url": "{PAGE}"',
    }  # fmt: skip
    loose = [re.sub(r'":\s*', '": ', body).replace('","', '", "') for body in sent]
    return [body for body in loose if marks[line.kind] in body]


def test_the_page_of_the_incident_can_be_clicked_from_its_first_word_to_its_last(line: Line, make: Make) -> None:
    link = Link("Page of this incident", PAGE)
    for transition, severity in (("opened", "S2"), ("escalated", "S4"), ("followed", "S4"), ("resolved", "S4")):
        message = make(transition, severity=severity)
        line.send(replace(message, blocks=(*message.blocks, link)))
    assert line.fake.problems == []
    told = {"pagerduty": 3, "opsgenie": 2}.get(line.kind, 4)  # their other calls take no links
    assert len(clickable(line)) >= told
    if line.kind in ("slack", "discord", "github"):
        assert PAGE in "".join(strings_of(line.fake.messages if line.kind != "github" else line.fake.comments))


def strings_of(kept: Any) -> list[str]:
    return [str(each) for each in kept.values()]


def test_a_service_in_trouble_is_tried_again(line: Line, make: Make) -> None:
    for status in (408, 425, 500, 502, 503):
        line.fake.script = [(status, {}, b"<html>oops")]
        with pytest.raises(DeliveryFailed, match=str(status)):
            line.send(make())
    assert line.send(make()).channel == "ops"


def test_a_refusal_is_final(line: Line, make: Make) -> None:
    for status in (400, 401, 403, 404, 410):
        line.fake.script = [(status, {}, b"{}")]
        with pytest.raises(UndeliverableError, match=str(status)):
            line.send(make())


def test_a_pause_that_is_asked_for_is_kept_within_reason(line: Line, make: Make) -> None:
    date = {"Date": "Mon, 30 Nov 2026 20:00:00 GMT", "Retry-After": "Mon, 30 Nov 2026 20:01:30 GMT"}
    line.fake.script = [
        (429, {"Retry-After": "77"}, b"{}"), (429, {}, b"slow"), (429, {"Retry-After": "9999999"}, b""),
        (429, {"Retry-After": "nan"}, b""), (503, {"Retry-After": "5"}, b""),
    ]  # fmt: skip
    waits = []
    for _ in range(5):
        with pytest.raises(TryLater) as told:
            line.send(make())
        waits.append(told.value.retry_after_seconds)
    assert waits == [77.0, 60.0, 3600.0, 60.0, 5.0]
    line.fake.script = [(429, {"Retry-After": date["Retry-After"]}, b"")]  # against the server's own Date
    with pytest.raises(TryLater) as told:
        line.send(make())
    assert 0.0 <= told.value.retry_after_seconds <= 3600.0


@pytest.mark.parametrize("met", ["hang", "drop"])
def test_silence_is_tried_again(line: Line, make: Make, met: str) -> None:
    line.channel = open_configured(section(line.kind, line.fake.address), 0.3)
    line.fake.script = [met]
    with pytest.raises(DeliveryFailed):
        line.send(make())


GARBAGE = [
    b"<!doctype html><title>log in</title>", b"", b"ok", b"[]", b"null", b'{"ok": "maybe"}', b"\x00\xff" * 99, b"[" * 99999,
]  # fmt: skip


def test_an_answer_that_is_no_word_of_the_service_is_no_receipt(line: Line, make: Make) -> None:
    for text in GARBAGE:
        line.fake.script = [(200, {}, text)]
        if line.fake.has_words or text.startswith(b"<"):
            with pytest.raises(DeliveryFailed):
                line.send(make())
        else:
            line.channel.send(line.outgoing(make()))


def test_a_redirect_is_not_followed(line: Line, make: Make) -> None:
    line.fake.script = [(302, {"Location": f"{line.fake.address}/elsewhere"}, b"")]
    with pytest.raises(DeliveryFailed, match="302"):
        line.send(make())
    assert len(line.fake.calls) == 1


def test_nobody_at_home_is_tried_again(line: Line, make: Make) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    line.channel = open_configured(section(line.kind, f"http://127.0.0.1:{port}"), 1.0)
    with pytest.raises(DeliveryFailed):
        line.send(make())


def test_no_secret_is_in_errors_logs_reprs_or_receipts(
    line: Line, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told = [repr(line.channel), str(line.channel)]
    line.fake.script = [
        (401, {}, SECRET.encode()),
        (500, {}, SECRET.encode()),
        (302, {"Location": SECRET}, b""),
        "drop",
    ]
    while line.fake.script:
        try:
            line.send(make())
        except (DeliveryFailed, UndeliverableError) as error:
            told += [str(error), repr(error), repr(error.__cause__), repr(error.__context__)]
    told.append(repr(line.send(make())))
    ours = [record for record in caplog.records if not record.name.startswith(("httpcore", "hpack"))]
    assert SECRET not in " ".join([*told, *(record.getMessage() for record in ours)])


@pytest.mark.parametrize("token", ["two\nlines-of-a-token-0123", "nön-ascii-token-012345678"])
def test_a_token_that_no_header_takes_is_a_final_no_without_it(token: str, make: Make) -> None:
    for kind in ("slack", "github", "opsgenie"):
        fake = KINDS[kind]()
        broken = section(kind, fake.address).model_copy(update={"token": SecretStr(token)})
        with pytest.raises(UndeliverableError) as told:
            open_configured(broken, 1.0).send(Outgoing(make(), "<m@x>", "<t@x>"))
        assert token not in str(told.value)
        fake.close()


HOSTILE = [
    "<!channel>", "@everyone", "@here", "<@U012AB3CD>", "@ana", "*bold* _it_ `code`", "[click](https://evil.example)",
    "<script>alert(1)</script>", "<at>ana</at>", "\x1b[31mred\x1b[0m", "a\nb\r\nc", "#12 GH-12", "</details>", "-->", "=cmd()",
    "../../x", "https://evil.example/x", '"}],"x":[{"', "\ud800", "x" * 5000,
]  # fmt: skip


def test_a_hostile_name_is_text(line: Line, incident: Any, context: Any) -> None:
    for name in HOSTILE:
        line.taken, line.fake.calls = [], []
        about = {**incident, "title": f"{name} rose", "findings": [{**f, "metric": name} for f in incident["findings"]]}
        about["suggestions"] = [{"do": name, "cost": name, "counter_evidence": [name]}]
        for transition in ("opened", "escalated"):
            message = compose(name, about, transition, replace(context, owner=name))
            line.send(replace(message, blocks=(*message.blocks, Link(name, f"javascript:{name}"))))
    assert line.fake.problems == []
    for text in line.fake.texts():
        assert not any(sign in text for sign in "\x1b\x00\r")
        if line.kind not in ("slack", "teams"):  # their text runs read no calls
            assert not any(call in text for call in ("@everyone", "@here", "@ana", "<!channel>", "<@U"))
        if line.kind in ("github", "discord"):
            live = re.sub(r"(`+).+?\1", "", text, flags=re.DOTALL)  # code is inert
            assert not any(sign in live for sign in ("<script", "</details> rose", "#12", "GH-12", "https://evil")), (
                live
            )


def huge(transition: str) -> Message:
    facts = Facts(tuple((f"label {n} " + "l" * 300, "v" * 3000) for n in range(120)))
    blocks = (
        Header("t" * 9000),
        facts,
        Paragraph("p" * 9000),
        Code("c" * 9000),
        Link("k" * 900, "https://a.example/" + "u" * 900),
    )
    return Message("t" * 9000, "S4", "r" * 3000, transition, "i1", blocks, (Paragraph("m" * 70_000),), ("i1",))


def test_a_disaster_of_any_length_is_heard(line: Line) -> None:
    for transition in ("opened", "escalated", "resolved"):
        line.send(huge(transition))
    assert line.fake.problems == []
    assert line.fake.count() >= 1


def test_a_message_without_an_incident_is_the_watch_s_own(line: Line) -> None:
    from flows.messages.monitor import monitor_message

    for what in ("stale", "recovered"):
        message = monitor_message(
            what, "run hero", "it is gone", passes=3, minutes=3, thread="monitor-run hero|Gone-1800"
        )
        line.now += 60
        line.channel.send(line.outgoing(message))  # it is not in the outbox: nothing is known of what was before
    assert line.fake.problems == []
    if line.kind in ("pagerduty", "opsgenie"):
        assert line.fake.rung and line.fake.pages == {}


def test_through_trouble_every_word_arrives_in_its_thread_or_is_shown(line: Line, make: Make) -> None:
    line.channel = open_configured(section(line.kind, line.fake.address), 0.5)
    clock = {"now": NOW}
    store = open_store(":memory:", clock=lambda: clock["now"])
    store.register_run(Description("hero", "hero.jsonl", "jsonl", "step"))
    words = [make("opened", severity="S3"), make("escalated", severity="S4"), make("resolved", severity="S4")]
    trouble: list[Any] = [
        (503, {}, b""),
        "drop",
        (429, {"Retry-After": "400"}, b""),
        "hang",
        (200, {}, b"<html>log in"),
    ]
    for n, message in enumerate(words):
        row = {
            "delivery_id": f"d{n}", "incident_id": message.thread, "transition": message.transition, "channel": "ops",
            "message": to_json(message), "message_id": message_id(f"d{n}"), "created_at": clock["now"],
        }  # fmt: skip
        store.save_judgement("hero", upto_batch=0, run_state="{}", states={}, deliveries=[row])
        line.fake.script = list(trouble)
        tries = 0
        while store.pending_deliveries(2e9):
            notify(store, {"ops": line.channel}, lambda: clock["now"])
            clock["now"] += 600.0
            tries += 1
            assert tries < 20
        assert tries > 5
    rows = store.query("SELECT state, receipt, repeats FROM deliveries ORDER BY delivery_id").rows.rows()
    assert [state for state, _, _ in rows] == ["delivered"] * 3
    assert line.fake.problems == []
    assert line.fake.roots() == (3 if line.kind == "teams" else 1)
    if line.kind in ("pagerduty", "opsgenie"):
        assert line.fake.pages == {}
    lost = {**row, "delivery_id": "d9", "message_id": message_id("d9"), "created_at": clock["now"]}
    store.save_judgement("hero", upto_batch=0, run_state="{}", states={}, deliveries=[lost])
    line.fake.script = [(401, {}, b"")] * 3
    notify(store, {"ops": line.channel}, lambda: clock["now"])
    ((shown),) = store.failing_channels()  # which is what `doctor` tells
    assert (shown["channel"], shown["dead"]) == ("ops", 1) and "401" in shown["error"]


def test_a_test_is_sent_and_leaves_no_page_behind(line: Line) -> None:
    line.channel.send(
        line.outgoing(Message("a test", "S1", "", "test", "test-ops", (Header("a test"), Paragraph("x"))))
    )
    assert (line.fake.problems, line.fake.count()) == ([], 1)
    if line.kind in ("pagerduty", "opsgenie"):
        assert line.fake.pages == {}
