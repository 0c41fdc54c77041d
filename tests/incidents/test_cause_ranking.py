"""Which pattern comes first, why, and what would tell it from the next."""

from dataclasses import replace

import pytest

from detectors.cause import confidence, rank
from detectors.pattern import pattern_of
from flows.playbook import load_playbook

PLAYBOOK = load_playbook()


def best(*findings, roles=(), events=()):
    return rank(findings, roles, events, PLAYBOOK)[0]


def test_drops_with_even_load_are_capacity_and_with_falling_entropy_a_collapse(found):
    drops = found("level", "token_drop")
    entropy = found("trend", "router_entropy", direction="down")
    roles = {"token_drop", "router_entropy", "router_load"}
    assert best(drops, roles=roles).pattern == "capacity_or_transport_drops"
    assert best(drops, entropy, roles=roles).pattern == "router_collapse"


def test_a_metric_that_is_not_logged_is_named_as_what_would_discriminate(found):
    top = best(found("level", "token_drop"), roles={"token_drop", "loss"})
    assert "router_entropy" in top.missing and "router_entropy flat" not in top.matched


def test_a_spike_with_a_quiet_gradient_is_data_and_with_a_loud_one_the_optimizer(found):
    roles = {"loss", "grad_norm"}
    assert best(found(), roles=roles).pattern == "bad_data_pocket"
    assert best(found(), found(role="grad_norm"), roles=roles).pattern == "loss_spike_fast"


def test_a_spike_without_any_other_metric_is_not_blamed_on_data(found):
    assert best(found(), roles={"loss"}).pattern == "loss_spike_fast"


def test_a_gate_event_is_needed(found):
    lower = found("level", "loss", direction="down")
    assert best(lower, roles={"loss"}).pattern == "loss_level_shift"
    assert best(lower, roles={"loss", "learning_rate"}, events={"restart"}).pattern == "repeated_data_after_resume"


def test_a_violated_must_be_flat_is_told_as_contradiction(found):
    ranked = rank([found("trend", "grad_norm"), found("trend", "eval_loss")], {"loss"}, (), PLAYBOOK)
    rise = next(item for item in ranked if item.pattern == "grad_norm_slow_rise")
    assert rise.contradicted == ("eval_loss moved",)


def test_confidence_grows_with_the_lead_and_is_nothing_without_hypotheses(found):
    alone = rank([found("nonfinite")], {"loss"}, (), PLAYBOOK)
    tied = rank([found()], {"loss"}, (), PLAYBOOK)
    assert 0 < confidence(tied) < confidence(alone) < 1
    assert confidence([]) == 0.0


def test_anything_at_all_has_at_least_the_unattributed_pattern(found):
    odd = found("variance", "gpu", direction="none")
    assert best(odd, roles={"gpu"}).pattern == "unattributed_change"


def entry(name="p", **keys):
    return pattern_of(name, {"title": name, "severity": 2, "suggestions": [], **keys})


LEADS = entry(
    signs=[
        {"roles": ["loss"], "kinds": ["spike"], "required": True},
        {"roles": ["update_norm"], "lead": [-8, -1]},
    ]
)


@pytest.mark.parametrize(("update", "score"), [(9_996, 2.25), (9_980, 1.5), (10_004, 1.5)])
def test_a_sign_that_leads_as_it_should_adds_and_one_that_does_not_takes(found, update, score):
    (top,) = rank([found(), found(role="update_norm", onset=update)], (), (), [LEADS])
    assert top.score == score


def test_leads_are_counted_in_samples_and_an_estimated_onset_has_its_error(found):
    loss, update = found(cadence=10.0), found(role="update_norm", onset=9_930.0, cadence=10.0)
    assert rank([loss, update], (), (), [LEADS])[0].score == 2.25
    late = found("trend", "update_norm", onset=9_000.0, detected=13_000.0)
    assert rank([found(), late], (), (), [LEADS])[0].score == 2.25


ROUTER = entry(signs=[{"roles": ["router_load"]}], order=["router_load", "router_entropy", "token_drop"])


