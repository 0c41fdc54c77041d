"""How far in steps what is said of one origin may lie apart, and which findings are slow, sharp, brief, or have a wake.

All windows are steps. A metric's cadence (median steps between its samples) and length come from the finding's
evidence, `cadence` and `samples`; both may be missing.
"""

from collections.abc import Sequence

from detectors.finding import Finding, cadence, number

SLOW = frozenset({"trend", "plateau", "overfit", "variance", "ladder"})  # their onset is an estimate over a long window
# their onset is exact; a constant that drifts off is only seen once it has passed a tolerance
SHARP = frozenset({"spike", "nonfinite", "stall", "rewind", "schedule", "replay"})
SETTLED = frozenset({"level", "divergence", "invariant"})  # something lasting began at the onset
CATASTROPHIC = frozenset({"divergence", "nonfinite"})
DYNAMICS = frozenset(
    {"loss", "grad_norm", "update_norm", "param_norm", "token_drop", "router_entropy", "router_load", "router_bias"}
    | {"router_logit", "max_logit", "logsumexp", "eval_loss", "eval_score", "clipped", "skipped_steps"}
)
NEAR = 8  # samples: sharp moves of one origin
AGAIN = 3  # samples: two lone spikes of one metric that are one, as in the rule "two of three samples"
WIDE = 64  # samples: moves with an estimated onset
SETTLE = 500  # samples: how long a metric may fire again and still belong to the same incident
GROWS = 6  # times as long a lasting move may take to grow into something graver
SHARE = 0.02  # of the steps seen so far, the upper bound of each window
LAG_SHARE = 0.25  # of the detection lag of slow findings: the error of their onsets


def seen(finding: Finding) -> float:
    """Steps of this metric seen so far: its samples times its cadence, or else the step itself."""
    samples = number(finding, "samples")
    return samples * cadence(finding) if samples and number(finding, "cadence") else abs(finding.detected_step)


def is_slow(finding: Finding) -> bool:
    """Is its onset an estimate over a long window? A learning rate that stands still is exact."""
    return finding.kind in SLOW and finding.role != "learning_rate"


def is_sharp(finding: Finding) -> bool:
    return finding.kind in SHARP or finding.role == "learning_rate"


def window(one: Finding, other: Finding) -> float:
    """How far apart (steps) the onsets of one origin may lie.

    8 or 64 samples of the coarser metric but at most 2 % of the steps seen; at least 8 samples of the finer and 2 of
    the coarser, so that neither a short run logged every 5 steps nor an eval every 1,000 falls below its resolution.
    """
    fine, coarse = sorted((cadence(one), cadence(other)))
    count = NEAR if is_sharp(one) and is_sharp(other) else WIDE
    least = max(2 * coarse, NEAR * fine)
    steps = min(count * coarse, max(SHARE * max(seen(one), seen(other)), least))
    if not (is_slow(one) or is_slow(other)):
        return steps
    lags = [item.detected_step - item.onset_step for item in (one, other) if is_slow(item)]
    return max(steps, LAG_SHARE * min(lags))


def settle(finding: Finding) -> float:
    """Steps inside which a metric that fires again belongs to the incident it belonged to before."""
    step = cadence(finding)
    return min(SETTLE * step, max(SHARE * seen(finding), NEAR * step))


def closes(findings: Sequence[Finding], resolved_step: float) -> float:
    """The last step at which something may be said that still joins a resolved incident (see `Group.is_closed`)."""
    return max(resolved_step, *(item.detected_step for item in findings)) + 2 * max(settle(item) for item in findings)


def heard(finding: Finding) -> float:
    """The step at which what is said may still join something: that a run went back belongs to where it went back to."""
    return finding.onset_step if finding.kind == "rewind" else finding.detected_step


def has_wake(finding: Finding) -> bool:
    """What disturbs all that is learned for a while: divergences, non-finite values, a learning rate set by nobody's
    plan, a loss on another level, and whatever of the training is worth a page."""
    if finding.role == "learning_rate":
        return finding.kind == "schedule" and finding.severity >= 2
    if finding.kind == "level" and finding.role == "loss":
        return finding.severity >= 2
    return finding.severity >= 3 and (finding.kind in CATASTROPHIC or finding.role in DYNAMICS)


def samples_out(finding: Finding) -> float:
    """How many samples the excursion has lasted; 1 for a spike that does not say."""
    return number(finding, "samples_out") or 1.0


def is_brief(finding: Finding) -> bool:
    """An excursion of one or two samples: over before anything could be decided, so nothing re-opens it."""
    return finding.kind == "spike" and samples_out(finding) <= 2
