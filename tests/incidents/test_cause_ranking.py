"""Which pattern comes first, why, and what would tell it from the next."""

from detectors.cause import confidence, rank
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
