"""One metric of one attempt: new samples in, answers out, memory updated."""

from collections.abc import Sequence

import numpy as np

from detectors import bounds as own
from detectors.finding import Answer, Finding, Pending, Recovery
from detectors.noise import BLOCK, CHUNK, block_medians
from detectors.series import Array
from detectors.silence import launched
from detectors.suite import FROM_LAUNCH, TOGETHER, Masked, advance, carried, detectors_of, is_sentinel
from detectors.window import Known
from flows.stages.fresh import Samples
from flows.stages.memory import Memory


def judge_metric(
    memory: Memory,
    new: Samples,
    *,
    name: str,
    role: str,
    group: str,
    bounds: Sequence[own.Bound] = (),
    events: Sequence[Known] = (),
    masked: Sequence[Masked] = (),
) -> tuple[list[Answer], Array]:
    """Answers that the new samples make possible, in order of their sample index; and the blocks of 16 they complete.

    `masked` are stretches that are no baseline, `events` what was planned or done in the lineage of the attempt. What the
    user's `bounds` say stands behind the others.
    """
    known = len(memory.step)
    _take(memory, new, role)
    limits: list[Finding | Recovery | Pending] = []
    before = memory.states.pop("bounds", {})
    if bounds:
        limits, before = own.scan(memory.step[known:], memory.value[known:], before, bounds, name=name, role=role)
    said, memory.states, memory.start = advance(
        memory.step,
        memory.value,
        memory.seconds,
        memory.first,
        memory.start,
        memory.states,
        name=name,
        role=role,
        group=group,
        events=events,
        masked=masked,
    )
    news = sorted((pair for pair in said if pair[0] >= memory.judged), key=lambda pair: pair[0])
    together = group or any(role in roles for roles in TOGETHER.values())
    blocks = _new_blocks(memory) if together else np.empty((0, 3))
    memory.judged = memory.end
    memory.forget()
    if bounds:
        memory.states = {**memory.states, "bounds": before}
    return [*(answer for _, answer in news), *limits], blocks


def _new_blocks(memory: Memory) -> Array:
    """(k, 3): number of the block, its last step, median of its values."""
    begin = memory.judged // BLOCK
    medians = block_medians(memory.value[begin * BLOCK - memory.first :])
    steps = memory.step[begin * BLOCK - memory.first :][BLOCK - 1 :: BLOCK]
    return np.column_stack([begin + np.arange(len(medians)), steps, medians])


def seed(
    parent: Memory | None,
    tail: Samples,
    *,
    name: str,
    role: str,
    group: str,
    bounds: Sequence[own.Bound] = (),
) -> Memory:
    """The memory with which a new attempt begins: its parent's knowledge, shown the samples before the fork once more.

    What would be said about those was said when they were new; a bound that the parent did not have begins behind them.
    An attempt that nothing stands before starts cold.
    """
    memory = Memory()
    known = parent.states.get("bounds", {}).get("of", {}) if parent is not None else {}
    if parent is not None and len(tail.step):
        memory.first = max(0, parent.end - len(tail.step)) // CHUNK * CHUNK
        # the older part is lookback only: judging it without any would start every baseline cold
        memory.start = memory.judged = memory.first + max(0, len(tail.step) - CHUNK) // CHUNK * CHUNK
        memory.live, memory.states = parent.live, carried(parent.states, float(tail.step[0]))
    mine = [bound for bound in bounds if bound.key in known]
    judge_metric(memory, tail, name=name, role=role, group=group, bounds=mine)
    for each in FROM_LAUNCH.intersection(detectors_of(role, group)):
        memory.states[each] = {**memory.states.get(each, {}), "launch": memory.end}
    if "silence" in memory.states and parent is not None and len(parent.seconds):
        memory.states["silence"] = {**memory.states["silence"], **launched(memory.end, float(parent.seconds[-1]))}
    return memory


def _take(memory: Memory, new: Samples, role: str) -> None:
    passed = is_sentinel(role, new.value)
    if passed.any():
        memory.sentinels += int(passed.sum())
        new = new.at(~passed)
    memory.live = memory.live or bool(np.any(np.nan_to_num(new.value) != 0))
    memory.take(*new)
