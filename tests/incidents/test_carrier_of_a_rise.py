"""The leaf that carries a rise of the gradient norm joins the incident of the total, and its sentence says so."""

from flows.incidents import fold
from flows.messages.facts import moved


def rise(found, share=0.95, groups=1, **given):
    return found(
        "trend", "grad_norm", 58_000, detected=68_000, detector="shares", metric="grad/norm/lm_head", severity=0,
        growth_share=share, groups=groups, slope_per_10k=0.16, **given,
    )  # fmt: skip


def total(found, **given):
    given = {"onset": 58_000, "detected": 68_256, "slope_per_10k": 0.177, "before": 0.28, "after": 0.35} | given
    return found("trend", "grad_norm", **given)


def incidents(*findings):
    return fold("hero", 0, findings, [], (), horizon_step=100_000)


def test_the_alert_says_which_leaf_carries_the_rise(found):
    (one,) = incidents(rise(found), total(found))
    assert one.severity == 1
    assert one.title.startswith("grad/norm/total has risen 19 % per 10,000 steps since step 58,000")
    assert one.title.endswith("; grad/norm/lm_head carries 95 % of the rise")


def test_a_rise_without_a_carrier_is_spread(found):
    (one,) = incidents(rise(found, share=0.3, groups=6), total(found))
    assert one.title.endswith("; spread over 6 groups, grad/norm/lm_head first with 30 % of the rise")


def test_alone_it_is_an_annotation_that_explains_itself(found):
    (one,) = incidents(rise(found))
    assert (one.severity, one.title) == (
        0,
        "the gradient norm of all groups has risen 17 % per 10,000 steps since step 58,000; "
        "grad/norm/lm_head carries 95 % of the rise",
    )


def test_another_carrier_later_has_the_last_word(found):
    late = found(
        "trend", "grad_norm", 58_500, detected=75_000, detector="shares", metric="grad/norm/attn", severity=0,
        growth_share=0.6, groups=2,
    )  # fmt: skip
    (one,) = incidents(rise(found), total(found), late)
    assert one.title.endswith("; grad/norm/attn carries 60 % of the rise")


def test_the_message_gives_the_share_where_other_metrics_have_their_size(found):
    told = moved([vars(total(found)), vars(rise(found))])
    assert told.startswith(
        "grad/norm/lm_head carries 95 % of the rise of the squared norm, then grad/norm/total trend ↑"
    )


def test_a_slope_that_changed_is_told_with_both_slopes_and_the_event(found):
    numbers = {"slope_before_per_10k": 0.1, "slope_per_10k": -0.2, "event": "deploy"}
    (one,) = incidents(found("trend", "grad_norm", 58_000, detected=68_000, detector="kinks", **numbers))
    assert one.title == "grad/norm/total changed its slope from +11 % to -18 % per 10,000 steps at step 58,000 (deploy)"


def law(found, cap, detected):
    return found(
        "trend",
        "grad_norm",
        58_000,
        detected=detected,
        detector="ratelaw",
        severity=0,
        cap=cap,
        rate_fell=0.4,
        beta=None,
    )


def test_a_rise_while_the_learning_rate_falls_is_as_loud_as_its_law_allows(found):
    loud = total(found, severity=2)
    assert [i.severity for i in incidents(loud)] == [2]
    (capped,) = incidents(law(found, 1, 68_000), loud)
    assert capped.severity == 1
    assert capped.title.endswith("; the learning rate fell by 40 % meanwhile")
    assert [i.severity for i in incidents(law(found, 0, 68_000), loud)] == [0]


def test_the_latest_word_on_the_learning_rate_counts(found):
    loud = total(found, severity=2)
    (one,) = incidents(law(found, 1, 68_000), loud, law(found, 4, 70_000))
    assert one.severity_history == ((68_000, 0), (68_256, 1), (70_000, 2))
