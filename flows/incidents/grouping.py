"""Which findings have one origin. Sequential in canonical order: a longer prefix only adds to what a shorter one gave.

All windows are steps. A metric's cadence (median steps between its samples) and length come from the finding's
evidence, `cadence` and `samples`; both may be missing. A finding is compared with the first finding of an incident, not
with the latest, so that a flood of findings cannot chain a whole run together.
"""

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass, field

from detectors.cause import SPEED
from detectors.finding import Finding, Recovery, cadence, number
from flows.incidents.incident import Episode, canonical, episode_of
from flows.incidents.reach import (
    AGAIN,
    DYNAMICS,
    GROWS,
    LAG_SHARE,
    NEAR,
    SETTLED,
    SHARE,
    WIDE,
    has_wake,
    heard,
    is_brief,
    is_slow,
    samples_out,
    seen,
    settle,
    window,
)


@dataclass
class Group:
    """An incident under construction: findings in canonical order, and the step at which each episode recovered."""

    findings: list[Finding] = field(default_factory=list)
    recovered: dict[Episode, float | None] = field(default_factory=dict)
    by_metric: dict[str, list[Finding]] = field(default_factory=dict)
    causes: list[Finding] = field(default_factory=list)  # what has a wake
    lead: Finding | None = None  # the first lasting move that is worth a look, where the anchor is a passing thing
    brief: bool = True
    unrecovered: int = 0
    last_step: float = -math.inf  # of anything said
    settling: float = 0.0

    @property
    def anchor(self) -> Finding:
        return self.findings[0]

    @property
    def resolved_step(self) -> float | None:
        """The last recovery when every episode has one, else None."""
        if self.unrecovered:
            return None
        return max(step for step in self.recovered.values() if step is not None)

    def is_closed(self, step: float) -> bool:
        """Resolved for so long that nothing said at `step` can join it: a judge need not remember it."""
        return not self.unrecovered and step > self.last_step + 2 * self.settling

    def recover(self, episode: Episode, step: float) -> None:
        if self.recovered[episode] is None:  # the first recovery counts until it fires again
            self.recovered[episode] = step
            self.unrecovered -= 1
            self.last_step = max(self.last_step, step)

    def add(self, finding: Finding) -> None:
        episode = episode_of(finding)
        self.unrecovered += self.recovered.get(episode, 0.0) is not None
        self.recovered[episode] = None
        self.findings.append(finding)
        self.by_metric.setdefault(finding.metric, []).append(finding)
        self.brief = self.brief and is_brief(finding)
        self.last_step = max(self.last_step, finding.detected_step)
        self.settling = max(self.settling, settle(finding))
        if self.lead is None and finding.kind in SETTLED and finding.severity >= 2:
            self.lead = finding
        if has_wake(finding):
            self.causes.append(finding)


def group(answers: Iterable[Finding | Recovery]) -> list[Group]:
    """Groups of one attempt's answers, in order of their first finding; the order of the argument does not matter."""
    board = _Board()
    last: tuple[object, ...] | None = None
    for key, answer in sorted(((canonical(item), item) for item in answers), key=lambda pair: pair[0]):
        if key != last:  # the same answer given twice is one answer
            board.take(answer)
        last = key
    return board.groups