def test_roles_in_order_add_and_out_of_order_take(found):
    first = found("level", "router_load", onset=1_000.0, detected=1_000.0)
    drops = found("level", "token_drop", onset=3_000.0, detected=3_000.0)
    before = found("level", "router_entropy", onset=500.0, detected=500.0)
    between = found("level", "router_entropy", onset=2_000.0, detected=2_000.0)
    unordered = rank([first], (), (), [ROUTER])[0].score
    unspoken = rank([first, drops], (), (), [entry(signs=[{"roles": ["router_load"]}])])[0].score - unordered
    assert rank([first, drops], (), (), [ROUTER])[0].score == unordered + unspoken + 0.25
    assert (
        rank([first, before, drops], (), (), [ROUTER])[0].contradicted[0] == "router_entropy began before router_load"
    )
    assert "router_entropy began before token_drop" in rank([first, between, drops], (), (), [ROUTER])[0].matched


SCALE = entry(
    "scale", signs=[{"roles": ["loss"], "required": True}, {"metrics": ["*loss_scale*"], "direction": "down"}]
)


def test_a_name_can_stand_for_a_role_that_does_not_exist(found):
    scale = found("level", "other", metric="amp/Loss_Scale", direction="down")
    assert rank([found(), scale], (), (), [SCALE])[0].score == 2.0
    assert rank([found(), scale], (), (), [SCALE])[0].matched[1] == "loss_scale down"


def test_a_name_that_is_not_logged_is_missing_and_one_that_is_has_not_moved(found):
    plain = entry("plain", signs=[{"roles": ["loss"], "required": True}, {"roles": ["grad_norm"]}])
    without = rank([found(), found(role="grad_norm")], {"other"}, (), [SCALE, plain], {"train/loss", "grad/norm/total"})
    assert [item.pattern for item in without] == ["plain", "scale"]
    assert without[1].missing == ("loss_scale",)
    assert rank([found()], {"other"}, (), [SCALE], {"train/loss", "amp/loss_scale"})[0].missing == ()


def test_alone_means_that_no_other_metric_of_the_role_moved(found):
    one = found("level", "eval_score", metric="eval/gsm8k", direction="down")
    pattern = entry(signs=[{"roles": ["eval_score"], "alone": True, "required": True}])
    assert [item.pattern for item in rank([one], (), (), [pattern])] == ["p"]
    assert rank([one, found("level", "eval_score", metric="eval/arc", direction="down")], (), (), [pattern]) == []


def test_all_events_that_belong_together_are_needed(found):
    both = entry(signs=[{"roles": ["eval_loss"]}], together=["lr_decay", "data_mix"])
    rise = found("level", "eval_loss")
    assert rank([rise], (), {"lr_decay"}, [both]) == []
    assert rank([rise], (), {"lr_decay", "data_mix"}, [both])[0].matched[0] == "event data_mix and lr_decay"


def test_an_annotation_neither_breaks_nor_confirms_that_a_role_is_flat(found):
    pattern = entry(signs=[{"roles": ["loss"]}], flat=["eval_loss"])
    better = found("level", "eval_loss", direction="down", severity=0)
    assert rank([found(), better], {"eval_loss"}, (), [pattern])[0].score == 1.0
    assert rank([found()], {"eval_loss"}, (), [pattern])[0].score == 1.5
    worse = found("level", "eval_loss", severity=2)
    assert rank([found(), worse], {"eval_loss"}, (), [pattern])[0].contradicted == ("eval_loss moved",)


def test_a_silence_moves_no_value_but_a_pattern_without_it_is_another_one(found):
    silence = found("stall", "loss", direction="none", severity=2)
    flat = entry("flat", signs=[{"kinds": ["rewind"]}], flat=["loss"])
    back = found("rewind", "other", metric="", direction="none", severity=0)
    assert rank([silence, back], {"loss"}, (), [flat])[0].matched == ("any metric moves (rewind)", "loss flat")
    mixture = entry("mixture", signs=[{"roles": ["loss"], "kinds": ["level"]}])
    level = found("level", severity=0)
    told = rank([silence, level], {"loss"}, (), [mixture])[0]
    assert told.contradicted == ("loss stall, which it does not account for",)


