"""What may leave the outbox when people have spoken since it was written."""

from dataclasses import replace

import pytest

from detectors.finding import Recovery
from flows.incidents import fold
from flows.incidents.door import Parcel, Verdict, verdict
from flows.incidents.people import known
from flows.playbook import load_playbook
from flows.records import Operation

PLAYBOOK = load_playbook()
WRITTEN, NOW, STEP = 1000.0, 2000.0, 10_100.0
HELD = Verdict("hold", "muted by bo")


@pytest.fixture
def loud(found):
    return fold("hero", 1, [found("divergence", severity=3)], [], PLAYBOOK, horizon_step=1e9)[0]


@pytest.fixture
def over(found, loud):
    back = Recovery("divergence", "train/loss", "10000", 10_020.0)
    return fold("hero", 1, [*loud.findings, back], [], PLAYBOOK, horizon_step=1e9)[0]


def parcel(*incidents, transition="opened", **more):
    return Parcel("ops", transition, 3, tuple(each.id for each in incidents), WRITTEN, **more)


def did(kind, incident, at=1500.0, **more):
    return Operation(
        "hero", kind, "ana", at, more.pop("why", ""), incident.id, step=STEP, severity=more.pop("severity", 3),
        findings=known(incident), **more,
    )  # fmt: skip


def mute(until=5000.0):
    return Operation("*", "mute", "bo", 1500.0, metric="train/*", until_time=until)


def judged(waiting, *incidents, log=(), **more):
    return verdict(waiting, {each.id: each for each in incidents}, log, STEP, NOW, **more)


def test_what_nobody_spoke_of_leaves_as_it_was_written(loud):
    assert judged(parcel(loud), loud, log=[did("opened", loud, WRITTEN)]) == Verdict("send")


def test_a_mute_that_came_later_holds_it_and_lets_it_go_when_it_ends(loud):
    assert judged(parcel(loud), loud, log=[mute()]) == HELD
    again = judged(parcel(loud, held_by="muted by bo"), loud, log=[mute(NOW)])
    assert again == Verdict("send", marks=("held back: muted by bo",))


def test_a_snooze_holds_it_unless_it_has_grown_worse_since(loud):
    snooze = did("snooze", loud, until_time=3000.0)
    assert judged(parcel(loud), loud, log=[snooze]) == Verdict("hold", "snoozed by ana")
    assert judged(parcel(loud), loud, log=[replace(snooze, severity=2)]).what == "send"


def test_of_several_incidents_all_must_be_silenced(found, loud):
    (other,) = fold("hero", 1, [found("nonfinite", "mfu", severity=3)], [], PLAYBOOK, horizon_step=1e9)
    assert judged(parcel(loud, other), loud, other, log=[mute()]).what == "send"
    both = [mute(), replace(mute(), metric="mfu")]
    assert judged(parcel(loud, other), loud, other, log=both) == HELD


def test_who_has_it_in_hand_is_marked_and_only_if_the_message_cannot_know(loud):
    assert judged(parcel(loud), loud, log=[did("ack", loud)]) == Verdict("send", marks=("ana has it",))
    assert judged(parcel(loud), loud, log=[did("ack", loud, WRITTEN)]) == Verdict("send")


def test_a_reminder_of_what_is_acknowledged_or_over_is_withdrawn(loud, over):
    reminder = parcel(loud, transition="still")
    assert judged(reminder, loud, log=[did("ack", loud)], heard={loud.id}).what == "withdraw"
    assert judged(reminder, loud, log=[did("ack", loud)]) == Verdict(
        "send", marks=("ana has it",)
    )  # news to this channel
    assert judged(reminder, over).what == "withdraw"
    assert judged(reminder, loud).what == "send"


def test_a_page_that_was_closed_meanwhile_is_sent_and_says_so(loud, over):
    closed = replace(over, resolved_step=STEP)
    assert judged(parcel(over), closed, log=[did("resolve", loud)]).marks == ("closed by ana",)
    assert judged(parcel(over), over).marks == ("over since step 10,020",)
    assert judged(parcel(over, transition="resolved"), closed, log=[did("resolve", loud)]).marks == ()
    assert judged(parcel(loud, transition="resolved"), loud, log=[did("ack", loud)]).marks == ()


def test_what_came_and_went_in_a_silence_is_withdrawn_and_what_quiet_hours_held_is_not(over):
    ended = [did("opened", over, WRITTEN), did("resolved", over)]
    assert judged(parcel(over, held_by="muted by bo"), over, log=ended) == Verdict(
        "withdraw", "it came and went while muted by bo"
    )
    assert judged(parcel(over, held_by="quiet hours until 07:00"), over, log=ended).what == "send"
    untold = judged(parcel(over, held_by="muted by bo"), over, log=ended[:1])  # nobody was told that it is over
    assert untold == Verdict("send", marks=("over since step 10,020", "held back: muted by bo"))
    assert judged(parcel(over, held_by="quiet hours until 07:00"), over).what == "send"
    assert judged(parcel(over, held_by="muted by bo"), over, log=[mute()]) == HELD  # the silence still holds


def test_an_end_of_which_the_channel_never_heard_the_beginning_is_withdrawn(over):
    end = parcel(over, transition="resolved")
    assert judged(end, over, dropped={over.id}) == Verdict("withdraw", "its beginning was withdrawn")
    assert judged(end, over, dropped={"another"}).what == "send"


def test_of_what_was_held_only_the_last_word_leaves(loud):
    assert judged(parcel(loud, held_by="quiet hours"), loud, newer=True).what == "withdraw"
    assert judged(parcel(loud, transition="still"), loud, newer=True).what == "withdraw"
    assert judged(parcel(loud), loud, newer=True).what == "send"  # it waits for a channel that is down: all is told


def test_a_channel_that_rests_holds_it_a_digest_too(loud):
    assert judged(parcel(loud), loud, barred="quiet hours until 07:00") == Verdict("hold", "quiet hours until 07:00")
    assert judged(parcel(transition="digest"), barred="quiet hours") == Verdict("hold", "quiet hours")
    assert judged(parcel(transition="digest")) == Verdict("send")


def test_what_the_store_has_lost_is_told_all_the_same(loud):
    assert judged(parcel(loud)) == Verdict("send")
