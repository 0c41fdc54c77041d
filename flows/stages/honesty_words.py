"""What is known of a log, as sentences of the coverage: one of a kind, with its numbers."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flows.messages.plain import plain, step
from flows.records import Role
from flows.sources.stepkey import counts_steps
from flows.stages.honesty import FEW_NAMES, JUMPS_BACK, MANY_DISTANCES, MOST_PLACES, Facts
from flows.stages.strides import LASTING

FEWEST = 20  # values of one step again, or behind others, that tell of a second writer
FEWEST_ROWS = 100
NAME_CHARS = 60


def said(facts: Facts, step_key: str, role_of: Callable[[str], Role]) -> dict[str, int]:
    """Sentence -> how many rows or values it speaks of."""
    found = {
        **_epochs(facts, step_key),
        **_clock(facts),
        **_twice(facts),
        **_strands(facts),
        **_zeros(facts),
        **_skipped(facts),
    }
    if not counts_steps(step_key):
        return found  # tokens and samples have no rhythm to break
    return {**found, **_missing(facts), **_irregular(facts), **_rhythms(facts), **_sparse_loss(facts, role_of)}


def _metrics(count: int, names: Sequence[str]) -> str:
    """The first names, and how many more."""
    shown = [plain(name, NAME_CHARS) for name in names[:FEW_NAMES]]
    more = count - len(shown)
    return (
        f"{', '.join(shown)} and {more:,} more"
        if more
        else " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
    )


def _epochs(facts: Facts, step_key: str) -> dict[str, int]:
    key, found = plain(step_key, NAME_CHARS), {}
    if facts.joined:
        found[
            f"{key} starts over while the run goes on ({_times(facts.joined)}), as with a new epoch: one is read behind the "
            "other, with steps that count on; --step-key names the step to take"
        ] = facts.joined
    if facts.epochs:
        found[
            f"{key} starts over with a new epoch ({_times(facts.epochs)}), which is taken for a run that went back: log a "
            "step that goes on, or name one with --step-key"
        ] = facts.epochs
    return found


def _times(count: int) -> str:
    return f"{count:,} time{'s' * (count > 1)}"


def _missing(facts: Facts) -> dict[str, int]:
    places = facts.missing
    if not places or _evenly(places):
        return {}
    rows = sum(_absent(place) for place in places)
    after, before, distance, count, names = max(places, key=_absent)
    where = f"between steps {step(after)} and {step(before)}"
    if len(places) > 1:
        where = f"at {_many(places)} places, the largest {where}"
    return {
        f"{rows:,} row{'s' * (rows > 1)} missing {where}, although every {_nth(distance)} was logged before and "
        f"after ({_metrics(count, names)})": rows
    }


def _skipped(facts: Facts) -> dict[str, int]:
    """Places where more metrics go on than skip: else another kind of row stands there. Evenly spaced, it is meant so."""
    kept = [place for at, place in enumerate(facts.skipped) if place[3] <= facts.sisters[str(at)]]
    alike: dict[tuple[str, ...], list[list[Any]]] = {}
    for place in kept:
        alike.setdefault(tuple(place[4]), []).append(place)
    places = [place for group in alike.values() if not _evenly(group) for place in group]
    if not places:
        return {}
    values = sum(_absent(place) * place[3] for place in places)
    names = list(dict.fromkeys(name for place in places for name in place[4]))
    first = min(places)
    shown = f"{_many(places)} place{'s' * (len(places) > 1)}, first behind step {step(first[0])}"
    return {
        f"{values:,} value{'s' * (values > 1)} left out at {shown}, where the other metrics of the row have theirs "
        f"({_metrics(len(names), names)}): NaN may have been dropped": values
    }


def _irregular(facts: Facts) -> dict[str, int]:
    if facts.rows < FEWEST_ROWS or facts.changes < 0.7 * facts.rows or len(facts.distances) <= MANY_DISTANCES:
        return {}
    low, high = min(facts.distances), max(facts.distances)
    return {
        f"{facts.rows + 1:,} rows at irregular steps (the first ones {step(low)} to {step(high)} apart): a sample of the "
        "history, or thinned out; what lies between is not seen": facts.rows + 1
    }


def _rhythms(facts: Facts) -> dict[str, int]:
    if not facts.rhythms:
        return {}
    at, old, new, count, names = facts.rhythms[0]
    times = f", and at {len(facts.rhythms) - 1:,} more places" if len(facts.rhythms) > 1 else ""
    thinned = ": older rows may have been thinned out" if old > new else ""
    return {
        f"the distance between logged steps changes from {step(old)} to {step(new)} at step {step(at)}{times} "
        f"({_metrics(count, names)}){thinned}": len(facts.rhythms)
    }


def _sparse_loss(facts: Facts, role_of: Callable[[str], Role]) -> dict[str, int]:
    """A loss in a part of the rows only, while most metrics stand in each."""
    strides = facts.strides
    settled = strides.count[:, 2] >= LASTING
    mine = [at for at in np.flatnonzero(settled) if role_of(strides.names[at]).role == "loss"]
    if not mine:
        return {}
    lead = min(mine, key=lambda at: strides.stride[at, 2])
    coarse = strides.stride[lead, 2]
    fine = settled & (strides.stride[:, 2] * 2 <= coarse)
    if 2 * fine.sum() <= len(strides.names):
        return {}
    usual = float(np.median(strides.stride[fine, 2]))
    name = plain(strides.names[lead], NAME_CHARS)
    return {
        f"{name} stands at every {_nth(coarse)} only, {int(fine.sum())} of {len(strides.names)} metrics at every "
        f"{_nth(usual)}: what the loss did between is not seen": int(facts.counts[strides.names[lead]][0])
    }


def _clock(facts: Facts) -> dict[str, int]:
    if not facts.clock:
        return {}
    times, most, at = facts.clock
    return {
        f"the clock of the log goes back {times:,.0f} time{'s' * (times > 1)} while the steps go on, by up to "
        f"{_duration(most)}, first at step {step(at)}: times between rows are not to be trusted there": int(times)
    }


def _twice(facts: Facts) -> dict[str, int]:
    names = [n for n, (size, again, *_) in facts.counts.items() if again >= FEWEST and again >= 0.4 * size]
    if not names:
        return {}
    most = max(facts.counts[name][1] for name in names)
    return {
        f"{most:,} steps hold more than one value throughout ({_metrics(len(names), names)}): two writers in one log, or "
        "a step that stands for several rows; the last value is kept": most
    }


def _strands(facts: Facts) -> dict[str, int]:
    names = [n for n, (size, _, late, *_) in facts.counts.items() if late >= FEWEST and late >= 0.2 * size]
    if not names and facts.jumps < JUMPS_BACK:
        return {}
    if not names:
        return {
            f"the steps go back and {facts.jumps:,} times on from where they were before: two runs write into one log, and "
            "what is shown of it is a mixture": facts.jumps
        }
    late = sum(facts.counts[name][2] for name in names)
    size = sum(facts.counts[name][0] for name in names)
    what = "the rows stand in reverse order" if late >= 0.95 * size else "two strands of steps in one log"
    return {
        f"{late:,} of {size:,} values stand behind those of later steps ({_metrics(len(names), names)}): {what}": late
    }


def _zeros(facts: Facts) -> dict[str, int]:
    names = [n for n, (size, *_, zeros) in facts.counts.items() if size >= FEWEST_ROWS and 0 < zeros <= 0.05 * size]
    if not names:
        return {}
    zeros = sum(facts.counts[name][3] for name in names)
    return {
        f"{zeros:,} value{'s' * (zeros > 1)} of exactly 0 among others ({_metrics(len(names), names)}): no loss and no norm "
        "is 0, so NaN may have been written as 0": zeros
    }


def _absent(place: Sequence[Any]) -> int:
    after, before, distance = place[:3]
    return max(round((float(before) - float(after)) / float(distance)) - 1, 1)


def _evenly(places: Sequence[Sequence[Any]]) -> bool:
    """Three or more places, equally far apart and equally large: the trainer's own rhythm."""
    starts, widths = np.array([p[0] for p in places]), {p[1] - p[0] for p in places}
    return len(places) >= 3 and len(widths) == 1 and len(np.unique(np.diff(starts))) == 1


def _many(places: Sequence[Any]) -> str:
    return f"{len(places):,} or more" if len(places) >= MOST_PLACES else f"{len(places):,}"


def _nth(distance: float) -> str:
    """10th step; step."""
    if distance == 1:
        return "step"
    last = int(distance) % 100
    ending = "th" if 10 < last < 20 else {1: "st", 2: "nd", 3: "rd"}.get(last % 10, "th")
    return f"{step(distance)}{ending} step"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
