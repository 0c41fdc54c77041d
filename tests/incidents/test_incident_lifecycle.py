"""Ids that stay, transitions that are told once, rows that come back as they were."""

from dataclasses import replace
from datetime import datetime

from detectors.finding import Recovery
from flows.incidents import fold, may_change, superseded, transitions
from flows.incidents.causes import lasting
from flows.incidents.incident import (
    answers_from_json,
    answers_to_json,
    episode_of,
    finding_row,
    incident_from_rows,
    incident_row,
    to_json,
)
from flows.incidents.lifecycle import onset_of
from flows.playbook import load_playbook

PLAYBOOK = load_playbook()
NOON = datetime(2026, 1, 1, 12)


def folded(*answers, horizon_step=1e9, **more):
    return fold("run", 0, answers, [], PLAYBOOK, horizon_step=horizon_step, **more)


def over(finding, step):
    return Recovery(finding.detector, finding.metric, finding.episode, step)


def told(before, after):
    return [(t.what, t.step) for t in transitions(before, after)]


def test_an_incident_is_opened_escalated_resolved_and_reopened_once(found):
    first, norm = found(samples_out=1), found(role="grad_norm", onset=10_002)
    more = found("level", detected=10_150, severity=3, episode=first.episode, detector=first.detector)
    again = found(onset=10_300, samples_out=30, severity=3)
    stages = [
        folded(first),
        folded(first, norm),
        folded(first, norm, more),
        folded(first, norm, more, over(first, 10_200), over(norm, 10_010), horizon_step=10_263),
        folded(first, norm, more, over(first, 10_200), over(norm, 10_010), horizon_step=10_264),
        folded(first, norm, more, over(first, 10_200), over(norm, 10_010), again),
    ]
    assert [told(a, b) for a, b in zip([[], *stages], stages, strict=False)] == [
        [("opened", 10_000)],
        [("escalated", 10_002)],
        [("escalated", 10_150)],
        [("cooling", 10_200)],
        [("resolved", 10_264)],
        [("reopened", 10_300)],
    ]
    assert {incident.id for stage in stages for incident in stage} == {stages[0][0].id}
    assert all(told(stage, stage) == [] for stage in stages)


def test_what_recovers_is_open_until_it_has_stayed_so_for_64_samples(found):
    level = found("level", severity=3, episode="a")
    cools, warm, done = (folded(level, over(level, 10_200), horizon_step=step) for step in (10_263, 10_200, 10_264))
    assert [(i.status, i.state, i.resolved_step) for (i,) in (cools, warm, done)] == [
        ("open", "cooling", None),
        ("open", "cooling", None),
        ("resolved", "resolved", 10_200),
    ]
    assert done[0].quiet_step == 10_264


def test_what_comes_back_while_it_cools_is_the_same_fire_and_no_message(found):
    level = found("level", severity=3, episode="a")
    again = replace(level, onset_step=10_240.0, detected_step=10_250.0)
    cools = folded(level, over(level, 10_200), horizon_step=10_240)
    back = folded(level, over(level, 10_200), again, horizon_step=10_250)
    assert told(cools, back) == [("firing", 10_250)]
    assert (back[0].id, back[0].state) == (cools[0].id, "firing")


def test_a_spike_of_one_sample_does_not_cool_and_a_rare_metric_cools_for_two_samples(found):
    spike = found(samples_out=1)
    assert folded(spike, over(spike, 10_003), horizon_step=10_003)[0].status == "resolved"
    note = found("level", "param_norm", severity=0)
    assert folded(note, over(note, 10_010), horizon_step=10_010)[0].status == "resolved"
    rare = found("level", "eval_loss", severity=2, cadence=1000.0, samples=20.0)
    assert folded(rare, over(rare, 12_000), horizon_step=13_999)[0].state == "cooling"
    assert folded(rare, over(rare, 12_000), horizon_step=14_000)[0].state == "resolved"


def test_an_attempt_that_was_cut_off_has_nothing_to_wait_for(found):
    level = found("level", onset=9_000, severity=2)
    (cut,) = folded(level, over(level, 9_100), horizon_step=9_101, valid_until=9_101)
    assert cut.state == "resolved"


def test_a_store_that_called_a_cooling_incident_resolved_is_not_opened_again(found):
    level = found("level", severity=3)
    now = folded(level, over(level, 10_200), horizon_step=10_210)
    was = replace(now[0], status="resolved", resolved_step=10_200.0, cooling=False)
    assert told([was], now) == []


