"""How loud: what one sample can tell, what a joint move adds, what a known event takes away."""

import pytest

from detectors.finding import Recovery
from flows.incidents import fold, transitions
from flows.playbook import load_playbook
from flows.records import Event

PLAYBOOK = load_playbook()


def folded(*answers, events=(), horizon_step=1e9, **more):
    return fold("run", 0, answers, list(events), PLAYBOOK, horizon_step=horizon_step, **more)


def severity(*answers, **more):
    (incident,) = folded(*answers, **more)
    return incident.severity


def test_a_lone_one_sample_loss_spike_is_s1_even_if_a_detector_says_s2(found):
    assert severity(found(severity=2)) == 1


def test_two_of_three_samples_are_s2(found):
    assert severity(found(samples_out=2, episode="1")) == 2
    assert severity(found(onset=10_000), found(onset=10_002)) == 2


def test_a_joint_spike_of_loss_and_gradient_norm_is_s2_from_the_second_on(found):
    (incident,) = folded(found(role="grad_norm", onset=9_997), found(onset=10_000))
    assert incident.severity_history == ((9_997, 1), (10_000, 2))


def test_gradient_norm_spikes_alone_are_never_more_than_s1(found):
    assert severity(found(role="grad_norm", severity=3, samples_out=9)) == 1


@pytest.mark.parametrize("said", [3, 4])
def test_what_detectors_call_catastrophic_stays_so(found, said):
    assert severity(found(severity=said, samples_out=60)) == said
    assert severity(found("divergence", severity=said)) == said


def test_a_planned_batch_change_annotates_what_it_explains(found):
    step = found("level", "grad_norm", severity=2, detected=10_100, direction="down")
    (incident,) = folded(step, events=[Event("batch_size", 10_000)])
    assert (incident.severity, incident.pattern) == (0, "batch_size_change")


def test_the_same_change_far_from_the_event_is_not_explained(found):
    step = found("level", "grad_norm", severity=2, detected=10_100)
    assert severity(step, events=[Event("batch_size", 9_000)]) == 2


def test_a_boundary_between_the_guessed_beginning_of_a_spread_and_its_detection_explains_it(found):
    wider = found("variance", "loss", onset=10_000, severity=2, detected=10_340)
    assert severity(wider, events=[Event("data_mix", 10_208)]) == 0
    assert severity(wider, events=[Event("data_mix", 10_341)]) == 2
    assert (
        severity(found("level", "loss", onset=10_000, severity=2, detected=10_340), events=[Event("data_mix", 10_208)])
        == 2
    )


def test_one_unexplained_finding_keeps_the_whole_incident_loud(found):
    step = found("level", "grad_norm", severity=1, detected=10_100)
    loss = found("level", "loss", severity=2, detected=10_120)
    assert severity(step, loss, events=[Event("batch_size", 10_000)]) == 2


@pytest.mark.parametrize("kind", ["nonfinite", "divergence"])
def test_non_finite_values_and_divergences_are_never_explained_away(found, kind):
    events = [Event(each, 10_000) for each in ("data_mix", "batch_size", "sequence_length", "restart", "lr_schedule")]
    assert severity(found(kind, severity=4), events=events) == 4


def test_a_learning_rate_of_zero_is_never_explained_away(found):
    zero = found("plateau", "learning_rate", severity=2, before=1e-3, after=0.0, direction="none")
    (incident,) = folded(zero, events=[Event("lr_schedule", 10_000)])
    assert (incident.severity, incident.pattern) == (2, "lr_zero")
    assert incident.title == "learning_rate is 0 since step 10,000: nothing is learned"


def test_an_event_that_is_recorded_later_lowers_the_incident_from_then_on(found):
    step = found("level", "token_drop", severity=2, detected=10_100)
    event = Event("capacity", 10_000, recorded_at=500.0)
    early = folded(step, events=[event], horizon_step=10_200, step_of=lambda seconds: 10_400)
    late = folded(step, events=[event], horizon_step=10_500, step_of=lambda seconds: 10_400, known=early)
    assert early[0].severity_history == ((10_100, 2),)
    assert late[0].severity_history == ((10_100, 2), (10_400, 0))
    assert [(t.what, t.step) for t in transitions(early, late)] == [("lowered", 10_400)]


def test_a_silent_run_is_a_hang_and_a_gap_that_ended_a_pause(found):
    silent = found("stall", severity=4, direction="none", magnitude=3600.0, unit="seconds", silent=True)
    gap = found(
        "stall", severity=2, direction="none", magnitude=1380.0, unit="seconds", detected=10_001, seconds=1380.0
    )
    (hang,) = folded(silent)
    (pause,) = folded(gap, Recovery(gap.detector, gap.metric, gap.episode, 10_001))
    assert (hang.pattern, hang.severity) == ("hang", 4)
    assert (pause.pattern, pause.severity) == ("step_pause", 2)
    assert hang.title == "no sample of train/loss for 60 min after step 10,000"
    assert pause.title == "no sample of train/loss for 23 min after step 10,000, and came again at step 10,001"


@pytest.mark.parametrize(("source", "loud"), [("user", 0), ("detected", 3)])
def test_only_a_declared_event_explains_a_loss_that_settled_elsewhere(found, source, loud):
    step = found("level", "loss", severity=3, detected=10_150)
    assert severity(step, events=[Event("data_mix", 10_000, source=source)]) == loud


@pytest.mark.parametrize(("source", "loud"), [("user", 0), ("detected", 2)])
def test_a_restart_that_nobody_declared_does_not_explain_its_own_standstill(found, source, loud):
    gap = found("stall", severity=2, direction="none", unit="seconds", magnitude=1500.0, seconds=1500.0)
    assert severity(gap, events=[Event("restart", 10_000, source=source)]) == loud


def test_nobody_declares_a_standstill_of_hours(found):
    gap = found("stall", severity=2, direction="none", unit="seconds", magnitude=9000.0, seconds=9000.0)
    (incident,) = folded(gap, events=[Event("deploy", 10_000)])
    assert (incident.severity, incident.pattern) == (2, "hang_and_restart")


def test_an_annotation_beside_explained_findings_does_not_keep_them_loud(found):
    step = found("level", "eval_loss", severity=2, detected=10_100)
    pause = found("spike", "memory", onset=10_000, severity=0)
    assert severity(pause, step, events=[Event("lr_schedule", 10_000)]) == 0
