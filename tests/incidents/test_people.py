"""What people say, folded: who is told what, and when."""

from dataclasses import replace

import pytest

from detectors.finding import Recovery
from flows.incidents import fold, transitions
from flows.incidents.people import by_hand, known, mutes_in_force, owed, silence, standing, unanswered, unsettled, words
from flows.playbook import load_playbook
from flows.records import Operation

PLAYBOOK = load_playbook()
NOW = 1000.0


def folded(*answers):
    return fold("hero", 1, answers, [], PLAYBOOK, horizon_step=1e9)


def did(kind, incident, **more):
    fields = {"step": 10_000.0, "severity": incident.severity, "findings": known(incident), "incident_id": incident.id}
    return Operation("hero", kind, "ana", more.pop("at", NOW), **{**fields, **more})


def mute(**more):
    return Operation(more.pop("run", "*"), more.pop("kind", "mute"), "bo", NOW, **{"until_time": 5000.0, **more})


@pytest.fixture
def loud(found):
    return folded(found("divergence", severity=3))[0]


def lines(before, after, log, now=NOW):
    return [(line.kind, line.silent, line.why) for _, line in words(transitions(before, after), log, now)]


def test_what_nobody_silenced_is_told(loud):
    assert lines([], [loud], []) == [("opened", False, "")]


def test_a_muted_metric_is_kept_from_people_only_where_nothing_else_moved(found):
    loss, norm = found("divergence", severity=3), found("divergence", "grad_norm", onset=10_001, severity=3)
    alone, both = folded(loss), folded(loss, norm)
    assert lines([], alone, [mute(metric="train/*")]) == [("opened", True, "muted by bo")]
    assert lines([], both, [mute(metric="train/*")]) == [("opened", False, "")]
    assert lines([], both, [mute(metric="train/*"), mute(metric="grad/*")]) == [("opened", True, "muted by bo")]
    assert lines([], alone, [mute(metric="train/*", run="x*")]) == [("opened", False, "")]


def test_an_annotation_beside_it_does_not_lift_a_mute(found):
    loss, small = found("divergence", severity=3), found("spike", "grad_norm", onset=10_001, severity=0)
    (incident,) = folded(loss, small)
    assert silence(incident, [mute(metric="train/*")], 10_000, NOW).who == "bo"


def test_a_muted_cause_is_silent_and_another_cause_is_not(loud):
    assert silence(loud, [mute(pattern=loud.pattern)], 10_000, NOW) is not None
    assert silence(loud, [mute(pattern="another")], 10_000, NOW) is None


def test_a_mute_ends_by_the_first_of_its_ends_or_by_hand(loud):
    held = mute(metric="*", until_step=10_500.0)
    ended = mute(metric="*", kind="unmute")
    again = mute(metric="*")

    def count(log, step, now):
        return len(mutes_in_force(log, "hero", step, now))

    assert [count([held], *at) for at in ((10_499, 4999.0), (10_500, 0.0), (0, 5000.0))] == [1, 0, 0]
    assert [count([held, ended], 0, 0.0), count([held, ended, again], 0, 0.0)] == [0, 1]


def test_a_snoozed_incident_is_silent_unless_it_grows_worse_than_it_was(found):
    first = found("level", severity=2, detected=10_010)
    worse = found("divergence", severity=3, onset=10_020)
    before, after = folded(first), folded(first, worse)
    snoozed = did("snooze", before[0], until_time=2000.0)
    assert lines(before, after, [snoozed]) == [("escalated", False, "")]
    louder = replace(snoozed, severity=3)
    assert lines(before, after, [louder]) == [("escalated", True, "snoozed by ana")]
    assert lines(before, after, [louder], now=2000.0) == [("escalated", False, "")]


def test_a_snooze_to_a_step_counts_the_step_of_the_change_not_of_the_pass(found):
    first, over = found("divergence", severity=3), Recovery("divergence", "train/loss", "10000", 10_400.0)
    before, after = folded(first), folded(first, over)
    for until, silent in ((10_464.0, False), (10_465.0, True)):  # it cools for 64 samples
        snoozed = did("snooze", before[0], until_step=until)
        assert [(kind, quiet) for kind, quiet, _ in lines(before, after, [snoozed])] == [("resolved", silent)]


def test_what_still_goes_on_when_a_silence_ends_is_told_once(loud):
    opened = replace(did("opened", loud), silent=True)
    log = [mute(metric="*"), opened]
    assert (owed(loud, log, 10_100, 4999.0), owed(loud, log, 10_100, 5000.0)) == ("", "opened")
    told = [*log, did("opened", loud, at=5000.0)]
    assert owed(loud, told, 10_100, 6000.0) == ""
    assert (unsettled(log), unsettled(told)) == ({loud.id}, set())