def test_an_incident_that_came_and_went_between_two_passes_is_told_both(found):
    spike = found()
    assert told([], folded(spike, over(spike, 10_003))) == [("opened", 10_000), ("resolved", 10_003)]


def test_an_id_stays_when_an_earlier_finding_arrives_late(found):
    loss, norm = found(onset=10_004), found(role="grad_norm", onset=10_000)
    before = folded(loss)
    after = folded(loss, norm, known=before)
    assert after[0].id == before[0].id != folded(loss, norm)[0].id
    assert after == [replace(item, id=before[0].id) for item in folded(loss, norm)]
    assert told(before, after) == [("escalated", 10_004)]


def test_two_known_incidents_that_a_late_finding_joins_become_one(found):
    left = found("level", "param_norm", onset=10_000, detected=10_080)
    right = found("level", "token_drop", onset=10_100, detected=10_180)
    middle = found("level", "update_norm", onset=10_050, detected=10_070)
    before = folded(left, right)
    after = folded(left, right, middle, known=before)
    assert (len(before), len(after)) == (2, 1)
    (closed,) = superseded(before, after)
    assert (after[0].id, closed.id) == (before[0].id, before[1].id)
    assert (closed.status, closed.resolved_step) == ("resolved", 10_180)
    assert closed.title.endswith(f"(now part of {after[0].id})")


def test_incidents_out_of_sight_are_not_superseded(found):
    before = folded(found())
    assert superseded(before, folded(found(onset=90_000))) == []


def test_missing_data_resolves_nothing(found):
    (incident,) = folded(found("divergence", severity=4), horizon_step=1e12)
    assert incident.status == "open"
    assert may_change(incident, 1e12)


def test_what_a_later_attempt_rolled_back_is_resolved(found):
    early, late = found("level", onset=9_000, severity=2), found("divergence", onset=12_000, severity=4)
    kept, gone = folded(early, late, valid_until=11_500)
    assert (kept.status, gone.status, gone.resolved_step) == ("open", "resolved", 12_000)
    assert gone.title.endswith("; rolled back")


def test_a_judge_may_forget_resolved_incidents_without_changing_the_others(found):
    old = found(samples_out=20, severity=2)
    new = found("level", onset=14_000, detected=14_100, severity=2)
    whole = folded(old, over(old, 10_200), new)
    assert not may_change(whole[0], 14_000)
    assert folded(new) == whole[1:]


def test_rows_come_back_as_they_were(found):
    loss = found(before=3.41, peak=24.8, parameters={"k": 6}, samples_out=3, severity=3)
    (incident,) = folded(loss, found(role="grad_norm"), roles={"loss", "grad_norm", "eval_loss"})
    rows = [finding_row(item, "run", 0, incident.id, NOON) for item in incident.findings]
    row = incident_row(incident, NOON, NOON)
    assert incident_from_rows("run", row, rows[::-1]) == incident
    assert rows[1]["parameters"] == '{"k": 6}'


def test_json_writes_non_finite_numbers_as_words():
    assert (
        to_json({"a": float("nan"), "b": [float("inf"), -float("inf")]})
        == '{"a": "NaN", "b": ["Infinity", "-Infinity"]}'
    )


def test_answers_survive_as_text(found):
    answers = [found(), over(found(), 10_003)]
    assert answers_from_json(answers_to_json(answers)) == answers


def test_how_long_a_finding_has_lasted_ends_with_its_recovery_or_with_what_was_read(found):
    level = found("level", onset=10_000.0, cadence=10.0)
    key = episode_of(level)
    assert [f.evidence["lasted"] for f in lasting([level], {key: 10_500.0}, 20_000.0)] == [50.0]
    assert [f.evidence["lasted"] for f in lasting([level], {key: None}, 20_000.0)] == [1_000.0]


def test_a_wider_spread_does_not_begin_an_incident_before_the_spike_that_widened_it(found):
    spike = found(onset=10_025, samples_out=30, severity=3)
    wide = found("variance", onset=10_000, detected=10_063, severity=2)
    assert onset_of([spike, wide]) == 10_025
    assert onset_of([wide]) == 10_000
    assert onset_of([wide, found(onset=10_070)]) == 10_000  # that was wide before
    assert onset_of([wide, spike, found("trend", onset=9_000, detected=10_010)]) == 9_000
    assert (
        onset_of([wide, spike, found("trend", onset=9_000, detected=10_100)]) == 10_025
    )  # told when it was known already
