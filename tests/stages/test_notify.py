import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from flows.channels.catalogue import open_channel
from flows.channels.contract import Receipt, TryLater, message_id
from flows.errors import DeliveryFailed, UndeliverableError
from flows.messages.blocks import to_json
from flows.messages.compose import compose, compose_all
from flows.records import Description
from flows.stages.notify import notify, pause_seconds
from flows.store import open_store

NOW = 1_800_000_000.0
ROOT = Path(__file__).parents[2]


class Clock:
    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


class Scripted:
    """A channel that does what it is told, in order; then it takes everything."""

    def __init__(self, name, *script):
        self.name, self.script, self.taken = name, list(script), []

    def send(self, outgoing):
        if self.script and (error := self.script.pop(0)) is not None:
            raise error
        self.taken.append(outgoing)
        return Receipt(self.name, reference=f"at {len(self.taken) - 1}")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(clock):
    return filled(open_store(":memory:", clock=clock))


def filled(store):
    store.register_run(Description("hero", "hero.jsonl", "jsonl", "step"))
    return store


def put(store, incident, context, *channels, count=1):
    """Put a message a channel into the outbox, `count` times."""
    text = to_json(compose("hero", incident, "opened", context))
    rows = [
        {
            "delivery_id": f"{channel}-{n}", "incident_id": incident["id"], "transition": "opened", "channel": channel,
            "message": text, "message_id": message_id(f"{channel}-{n}"),
        }
        for channel in channels
        for n in range(count)
    ]  # fmt: skip
    store.save_judgement("hero", upto_batch=0, run_state="{}", states={}, deliveries=rows)


def delivery(store, identity):
    rows = store.query("SELECT * FROM deliveries").rows.rows(named=True)
    return next(row for row in rows if row["delivery_id"] == identity)


def test_what_is_pending_is_sent_once(store, clock, incident, context):
    put(store, incident, context, "ops", count=3)
    ops = Scripted("ops")
    assert notify(store, {"ops": ops}, clock).delivered == 3
    assert notify(store, {"ops": ops}, clock).delivered == 0
    assert [o.message_id for o in ops.taken] == [f"<ops-{n}@watchkeeper.invalid>" for n in range(3)]
    assert delivery(store, "ops-0")["state"] == "delivered"


def test_a_failure_is_tried_again_after_a_longer_and_longer_pause_and_never_given_up(store, clock, incident, context):
    put(store, incident, context, "ops")
    ops = Scripted("ops", *[DeliveryFailed("busy")] * 12)
    waits = []
    while not ops.taken:
        done = notify(store, {"ops": ops}, clock)
        if done.postponed:
            started = clock.now
            while not store.pending_deliveries(clock.now):
                clock.now += 30.0
            waits.append(clock.now - started)
    assert waits == [30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0, 3600.0, 3600.0, 3600.0]
    assert delivery(store, "ops-0")["attempts"] == 13
    assert delivery(store, "ops-0")["repeats"] == 0


def test_a_pause_that_the_service_asks_for_is_kept(store, clock, incident, context):
    put(store, incident, context, "ops")
    notify(store, {"ops": Scripted("ops", TryLater("slow down", 500.0))}, clock)
    clock.now += 499.0
    assert store.pending_deliveries(clock.now) == []
    clock.now += 1.0
    assert len(store.pending_deliveries(clock.now)) == 1


def test_a_final_refusal_is_dead_with_its_reason(store, clock, incident, context):
    put(store, incident, context, "ops", count=2)
    ops = Scripted("ops", UndeliverableError("channel 'ops' says no for good"))
    done = notify(store, {"ops": ops}, clock)
    assert (done.dead, done.delivered) == (1, 1)
    assert delivery(store, "ops-0")["state"] == "dead"
    assert delivery(store, "ops-0")["error"] == "channel 'ops' says no for good"