class _Board:
    """The groups so far with three indexes: by episode, by metric, by class and anchor onset."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.by_episode: dict[Episode, int] = {}
        self.by_metric: dict[str, list[int]] = {}
        self.onsets: dict[bool, list[tuple[float, int]]] = {False: [], True: []}
        self.coarsest = self.longest = self.lag = 0.0

    def take(self, answer: Finding | Recovery) -> None:
        index = self.by_episode.get(episode_of(answer))
        if isinstance(answer, Recovery):
            if index is not None and not self.groups[index].is_closed(answer.step):
                self.groups[index].recover(episode_of(answer), answer.step)
            return
        self.coarsest, self.longest = max(self.coarsest, cadence(answer)), max(self.longest, seen(answer))
        self.lag = max(self.lag, answer.detected_step - answer.onset_step)
        if index is None or self.groups[index].is_closed(heard(answer)):
            index = self._home(answer)
        if index is None:
            index = len(self.groups)
            self.groups.append(Group())
            insort(self.onsets[is_slow(answer)], (answer.onset_step, index))
        self.groups[index].add(answer)
        self.by_episode[episode_of(answer)] = index
        line = self.by_metric.setdefault(answer.metric, [])
        if index not in line:
            line.append(index)

    def _home(self, finding: Finding) -> int | None:
        same_metric = self._open(self.by_metric.get(finding.metric, []), finding)
        self.by_metric[finding.metric] = same_metric
        again = next((i for i in reversed(same_metric) if fires_again(self.groups[i], finding)), None)
        if again is not None:
            return again
        nearby = sorted({*same_metric, *self._open(self._around(finding), finding)})
        fitting = [(gap, i) for i in nearby if (gap := distance(self.groups[i], finding)) is not None]
        if fitting:  # a slow machine is the nearer origin for a speed, another change of the training for a loss
            return min((_is_other_sort(self.groups[i], finding), gap, i) for gap, i in fitting)[2]
        return next((i for i in nearby if is_aftermath(self.groups[i], finding)), None)

    def _open(self, indices: Iterable[int], finding: Finding) -> list[int]:
        return [i for i in indices if not self.groups[i].is_closed(heard(finding))]

    def _around(self, finding: Finding) -> list[int]:
        """Groups whose anchor could be near enough (an upper bound of every window; `distance` decides)."""
        most = min(WIDE * self.coarsest, max(SHARE * self.longest, NEAR * self.coarsest))
        reach = max(most, LAG_SHARE * self.lag)
        low, high = finding.onset_step - 5 * reach, finding.onset_step + reach
        found = []
        for slow in {is_slow(finding), False}:
            line = self.onsets[slow]
            found += [i for _, i in line[bisect_left(line, (low, -1)) : bisect_right(line, (high, len(self.groups)))]]
        return found


def fires_again(known: Group, finding: Finding) -> bool:
    """A metric of the incident fires again, in the same way (slow or fast), before things have settled.

    It is back when the first of its detectors says so: others wait much longer to be sure.
    """
    mine = [item for item in known.by_metric.get(finding.metric, ()) if is_slow(item) == is_slow(finding)]
    if known.brief:
        return False
    if goes_on(known, finding) or returns(known, finding):
        return True
    if not mine:
        return False
    last = max(item.detected_step for item in mine)
    steps = [known.recovered[episode_of(item)] for item in mine]
    end = min((step for step in steps if step is not None and step >= last), default=last)
    return mine[0].onset_step <= finding.onset_step <= end + settle(finding)


def goes_on(known: Group, finding: Finding) -> bool:
    """A metric whose lasting move in the same direction is still open moves further: a trend, or something graver.

    The onset of a trend may be wrong by its lag; what is graver may come within six times the settling time.
    """
    slow = is_slow(finding)
    if not slow and (finding.kind not in SETTLED or finding.severity < 3):
        return False
    mine = [
        item
        for item in known.by_metric.get(finding.metric, ())
        if item.kind in SETTLED and item.direction == finding.direction and known.recovered[episode_of(item)] is None
    ]
    if not mine:
        return False
    lag = finding.detected_step - finding.onset_step if slow else 0.0
    reach = (1 if slow else GROWS) * settle(finding) + lag
    return mine[0].onset_step - lag <= finding.onset_step <= max(item.detected_step for item in mine) + reach


def returns(known: Group, finding: Finding) -> bool:
    """A metric goes back to where its open move came from: the end of that move, however it looks, and nothing new."""
    before, after = number(finding, "before"), number(finding, "after")
    if before is None or after is None or finding.kind not in SETTLED:
        return False
    for item in known.by_metric.get(finding.metric, ()):
        start, end = number(item, "before"), number(item, "after")
        still = item.kind in (*SETTLED, "replay") and known.recovered[episode_of(item)] is None
        if still and start is not None and end is not None and (end - start) * (after - before) < 0:
            return abs(after - start) <= max(abs(end - start), abs(before - start)) / 2
    return False


def _is_other_sort(known: Group, finding: Finding) -> bool:
    """Whether one is of the speed and the other of the training."""
    return (finding.role in SPEED) != all(item.role in SPEED for item in known.findings if item.severity > 0)


def distance(known: Group, finding: Finding) -> float | None:
    """Steps between the onsets when they overlap, else None.

    Compared is the incident's own finding of the same metric, if there is one: a spike that was over before this began
    is another origin. Otherwise its first finding, or its first lasting one.
    """
    mine = known.by_metric.get(finding.metric)
    if mine:
        return _apart(finding, mine[-1], same_metric=True)
    leads = [known.lead] if known.lead is not None and finding.metric != "" else []
    gaps = [_apart(finding, other, same_metric=False) for other in (_nearest(known, finding), *leads)]
    return min((gap for gap in gaps if gap is not None), default=None)


def _apart(finding: Finding, other: Finding, *, same_metric: bool) -> float | None:
    """Steps between two onsets of one origin, None where they are of two.

    Slow and fast findings meet only on one metric, where a ramp is both a trend and a level; but what makes a loss
    scatter (batch size, order of the data) moves other metrics at the same time, and makes it spike more often.
    """
    gap = abs(finding.onset_step - other.onset_step)
    if is_slow(finding) != is_slow(other):
        kinds = {finding.kind, other.kind}
        lone = "spike" in kinds and not any(item.detector == "rates" for item in (finding, other))
        if (not same_metric or lone) and kinds != {"variance", "level"}:
            return None
        slow, fast = (finding, other) if is_slow(finding) else (other, finding)
        if same_metric and slow.onset_step <= fast.onset_step <= slow.detected_step:
            return 0.0  # what is seen over a window that holds a step is that step
    if same_metric and other.kind == "spike" and not is_slow(finding):
        end = other.onset_step + max(samples_out(other) + 1, AGAIN) * cadence(other)
        if finding.onset_step > end:
            return None
    return gap if gap <= window(finding, other) else None


def _nearest(known: Group, finding: Finding) -> Finding:
    """The first finding of the incident; for a slow annotation, which chains nothing, the nearest slow one of its role."""
    if finding.severity or not is_slow(finding):
        return known.anchor
    like = [item for item in known.findings if item.role == finding.role and is_slow(item)]
    return min(like, key=lambda item: abs(item.onset_step - finding.onset_step), default=known.anchor)


def is_aftermath(known: Group, finding: Finding) -> bool:
    """A lesser finding of the training dynamics soon after a divergence or non-finite values began is their wake."""
    if finding.severity > 2 or finding.role not in DYNAMICS or not known.unrecovered:
        return False
    return any(_begins_in(finding, item) for item in known.causes)


def _begins_in(finding: Finding, cause: Finding) -> bool:
    """Soon after the cause, or (of what is seen over a window) before it, but seen with it inside the window."""
    gap = finding.onset_step - cause.onset_step
    if gap < 0:
        return is_slow(finding) and -gap <= window(finding, cause) and cause.onset_step <= finding.detected_step
    return gap <= 4 * window(finding, cause)
