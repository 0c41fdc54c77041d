"""Which source runs look like one training that was restarted: a proposal, in the order in which they began.

Runs may belong together when they are called alike but for what marks a restart (`hero`, `hero-r2`, `hero_resume3`), when
the tracker has them in one group, when one was forked from another, or when a name tells the step at which it begins
(`hero-nccl-step81k`). They are one only if each later run begins behind the beginning of one before it and no further than
directly behind its end, and not while another of them was still writing: two members of a sweep begin at the same step.
Where a run would fit two of them, nothing is proposed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flows.records import Kin

DIRECTLY = 2  # times the usual distance of two steps
_WORD = r"(?:r|rs|v|run|resumed?|restart(?:ed)?|relaunch(?:ed)?|retry|attempt|try|cont(?:inued?)?|part|seg(?:ment)?)"
_MARK = re.compile(rf"(?:[-_. ]{_WORD}[-_.]?\d*|[-_. ]\d+| [a-z0-9]{{8}})$", re.IGNORECASE)
_FROM = re.compile(r"(?:^|[-_.])(?:step|from|at|s)[-_]?(\d+)(k|m)?$", re.IGNORECASE)
_TIMES = {"": 1.0, "k": 1e3, "m": 1e6}


@dataclass(frozen=True)
class Seen:
    """What was read of a run: its steps, sorted and each once; `whole` says that they go to its end.

    `began` and `ended` are seconds since 1970 of its first and last row, None where it has no clock.
    """

    source: str
    run: str
    steps: NDArray[np.float64]
    whole: bool = True
    began: float | None = None
    ended: float | None = None
    kin: Kin = field(default_factory=Kin)

    @property
    def first(self) -> float:
        return float(self.steps[0])

    @property
    def last(self) -> float:
        return float(self.steps[-1])


@dataclass(frozen=True)
class Part:
    """A segment as it is proposed: `last` is its last valid step where a later one holds behind it, `parent` a source.

    `parent` is "" for the segment before.
    """

    seen: Seen
    reason: str
    parent: str = ""
    last: float | None = None


@dataclass(frozen=True)
class Proposal:
    """A logical run: its name, why its parts are thought to be one, and they in their order."""

    name: str
    why: str
    parts: Sequence[Part]


def propose(runs: Sequence[Seen]) -> list[Proposal]:
    """The logical runs among these, of two segments or more, in the order of their first."""
    found = []
    for family, why in _families(runs):
        found += [_proposal(line, why) for line in _lines(family) if len(line) > 1]
    return found


def akin(runs: Sequence[Seen]) -> list[Seen]:
    """Those that have a reason to be one with another of them: the others need not be read further."""
    return [each for family, _ in _families(runs) if len(family) > 1 for each in family]


def stem(name: str) -> str:
    """A name without what marks a restart: `hero_resume3` and `hero-r2` are `hero`."""
    while cut := _MARK.search(name):
        if not cut.start():
            break
        name = name[: cut.start()]
    return name


def _families(runs: Sequence[Seen]) -> list[tuple[list[Seen], str]]:
    """Runs that have a reason to be one, and the strongest reason of theirs."""
    families: list[tuple[list[Seen], str]] = []
    for each in (each for each in runs if len(each.steps)):
        mine: list[Seen] = [each]
        whys: list[str] = []
        rest = []
        for family, why in families:
            reasons = [reason for other in family if (reason := _kinship(each, other))]
            if reasons:
                mine, whys = [*family, *mine], [*whys, why, *reasons]
            else:
                rest.append((family, why))
        families = [*rest, (mine, next((why for why in whys if why), ""))]
    return families


def _kinship(one: Seen, other: Seen) -> str:
    """Why two runs may be one, or ""."""
    if (one.kin.parent and one.kin.parent == other.kin.id) or (other.kin.parent and other.kin.parent == one.kin.id):
        return "one was forked from the other"
    if one.kin.group and one.kin.group == other.kin.group:
        return f"the tracker has them in one group ({one.kin.group})"
    if stem(one.run) == stem(other.run):
        return f"they are called alike ({stem(one.run)})"
    early, late = sorted((one, other), key=lambda each: each.first)
    if _told(late) and _word(one) == _word(other) and early.first < late.first <= _reach(early):
        return f"they are called {_word(one)}..., and names tell the step at which they begin"
    return ""


def _word(seen: Seen) -> str:
    return re.split(r"[-_. ]", seen.run, maxsplit=1)[0]


def _told(seen: Seen) -> bool:
    """Whether its name tells the step at which it begins, to the digits that it gives."""
    said = _FROM.search(seen.run)
    if said is None:
        return False
    unit = _TIMES[(said[2] or "").lower()]
    return 0 <= seen.first - float(said[1]) * unit <= max(unit, 1.0)


def _lines(family: Sequence[Seen]) -> list[list[tuple[Seen, Seen | None]]]:
    """The runs of a family strung together, each with the one that it goes on from; none where it is not clear how."""
    clocked = all(each.began is not None and each.ended is not None for each in family)
    if not clocked and len({each.first for each in family}) < len(family):
        return []
    ordered = sorted(family, key=lambda each: (each.began if clocked else 0.0, each.first))
    lines: list[list[tuple[Seen, Seen | None]]] = []
    for each in ordered:
        fitting = [(line, parent) for line in lines if (parent := _parent(each, [seen for seen, _ in line], clocked))]
        if len(fitting) > 1:
            return []
        if fitting:
            line, parent = fitting[0]
            line.append((each, parent))
        else:
            lines.append([(each, None)])
    return lines


def _parent(each: Seen, before: Sequence[Seen], clocked: bool) -> Seen | None:
    """The newest of those before that a run can go on from."""
    ended = [other.ended for other in before if other.ended is not None]
    if clocked and each.began is not None and ended and each.began < max(ended):
        return None
    named = [other for other in before if each.kin.parent and other.kin.id == each.kin.parent]
    fitting = [other for other in named or before if other.first < each.first and each.first <= _reach(other)]
    return fitting[-1] if fitting else None


def _reach(seen: Seen) -> float:
    """The highest step at which another may go on from it; infinity where it was not read to its end."""
    if not seen.whole:
        return np.inf
    usual = float(np.median(np.diff(seen.steps))) if len(seen.steps) > 1 else 0.0
    return seen.last + DIRECTLY * usual


def _proposal(line: Sequence[tuple[Seen, Seen | None]], why: str) -> Proposal:
    names = {stem(each.run) for each, _ in line}
    parts = []
    before: Seen | None = None
    for each, parent in line:
        cut = min((other.first for other, its in line if its is each), default=None)
        below = each.steps[each.steps < cut] if cut is not None else each.steps
        last = float(below[-1]) if len(below) and len(below) < len(each.steps) else None
        forked = parent is not None and each.kin.parent == parent.kin.id != ""
        reason = "start" if parent is None else "fork" if forked else "restart"
        parts.append(Part(each, reason, "" if parent is None or parent is before else parent.source, last))
        before = each
    return Proposal(names.pop() if len(names) == 1 else line[0][0].run, why, parts)
