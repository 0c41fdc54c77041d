"""Findings of one origin become one incident; those of different origins do not."""

from detectors.finding import Recovery
from flows.incidents import fold


def folded(*answers, horizon_step=1e9, **more):
    return fold("run", 0, answers, [], [], horizon_step=horizon_step, **more)


def sizes(*answers):
    return [len(incident.findings) for incident in folded(*answers)]


def over(finding, step):
    return Recovery(finding.detector, finding.metric, finding.episode, step)


def test_loss_and_gradient_spikes_three_steps_apart_are_one(found):
    assert sizes(found(onset=10_003), found(role="grad_norm", onset=10_000)) == [2]


def test_a_trend_and_a_spike_at_the_same_step_are_two(found):
    assert sizes(found(), found("trend", "grad_norm", detected=14_000)) == [1, 1]


def test_a_trend_and_a_level_of_the_same_metric_are_one_ramp(found):
    level = found("level", "token_drop", detected=10_100)
    assert sizes(level, found("trend", "token_drop", onset=9_000, detected=14_000)) == [2]


def test_two_trends_may_differ_by_a_quarter_of_their_detection_lag(found):
    first = found("trend", "grad_norm", onset=10_000, detected=14_000)
    near = found("trend", "param_norm", onset=10_900, detected=14_500)
    far = found("trend", "param_norm", onset=12_000, detected=16_000)
    assert sizes(first, near) == [2]
    assert sizes(first, far) == [1, 1]


def test_a_lone_spike_does_not_swallow_the_next_one_of_a_coarse_log(found):
    lone = found(onset=13_300, cadence=100.0, samples=133)
    large = found(onset=13_700, detected=13_900, cadence=100.0, samples=137, samples_out=3, severity=3)
    assert [i.onset_step for i in folded(lone, over(lone, 13_500), large)] == [13_300, 13_700]


def test_a_short_fine_tune_logged_every_five_steps_groups_within_eight_samples(found):
    coarse = {"cadence": 5.0, "samples": 60}
    loss = found("level", onset=200, detected=300, **coarse)
    assert sizes(loss, found("level", "grad_norm", onset=235, detected=310, **coarse)) == [2]
    assert sizes(loss, found("level", "grad_norm", onset=245, detected=310, **coarse)) == [1, 1]


def test_a_sparse_evaluation_joins_within_two_of_its_samples(found):
    loss = found("level", onset=50_000, detected=50_100)
    sparse = {"cadence": 1_000.0, "samples": 52}
    assert sizes(loss, found("level", "eval_loss", onset=52_000, detected=54_000, **sparse)) == [2]
    assert sizes(loss, found("level", "eval_loss", onset=53_000, detected=54_000, **sparse)) == [1, 1]


def test_findings_do_not_chain_along_the_run(found):
    shifts = [
        found("level", "other", onset=10_000 + 40 * k, detected=10_100 + 40 * k, metric=f"m{k}") for k in range(6)
    ]
    assert sizes(*shifts) == [2, 2, 2]


def test_two_thousand_metrics_at_one_step_are_one_incident(found):
    (incident,) = folded(*(found("level", "other", metric=f"m{k}", detected=10_050) for k in range(2_000)))
    assert len(incident.findings) == 2_000
    assert "1998 other metrics" in incident.title


def test_an_episode_stays_in_its_incident_for_life(found):
    first = found(episode="7")
    later = found("level", detected=10_150, episode="7", detector="spikes", severity=3)
    (incident,) = folded(first, later)
    assert incident.severity_history == ((10_000, 1), (10_150, 3))


def test_recovery_of_all_episodes_resolves_at_the_last_one(found):
    loss, norm = found(samples_out=3), found(role="grad_norm")
    assert folded(loss, norm, over(loss, 10_100))[0].status == "open"
    (incident,) = folded(loss, norm, over(loss, 10_100), over(norm, 10_030))
    assert (incident.status, incident.resolved_step) == ("resolved", 10_100)


def test_a_sustained_excursion_that_fires_again_reopens_the_incident(found):
    first = found(samples_out=40, severity=2)
    again = found(onset=10_250, samples_out=3, severity=2)
    (incident,) = folded(first, over(first, 10_100), again)
    assert (incident.onset_step, incident.status) == (10_000, "open")
    late = found(onset=10_800, samples_out=3, severity=2)
    assert sizes(first, over(first, 10_100), late) == [1, 1]


def test_nothing_joins_an_incident_that_was_resolved_long_ago(found):
    ramp = found("trend", "grad_norm", onset=10_000, detected=12_000)
    late = found("trend", "grad_norm", onset=10_050, detected=20_000)
    assert sizes(ramp, over(ramp, 13_000), late) == [1, 1]


def test_lesser_findings_in_the_wake_of_a_divergence_belong_to_it(found):
    blown = found("divergence", severity=3, detected=10_009)
    wake = found("level", "param_norm", onset=10_200, detected=10_300, severity=2)
    slower = found("level", "throughput", onset=10_200, detected=10_300, severity=2, direction="down")
    assert sizes(blown, wake) == [2]
    assert sizes(blown, slower) == [1, 1]


