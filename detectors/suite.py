"""Which detectors look at which role; they are loaded at first use."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module  # noqa: TID251
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from detectors.finding import Answer, Finding, NotChecked
from detectors.noise import CHUNK
from detectors.noise import NEEDED as YOUNGEST
from detectors.sections import JointDetector
from detectors.series import Array, Series
from detectors.window import LOOKBACK, Chunk, Detector, Known, Said, State

EVERY = ("nonfinite",)
BY_ROLE: dict[str, tuple[str, ...]] = {
    "loss": ("divergence", "spikes", "shifts", "spread", "rates", "direction", "invariants", "silence"),
    "grad_norm": ("spikes", "direction", "kinks", "invariants"),
    "update_norm": ("spikes", "direction", "invariants"),
    "param_norm": ("invariants", "direction", "kinks"),
    "mfu": ("throughput", "slide", "invariants"),
    "throughput": ("throughput", "slide", "invariants"),
    "step_time": ("throughput", "slide", "invariants"),
    "data_wait": (),
    "token_drop": ("shifts", "direction"),
    "router_entropy": ("shifts", "direction", "kinks", "invariants"),
    "router_bias": ("direction", "kinks"),
    "router_logit": ("direction",),
    "max_logit": ("direction", "kinks"),
    "logsumexp": ("direction", "kinks"),
    "memory": ("direction",),
    "learning_rate": ("schedule", "curve"),
    "eval_loss": ("invariants", "evals"),
    "eval_score": ("evals",),
    "skipped_steps": ("rates",),
    "clipped": ("saturation",),
    "link_errors": ("counters",),
    "checkpoint": ("checkpoints",),
    "tokens": ("tokens",),
}
LEAF: dict[str, tuple[str, ...]] = {
    "param_norm": ("invariants",),
    "grad_norm": ("invariants",),
    "eval_loss": ("invariants", "evals"),
    "eval_score": ("evals",),
    "link_errors": ("counters",),
}  # one of many: no statistics but for evaluations
NEVER_NEGATIVE = frozenset({"mfu", "throughput", "step_time", "grad_norm", "param_norm", "update_norm", "tokens"})
# detectors across metrics: the roles whose leaves they look at
JOINT: dict[str, frozenset[str]] = {
    "groups": frozenset({"param_norm"}),
    "shares": frozenset({"grad_norm"}),
    "layers": frozenset({"router_load", "router_entropy", "token_drop", "router_bias"}),
    "stragglers": frozenset({"step_time", "throughput", "mfu"}),
    "idle": frozenset({"router_load"}),
}
# detectors across whole-run metrics
TOGETHER: dict[str, frozenset[str]] = {
    "ratelaw": frozenset({"grad_norm", "learning_rate"}),
    "starved": frozenset({"data_wait", "step_time"}),
}
# detectors across metrics, leaves or not, that are given samples and no blocks: evaluations are rare, and counts exact
POINTS: dict[str, frozenset[str]] = {
    "siblings": frozenset({"eval_loss", "eval_score"}),
    "accounts": frozenset({"tokens", "batch_size", "sequence_length"}),
}
# samples before the first statistical judgement: 20 blocks of five autocorrelation times of white noise, four groups of
# 64 behind the gap for a long-run variance, 20 blocks of 16 without the first tenth at the end of a chunk
NEEDED = {"spikes": YOUNGEST, "throughput": YOUNGEST, "shifts": 304, "direction": 512, "spread": 7 * CHUNK, "evals": 8}
NEEDED |= {"rates": 2000, "saturation": 2 * CHUNK, "counters": 21}
# told which sample is the first of a launch: that step compiles, and counters may begin anew
FROM_LAUNCH = frozenset({"throughput", "counters", "tokens"})
# first and last step of a stretch that is no baseline for chunks that begin after the third step and up to the fourth
Masked = tuple[float, float, float, float]
SPAN = 16 * CHUNK  # samples judged at once


def detectors_of(role: str, group: str = "") -> tuple[str, ...]:
    """Names of the detectors that look at a metric of this role; `group` is the layer or leaf, "" for a whole run."""
    return (*EVERY, *(LEAF if group else BY_ROLE).get(role, ()))


@cache
def load(name: str) -> Detector:
    """The detector module of that name."""
    return cast(Detector, import_module(f"detectors.{name}"))


def load_joint(name: str) -> JointDetector:
    """The module of that name, a detector across metrics."""
    return cast(JointDetector, import_module(f"detectors.{name}"))


def advance(
    step: Array,
    value: Array,
    seconds: Array,
    first: int,
    start: int,
    states: dict[str, State],
    *,
    name: str,
    role: str,
    group: str = "",
    events: Sequence[Known] = (),
    masked: Sequence[Masked] = (),
) -> tuple[list[Said], dict[str, State], int]:
    """Judge all samples from index `start` (a multiple of CHUNK) on; `first` is the index of element 0.

    `masked` are stretches that no later chunk looks back at: their values are missing there.

    Returns what can be said with its sample index, the states at the last whole chunk, and the index of that boundary.
    What is said about a partial chunk is repeated when it is judged again with more samples: compare indices.
    """
    said: list[Said] = []
    end = first + len(step)
    names = detectors_of(role, group)
    while start < end:
        whole = min(SPAN, (end - start) // CHUNK * CHUNK)
        if masked and whole:  # a word that comes into force inside a span ends it
            whole = _until_a_turn(step[start - first : start - first + whole : CHUNK], masked, whole)
        stop = start + (whole or end - start)
        low = max(first, start - LOOKBACK)
        chunk = Chunk(
            low,
            start,
            step[low - first : stop - first],
            _without(masked, step[low - first : stop - first], value[low - first : stop - first], start - low),
            seconds[low - first : stop - first],
            name,
            role,
            group,
            events,
        )
        after = {}
        for each in names:
            found, after[each] = load(each).scan(chunk, states.get(each, {}))
            said += found
        if not whole:
            return said, states, start
        states, start = after, stop
    return said, states, start


def _in_force(masked: Sequence[Masked], step: float) -> list[tuple[float, float]]:
    """The stretches that a chunk which begins at `step` must not look back at."""
    return [(first, last) for first, last, since, before in masked if since < step <= before]


def _until_a_turn(begins: Array, masked: Sequence[Masked], whole: int) -> int:
    """Samples until the first chunk for which other stretches are in force; `begins` are the chunks' first steps."""
    now = _in_force(masked, float(begins[0]))
    turns = (k for k, step in enumerate(begins.tolist()) if _in_force(masked, step) != now)
    return next(turns, whole // CHUNK) * CHUNK


def _without(masked: Sequence[Masked], step: Array, value: Array, offset: int) -> Array:
    """The values, NaN where a stretch is in force before position `offset`, at which the chunk begins."""
    out = value
    for first, last in _in_force(masked, float(step[offset])):
        out = np.where((np.arange(len(step)) < offset) & (step >= first) & (step <= last), np.nan, out)
    return out


def carried(states: Mapping[str, State], step: float) -> dict[str, State]:
    """States for a new attempt whose shown tail begins at `step`, from those of its parent."""
    return {name: load(name).carry(state, step) for name, state in states.items()}


def is_sentinel(role: str, value: Array) -> NDArray[np.bool_]:
    """Values that are no measurement (MFU -100, a negative norm or time): passed over, never alerted."""
    return np.asarray(value < 0) if role in NEVER_NEGATIVE else np.zeros(len(value), dtype=bool)


def inspect(series: Series, events: Sequence[Any] = ()) -> list[Answer]:
    """Everything that can be said about one series, in the order in which a live watch would have said it.

    `events` is what was planned or done: things or mappings with a `step` and a `kind`. They count as known beforehand.
    """
    known = [
        Known(float(each["step"]), str(each["kind"])) if isinstance(each, Mapping) else Known(each.step, each.kind)
        for each in events
    ]
    said, _, _ = advance(
        series.step, series.value, series.seconds, 0, 0, {}, name=series.name, role=series.role, events=sorted(known)
    )
    answers = [answer for _, answer in sorted(said, key=lambda pair: pair[0])]
    return [*answers, *not_checked(series.role, series.name, len(series))]


def not_checked(role: str, name: str, samples: int) -> list[NotChecked]:
    """The statistical checks for which a metric is too short."""
    return [
        NotChecked(each, f"{samples} of at least {NEEDED[each]} samples", name)
        for each in detectors_of(role)
        if samples < NEEDED.get(each, 0)
    ]


def findings(answers: Sequence[Answer]) -> list[Finding]:
    """Only the findings."""
    return [a for a in answers if isinstance(a, Finding)]
