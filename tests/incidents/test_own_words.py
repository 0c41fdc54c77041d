"""What a user's own bounds and checks say, as incidents."""

from detectors.finding import Recovery
from flows.incidents import fold
from flows.playbook import load_playbook
from flows.records import Event


def own(found, detector="bounds", word="above:2.0:1", onset=10_000.0, **given):
    evidence = {"bound": word, "side": "above", "limit": 2.0, "after": 2.51234567, "why": ""}
    if detector == "checks":
        evidence = {"why": "", "check": word}
    return found("level", detector=detector, episode=f"{word}@{onset:g}", onset=onset, **{**evidence, **given})


def folded(*answers, events=()):
    return fold("run", 0, answers, list(events), load_playbook(), horizon_step=1e9)


def test_no_event_explains_it_away(found):
    said = own(found, severity=3)
    events = [Event(kind, 10_000) for kind in ("batch_size", "data_mix", "lr_schedule", "restart", "deploy")]
    (incident,) = folded(said, events=events)
    assert incident.severity_history == ((10_000.0, 3),)


def test_a_single_spike_of_a_check_is_not_lowered_as_a_detectors_would_be(found):
    spike = found("spike", detector="checks", severity=4, episode="mine@10000")
    (incident,) = folded(spike)
    assert incident.severity == 4


def test_the_sentence_says_limit_value_step_and_reason(found):
    (plain,) = folded(own(found))
    (reasoned,) = folded(own(found, why="the budget says so"))
    assert plain.title == "train/loss is above 2 (2.51235) since step 10,000"
    assert reasoned.title == "train/loss is above 2 (2.51235) since step 10,000: the budget says so"


def test_a_check_may_bring_its_own_sentence(found):
    (bare,) = folded(own(found, "checks", "gap"))
    (titled,) = folded(own(found, "checks", "gap", title="eval and train drift apart", why="see the runbook"))
    assert bare.title == "check gap found train/loss since step 10,000"
    assert titled.title == "eval and train drift apart: see the runbook"


def test_two_bounds_are_two_incidents_and_two_metrics_of_one_bound_are_one(found):
    said = [own(found), own(found, word="above:4.0:1", severity=3), own(found, role="grad_norm", onset=10_004.0)]
    incidents = folded(*said)
    assert sorted(len(each.findings) for each in incidents) == [1, 2]


def test_it_ends_when_all_its_metrics_are_back(found):
    said = own(found)
    (incident,) = folded(said, Recovery("bounds", said.metric, said.episode, 10_040.0))
    assert (incident.status, incident.resolved_step) == ("resolved", 10_040.0)