def test_findings_without_cadence_and_samples_are_still_grouped(found):
    bare = {"cadence": None, "samples": float("nan")}
    assert sizes(found(**bare), found(role="grad_norm", onset=10_002, **bare)) == [2]


def test_the_same_answer_twice_is_one_answer(found):
    assert sizes(found(), found()) == [1]


def test_a_slow_recovery_of_one_detector_does_not_swallow_the_next_excursion(found):
    coarse = {"cadence": 100.0, "samples": 143, "severity": 3}
    blown = found("divergence", onset=13_800, detected=13_900, **coarse)
    level = found("level", onset=13_800, detected=14_300, **coarse)
    next_one = found("divergence", onset=23_900, detected=24_000, **coarse)
    answers = [blown, level, over(blown, 16_800), over(level, 23_500), next_one]
    assert [i.onset_step for i in folded(*answers)] == [13_800, 23_900]


def test_a_loss_that_scatters_more_and_a_level_that_moves_at_once_are_one(found):
    level = found("level", "token_drop", detected=10_010)
    assert sizes(level, found("variance", onset=10_020, detected=10_400)) == [2]
    assert sizes(level, found("variance", onset=10_600, detected=11_000)) == [1, 1]


def test_that_a_run_went_back_belongs_to_the_standstill_before_it(found):
    still = found("stall", onset=49_999, detected=50_000, direction="none", severity=2)
    back = found("rewind", "other", metric="", onset=50_000, detected=58_049, direction="none", severity=0)
    assert sizes(still, over(still, 50_000), back) == [2]
    assert sizes(still, over(still, 50_000), found("level", onset=58_049)) == [1, 1]


def test_which_neighbours_are_looked_at_does_not_depend_on_what_was_said_before(found):
    level = found("level", "grad_norm", onset=39, detected=79, samples=50)
    spike = found(onset=65, samples=5_000)
    assert sizes(level, spike) == [2]
    assert sizes(level, spike, found("trend", onset=0, detected=0, samples=5_000)) == [1, 2]


def test_a_trend_whose_window_holds_a_step_of_its_metric_is_that_step(found):
    step = found("level", "param_norm", onset=10_000, detected=10_064)
    assert sizes(step, found("trend", "param_norm", onset=9_400, detected=10_500)) == [2]
    assert sizes(step, found("trend", "param_norm", onset=8_000, detected=9_000)) == [1, 1]


def test_a_level_that_grows_into_a_divergence_is_one_and_one_that_was_over_is_not(found):
    level = found("level", onset=10_000, detected=10_008, severity=2)
    grave = found("divergence", onset=10_900, detected=10_904, severity=3)
    assert sizes(level, grave) == [2]
    assert sizes(level, over(level, 10_100), grave) == [1, 1]
    assert sizes(level, found("divergence", onset=14_000, detected=14_004, severity=3)) == [1, 1]


def test_a_metric_that_goes_back_to_where_it_came_from_ends_its_move(found):
    down = found("level", onset=10_000, detected=10_008, direction="down", severity=2, before=2.0, after=1.0)
    back = found("level", onset=13_000, detected=13_008, severity=2, before=1.0, after=1.9)
    further = found("level", onset=13_000, detected=13_008, severity=2, before=1.0, after=3.5)
    assert sizes(down, back) == [2]
    assert sizes(down, further) == [1, 1]


def test_a_learning_rate_that_nobody_planned_has_a_wake(found):
    rate = found("schedule", "learning_rate", onset=1_350, detected=1_352, severity=2, samples=1_350)
    eval_loss = found("level", "eval_loss", onset=1_600, detected=1_700, severity=2, cadence=100.0, samples=17)
    assert sizes(rate, eval_loss) == [2]
    assert sizes(found("schedule", "learning_rate", onset=1_350, severity=1, samples=1_350), eval_loss) == [1, 1]


def test_two_spikes_three_samples_apart_are_one_and_four_samples_apart_are_two(found):
    assert sizes(found(), found(onset=10_003)) == [2]
    assert sizes(found(), found(onset=10_004)) == [1, 1]


def test_a_speed_joins_the_slow_machine_and_a_loss_the_other_change(found):
    speed = found("level", "throughput", onset=10_000, detected=10_010, severity=2)
    routing = found("level", "router_entropy", onset=10_040, detected=10_064, direction="down", severity=2)
    far = found("level", "token_drop", onset=10_100, detected=10_120, severity=2)
    loss = found("level", onset=10_030, detected=10_090, severity=2)
    groups = [{f.role for f in each.findings} for each in folded(speed, routing)]
    assert groups == [{"throughput", "router_entropy"}]  # nothing else is near
    other = found("level", "router_entropy", onset=10_065, detected=10_080, direction="down", severity=2)
    groups = [{f.role for f in each.findings} for each in folded(speed, other, loss, far)]
    assert groups == [{"throughput"}, {"router_entropy", "loss", "token_drop"}]