def test_a_broken_channel_does_not_hold_up_the_others(store, clock, incident, context):
    put(store, incident, context, "bad", "good", count=3)
    bad, good = Scripted("bad", *[DeliveryFailed("down")] * 9), Scripted("good")
    done = notify(store, {"bad": bad, "good": good}, clock)
    assert (done.delivered, done.postponed) == (3, 1)
    assert len(bad.script) == 8  # asked once, then left alone for this pass
    assert delivery(store, "bad-1")["attempts"] == 0


def test_a_channel_with_a_bug_is_one_failure_whose_text_is_not_shown(store, clock, incident, context):
    put(store, incident, context, "odd", "good")
    done = notify(store, {"odd": Scripted("odd", RuntimeError("token=abc")), "good": Scripted("good")}, clock)
    assert (done.delivered, done.postponed) == (1, 1)
    assert done.errors == ["channel 'odd' broke with RuntimeError; run watchkeeper doctor"]


def test_a_channel_that_left_the_configuration_keeps_its_messages(store, clock, incident, context):
    put(store, incident, context, "gone")
    assert "is not in the configuration" in notify(store, {}, clock).errors[0]
    clock.now += 60.0
    assert notify(store, {"gone": Scripted("gone")}, clock).delivered == 1


def test_an_alert_goes_out_without_a_chart_that_cannot_be_drawn(store, clock, incident, context):
    put(store, incident, context, "ops")
    ops = Scripted("ops")

    def chart(row):
        raise ValueError("no samples to draw")

    done = notify(store, {"ops": ops}, clock, chart)
    assert done.delivered == 1 and "no samples" in done.errors[0]
    assert ops.taken[0].chart is None


def test_the_chart_travels_with_the_message(store, clock, incident, context, png):
    put(store, incident, context, "ops")
    ops = Scripted("ops")
    notify(store, {"ops": ops}, clock, lambda row: png if row["incident_id"] == incident["id"] else None)
    assert ops.taken[0].chart == png


def test_a_message_that_cannot_be_read_is_told_all_the_same(store, clock, incident):
    row = {
        "delivery_id": "x",
        "incident_id": "abc",
        "transition": "opened",
        "channel": "ops",
        "message": "{",
        "message_id": "",
    }
    store.save_judgement("hero", upto_batch=0, run_state="{}", states={}, deliveries=[row])
    ops = Scripted("ops")
    assert notify(store, {"ops": ops}, clock).delivered == 1
    assert "opened abc" in ops.taken[0].message.title


def test_no_chance_is_in_the_pauses():
    assert [pause_seconds(n) for n in (0, 1, 2, 3, 100)] == [30.0, 30.0, 60.0, 120.0, 3600.0]


def test_a_real_endpoint_that_fails_and_recovers_gets_the_alert_once(store, clock, endpoint, incident, context, png):
    put(store, incident, context, "ops")
    endpoint.answers = [(500, {}, b""), (503, {}, b"")]
    channels = {"ops": open_channel("ops", f"json://127.0.0.1:{endpoint.port}/")}
    for _ in range(4):
        notify(store, channels, clock, lambda row: png)
        clock.now += 3600.0
    assert [endpoint.json(n)["message_id"] for n in range(3)] == ["<ops-0@watchkeeper.invalid>"] * 3
    assert len(endpoint.received) == 3
    assert delivery(store, "ops-0")["state"] == "delivered"
    assert delivery(store, "ops-0")["repeats"] == 0


def test_a_real_endpoint_that_refuses_ends_it(store, clock, endpoint, incident, context):
    put(store, incident, context, "ops")
    endpoint.answers = [(401, {}, b"")]
    channels = {"ops": open_channel("ops", f"json://127.0.0.1:{endpoint.port}/")}
    notify(store, channels, clock)
    clock.now += 1e6
    notify(store, channels, clock)
    assert len(endpoint.received) == 1
    assert delivery(store, "ops-0")["state"] == "dead" and "401" in delivery(store, "ops-0")["error"]