def test_what_came_and_went_in_silence_is_not_told(found, loud):
    over = folded(*loud.findings, Recovery("divergence", "train/loss", "10000", 10_400.0))[0]
    log = [replace(did(kind, loud), silent=True) for kind in ("opened", "resolved")]
    assert owed(over, log, 10_500, NOW) == ""
    # but where the beginning was told, so is the end, once the silence is over
    log[0] = did("opened", loud)
    assert owed(over, log, 10_500, NOW) == "resolved"


def test_a_snooze_that_is_over_reminds_once_and_not_who_has_it_in_hand(loud):
    log = [did("opened", loud), did("snooze", loud, until_time=2000.0)]
    assert (owed(loud, log, 10_100, 1999.0), owed(loud, log, 10_100, 2000.0)) == ("", "still")
    assert owed(loud, [*log, did("ack", loud)], 10_100, 2000.0) == ""
    assert owed(loud, [*log, did("still", loud, at=2000.0)], 10_100, 9000.0) == ""


def test_an_acknowledgement_holds_until_it_grows_worse_or_comes_back(loud):
    log = [did("opened", loud), did("ack", loud)]
    assert standing(log).acknowledged.who == "ana"
    assert standing([*log, did("escalated", loud, severity=3)]).acknowledged is not None
    assert standing([*log, did("escalated", loud, severity=4)]).acknowledged is None
    assert standing([*log, did("resolved", loud), did("reopened", loud)]).acknowledged is None


def test_resolved_by_hand_is_closed_until_something_new_is_found(found, loud):
    log = [did("opened", loud), did("resolve", loud, step=10_200.0)]
    closed = by_hand(loud, log)
    assert (closed.status, closed.resolved_step, closed.id) == ("resolved", 10_200.0, loud.id)
    assert owed(closed, log, 10_200, NOW) == "resolved"
    (more,) = folded(*loud.findings, found("divergence", "grad_norm", onset=10_002, severity=3))
    assert by_hand(more, log) == more
    assert [(t.what, t.step) for t in transitions([closed], [more])] == [("reopened", 10_002)]


def test_feedback_is_kept_and_silences_nothing(loud):
    log = [did("opened", loud), did("known", loud), did("wrong", loud)]
    assert standing(log).feedback == "wrong"
    assert silence(loud, log, 10_000, NOW) is None


def test_an_incident_older_than_the_log_is_not_told_again_to_those_who_act_on_it(loud):
    assert owed(loud, [did("note", loud)], 10_100, NOW) == ""
    assert owed(loud, [did("note", loud, severity=2)], 10_100, NOW) == "escalated"
    assert unsettled([did("opened", loud)]) == set()


def test_a_page_that_nobody_answers_is_due_again_to_the_second(found, loud):
    log = [did("opened", loud)]
    assert (unanswered(log, NOW + 599.0, 600.0), unanswered(log, NOW + 600.0, 600.0)) == (set(), {loud.id})
    assert unanswered([*log, did("ack", loud)], NOW + 600.0, 600.0) == set()
    assert unanswered([*log, did("cooling", loud, silent=True)], NOW + 600.0, 600.0) == set()
    assert unanswered([did("opened", loud, severity=2)], NOW + 600.0, 600.0) == set()
    assert unanswered([did("opened", loud, silent=True)], NOW + 600.0, 600.0) == set()
    assert unanswered([*log, did("still", loud, at=NOW + 600.0)], NOW + 1199.0, 600.0) == set()


def test_a_reminder_is_owed_to_who_asked_for_it_until_somebody_has_it(loud):
    log = [did("opened", loud)]
    assert (owed(loud, log, 10_100, NOW), owed(loud, log, 10_100, NOW, remind=True)) == ("", "still")
    assert owed(loud, [*log, did("ack", loud)], 10_100, NOW, remind=True) == ""
    assert owed(loud, [*log, mute(metric="*")], 10_100, NOW, remind=True) == ""


def test_an_incident_cools_fires_again_and_is_over_by_its_log(loud):
    words_ = ("opened", "cooling", "firing", "cooling", "resolved", "reopened")
    log = [did(word, loud, silent=word in ("cooling", "firing")) for word in words_]
    states = [standing(log[: k + 1]).state for k in range(len(log))]
    assert states == ["firing", "cooling", "firing", "cooling", "resolved", "firing"]
    assert standing(log[:4]).told == "firing"
