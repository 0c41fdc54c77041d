"""How many alerts a run would have given, against what people are willing to take: "2 pages a week". Pure.

An incident counts once for each severity it reached, at the moment it first reached it: what goes on in its thread wakes
nobody again. Rates are over the whole time that was replayed, of all runs together; less than one span counts as one, for
a budget of two a week is not broken by the first page of a run of a day.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SECONDS = {"hour": 3_600.0, "day": 86_400.0, "week": 604_800.0, "month": 2_629_800.0}
PAGE = 3  # S3
LEVELS = {"page": PAGE, "pages": PAGE, "alert": 2, "alerts": 2, "message": 1, "messages": 1}


@dataclass(frozen=True)
class Budget:
    """At most `count` of severity `level` or more in `span`: seconds, or steps where `unit` is "steps"."""

    count: float
    level: int
    span: float
    unit: str  # hour, day, week, month or steps

    def __str__(self) -> str:
        span = f"per {self.span:,.0f} steps" if self.unit == "steps" else f"a {self.unit}"
        return f"{self.count:g} at S{self.level} or above {span}"


@dataclass(frozen=True)
class Reached:
    """An incident reached `severity` at `step`."""

    run: str
    incident: str
    step: float
    severity: int


def budget_of(text: str) -> Budget:
    """ "2 pages a week", "5 alerts per day", "1 page per 10,000 steps". Raises ValueError for anything else.

    A page is S3 or more, an alert S2, a message S1.
    """
    found = re.fullmatch(
        r"\s*(?:at most\s+)?([\d.,]+)\s+([a-z]+)\s+(?:a|an|per)\s+(?:([\d.,]+)\s+)?([a-z]+)\s*", text.lower()
    )
    numbers = [] if found is None else [_number(found[1]), _number(found[3] or "1")]
    if found is None or found[2] not in LEVELS or None in numbers:
        raise ValueError(f'{text!r} is no budget; say it as "2 pages a week" or "1 page per 10,000 steps"')
    count, many = (float(n) for n in numbers if n is not None)
    unit = found[4].removesuffix("s")
    if unit == "step":
        return Budget(count, LEVELS[found[2]], many, "steps")
    if unit not in SECONDS or many <= 0:
        raise ValueError(f"{found[4]!r} is no span of a budget; there are {', '.join(SECONDS)} and steps")
    return Budget(count / many, LEVELS[found[2]], SECONDS[unit], unit)


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if value > 0 else None


def counts(reached: Iterable[Reached]) -> dict[int, int]:
    """How many incidents reached S1, S2, S3 and S4."""
    seen = {(each.run, each.incident, each.severity) for each in reached}
    return {level: len({(run, name) for run, name, severity in seen if severity >= level}) for level in (1, 2, 3, 4)}


def quietest(reached: Sequence[Reached], budget: Budget, length: float) -> int | None:
    """The least severity (1 to 4) at which no more are told than the budget has; None when even S4 is too much.

    `length` is how much was replayed, in the budget's own measure (seconds or steps).
    """
    return next((level for level, many in counts(reached).items() if many <= allowed(budget, length)), None)


def allowed(budget: Budget, length: float) -> float:
    """How many the budget has for `length`."""
    return budget.count * max(length / budget.span, 1.0)
