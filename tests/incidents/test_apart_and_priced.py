"""What tells hypotheses apart, and what a way back or a wait means in this incident."""

import tomllib

import pytest

from detectors.apart import tell_apart
from detectors.cause import rank
from detectors.pattern import Suggestion, pattern_of
from flows.incidents import fold
from flows.incidents.filling import priced
from flows.playbook import load_playbook

PLAYBOOK = load_playbook()


def entry(name, **keys):
    check = {"ask": f"Is it {name}?", "expect": "no", "sql": ""}
    return pattern_of(
        name, {"title": name, "severity": 2, "suggestions": [], "lookalikes": {"z": "never"}, "checks": [check], **keys}
    )


def apart(findings, *patterns, roles=()):
    table = {pattern.name: pattern for pattern in patterns}
    return [item.apart for item in tell_apart(rank(findings, roles, (), patterns), table)]


LOSS = {"roles": ["loss"], "required": True}


def test_the_word_of_an_entry_on_its_lookalike_comes_first(found):
    one = entry("a", signs=[LOSS], lookalikes={"b": "the mixture changed"}, flat=["eval_loss"])
    first, second = apart([found()], one, entry("b", signs=[LOSS]))
    assert (first.other, first.by, first.role) == ("b", "b if the mixture changed", "")
    assert (second.other, second.by) == ("a", "b if the mixture changed")


def test_else_the_quantity_that_is_not_logged_and_would_part_them_most(found):
    one = entry("a", signs=[LOSS], flat=["eval_loss", "grad_norm"])
    two = entry("b", signs=[LOSS, {"roles": ["eval_loss"], "direction": "up"}], flat=["grad_norm"])
    first, second = apart([found()], one, two)
    assert (first.by, first.role) == ("log eval_loss: up speaks for b", "eval_loss")
    assert second.by == first.by
    assert apart([found()], one, two, roles={"eval_loss"})[0].by == "Is it a? a: no"


def test_a_name_can_be_what_is_to_be_logged(found):
    two = entry("b", signs=[LOSS, {"metrics": ["*loss_scale*"], "direction": "down"}])
    assert apart([found()], entry("a", signs=[LOSS]), two)[0].by == "log loss_scale: down speaks for b"


def test_a_lone_hypothesis_and_the_unknown_one_need_nothing(found):
    unknown = entry("unattributed_change", signs=[{"required": True, "weight": 0.25}], lookalikes={})
    assert apart([found()], entry("a", signs=[LOSS]), unknown) == [None, None]


def test_every_incident_of_two_known_patterns_tells_them_apart_in_one_line(found):
    answers = [found(severity=2), found("level", severity=2)]
    (incident,) = fold("run", 0, answers, [], PLAYBOOK, horizon_step=1e9, roles={"loss"}, names={"train/loss"})
    assert all(item.apart.by and "\n" not in item.apart.by for item in incident.hypotheses if item.id)


BACK = Suggestion("go back", "why", "skipped batches", True, goes_back=True)
WAIT = Suggestion("Wait.", "why", "none", True, track=1.5)


def test_a_way_back_leads_to_before_the_first_precursor(found):
    findings = [found(role="update_norm", onset=9_990, severity=0), found(severity=3), found("level", detected=10_150)]
    (one,) = priced([BACK], findings, 3)
    assert (one.back_to_step, one.cost_steps) == (9_890, 260)
    assert one.cost == "260 steps, from 10,150 back to 9,890; skipped batches"
    assert one.again == (10_025, 10_150, 11_000)
    assert priced([BACK], [found(onset=40)], 3)[0].back_to_step == 0


def test_steps_to_look_again_follow_the_cadence(found):
    assert priced([WAIT], [found(onset=1_000, cadence=10.0)], 1)[0].again == (1_250, 2_500, 11_000)


@pytest.mark.parametrize(
    ("direction", "after", "side", "limit"),
    [
        ("up", 0.59, "above", 0.885),
        ("down", 3.0, "below", 2.0),
        ("down", -2.0, "below", -3.0),
        ("up", -3.0, "above", -2.0),
    ],
)
def test_a_wait_carries_a_bound_that_can_be_pasted(found, direction, after, side, limit):
    rise = found("trend", "grad_norm", direction=direction, after=after, detected=12_000, metric='odd "[name]"')
    (one,) = priced([WAIT], [rise], 2)
    (bound,) = tomllib.loads(one.bound)["bound"]
    assert bound == {"metric": 'odd "[[]name]"', side: limit, "samples": 25, "severity": "S3"}
    assert one.do.startswith(f"Wait. Look again when it is {side} ")


def test_without_a_number_to_go_by_there_is_no_bound(found):
    assert priced([WAIT], [found("rewind", "other", direction="none")], 0)[0].bound == ""
    assert priced([BACK], [found(after=3.0)], 2)[0].bound == ""