KILLED = """
import os, signal, sys
from flows.channels.catalogue import open_channel
from flows.stages.notify import notify
from flows.store import open_store

path, port = sys.argv[1:]
store = open_store(path, clock=lambda: 1_800_000_000.0)

class Dying:
    pending_deliveries, mark_sending, mark_failed = store.pending_deliveries, store.mark_sending, store.mark_failed
    told = store.told

    def mark_delivered(self, *_):
        os.kill(os.getpid(), signal.SIGKILL)

url = f"mailto://127.0.0.1:{port}?from=watch@example.org&to=ana@example.com"
notify(Dying(), {"mail": open_channel("mail", url)}, lambda: 1_800_000_000.0)
"""


def test_killed_between_receipt_and_commit_is_one_counted_repeat_with_the_same_message_id(
    tmp_path, clock, mailbox, incident, context
):
    store = filled(open_store(tmp_path / "watch.duckdb", clock=clock))
    put(store, incident, context, "mail")
    script = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "watch.duckdb"), str(mailbox.port)]
    dead = subprocess.run(script, cwd=ROOT, capture_output=True, timeout=120, check=False)
    assert dead.returncode == -signal.SIGKILL, dead.stderr.decode()
    url = f"mailto://127.0.0.1:{mailbox.port}?from=watch@example.org&to=ana@example.com"
    done = notify(store, {"mail": open_channel("mail", url)}, clock)
    assert (done.delivered, done.repeats) == (1, 1)
    assert notify(store, {"mail": open_channel("mail", url)}, clock).delivered == 0
    ids = [line for mail in mailbox.mails for line in mail.decode().splitlines() if line.startswith("Message-ID")]
    assert ids == ["Message-ID: <mail-0@watchkeeper.invalid>"] * 2
    assert delivery(store, "mail-0")["repeats"] == 1


def test_a_pass_that_ends_while_the_chart_is_drawn_is_no_repeat(store, clock, incident, context, png):
    put(store, incident, context, "ops")
    ops = Scripted("ops")

    def never_done(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        notify(store, {"ops": ops}, clock, chart=never_done)
    done = notify(store, {"ops": ops}, clock, chart=lambda row: png)
    assert (done.delivered, done.repeats, len(ops.taken)) == (1, 0, 1)
    assert delivery(store, "ops-0")["repeats"] == 0


def test_a_channel_is_given_what_it_has_taken_of_the_incident_and_what_was_told_with_it(
    store, clock, incident, context
):
    told = [({**incident, "id": f"i{n}"}, "opened") for n in range(5)]
    many = compose_all("hero", told, context)[0]
    one = compose("hero", {**incident, "id": "i3", "resolved_step": 5900.0}, "resolved", context)
    two = compose("hero", {**incident, "id": "i1", "resolved_step": 5900.0}, "resolved", context)
    ops = Scripted("ops")
    for n, message in enumerate((many, one, two)):
        row = {
            "delivery_id": f"d{n}", "incident_id": message.thread, "transition": message.transition, "channel": "ops",
            "message": to_json(message), "message_id": message_id(f"d{n}"),
        }  # fmt: skip
        store.save_judgement("hero", upto_batch=0, run_state="{}", states={}, deliveries=[row])
        clock.now += 60.0
        notify(store, {"ops": ops}, clock)
    assert [[told.reference for told in each.before] for each in ops.taken] == [[], ["at 0"], ["at 0", "at 1"]]
    assert ops.taken[2].before[0].message.incidents == ("i0", "i1", "i2", "i3", "i4")
    assert [each.message.over for each in ops.taken] == [(), ("i3",), ("i1",)]
    assert (ops.taken[2].at, ops.taken[2].since, ops.taken[2].again) == (NOW + 180.0, NOW + 120.0, False)
    assert ops.taken[2].before[0].at == NOW + 60.0


def test_a_second_attempt_says_that_the_first_may_have_arrived(store, clock, incident, context):
    put(store, incident, context, "ops")
    ops = Scripted("ops", DeliveryFailed("no answer"))
    notify(store, {"ops": ops}, clock)
    clock.now += 30.0
    notify(store, {"ops": ops}, clock)
    assert [each.again for each in ops.taken] == [True]