def test_a_spike_that_is_over_comes_before_a_shift_and_one_that_stays_after_it(found):
    roles = {"loss", "grad_norm", "update_norm", "eval_loss", "learning_rate"}
    spike, level = found(severity=2), found("level", severity=2)
    over = [replace(item, evidence={**item.evidence, "lasted": 100.0}) for item in (spike, level)]
    stays = [spike, replace(level, evidence={**level.evidence, "lasted": 400.0})]
    assert best(*over, roles=roles).pattern == "loss_spike_fast"
    assert best(*stays, roles=roles).pattern == "train_only_phase_shift"


def test_tokens_that_go_elsewhere_with_a_step_of_the_loss_are_other_data_and_before_it_a_collapse(found):
    roles = {"loss", "grad_norm", "eval_loss", "learning_rate", "token_drop", "router_entropy"}
    entropy = found("level", "router_entropy", direction="down", severity=1)
    drops = found("level", "token_drop", severity=2)
    step = found("level", direction="down", onset=10_001, severity=0)
    assert best(entropy, drops, step, roles=roles).pattern == "bad_data_pocket"
    assert best(entropy, drops, found("level", onset=10_400), roles=roles).pattern == "router_collapse"


def test_a_wider_loss_with_drops_is_the_order_of_the_data(found):
    roles = {"loss", "grad_norm", "eval_loss", "learning_rate", "token_drop", "router_entropy"}
    moved = [found("level", "router_entropy", direction="down", severity=2), found("level", "token_drop", severity=2)]
    assert best(*moved, roles=roles).pattern == "router_collapse"
    assert best(*moved, found("variance", severity=2), roles=roles).pattern == "shuffle_quality"


def test_how_often_a_loss_spikes_is_no_level_of_it(found):
    roles = {"loss", "grad_norm", "eval_loss", "learning_rate"}
    rate = found("level", detector="rates", lasted=5_000.0)
    assert best(rate, roles=roles).pattern == "spike_cluster"
    assert "loss_level_shift" not in {item.pattern for item in rank([rate], roles, (), PLAYBOOK)}


def test_one_layer_alone_is_an_imbalance_and_all_together_a_collapse(found):
    roles = {"router_entropy", "token_drop", "loss", "grad_norm", "learning_rate"}
    fewer = {"direction": "down", "detector": "layers", "severity": 3}
    assert best(found("level", "router_entropy", alone=1, **fewer), roles=roles).pattern == "single_layer_imbalance"
    assert best(found("level", "router_entropy", alone=0, **fewer), roles=roles).pattern == "router_collapse"


def test_a_checkpoint_that_is_late_is_no_hang(found):
    late = found("stall", "checkpoint", detector="checkpoints", severity=3)
    assert best(late, roles={"loss", "checkpoint"}).pattern == "checkpoint_not_advancing"


LOGGED = {"loss", "grad_norm", "learning_rate", "step_time", "mfu", "data_wait"}


def stall(found, seconds, **more):
    return found("stall", severity=2, direction="none", unit="seconds", magnitude=seconds, seconds=seconds, **more)


def test_a_standstill_before_the_run_went_back_is_a_hang_and_a_way_back_without_one_is_not(found):
    back = found("rewind", "other", metric="", direction="none", severity=0)
    for wait in (1_000.0, 4_000.0):
        assert best(stall(found, wait), back, roles=LOGGED, events={"restart"}).pattern == "hang_and_restart"
    assert best(back, roles=LOGGED, events={"restart"}).pattern == "step_rewind_replay"
    assert best(stall(found, 1_000.0), roles=LOGGED).pattern == "step_pause"
    assert best(stall(found, 4_000.0), roles=LOGGED).pattern == "hang_and_restart"


def test_a_run_of_which_nothing_has_come_since_is_no_pause_whatever_was_slow_before(found):
    silence = found("stall", severity=4, direction="none", silent=True)
    slow = [found("spike", "step_time", severity=0), found("spike", "mfu", direction="down", severity=0)]
    for events in ((), {"deploy"}, {"restart"}, {"checkpoint"}):
        assert best(silence, *slow, roles=LOGGED, events=events).pattern == "hang"
