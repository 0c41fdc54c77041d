"""Gaps in the wall clock of a log: rows that a tracker refused, or a run that stood still."""

from collections import deque
from statistics import median

LEAST_SECONDS = 600.0
TIMES_USUAL = 20.0
KNOWN = 20  # spacings before anything is a gap
_REMEMBERED = 200


class ClockGaps:
    """Told the time of each row (seconds); `seen` notes where rows were missing. Goes on from `last` and `usual`."""

    def __init__(self, last: float | None = None, usual: float | None = None) -> None:
        self.last = last
        self.seen: dict[str, int] = {}
        # what was usual before stands for the spacings that are not remembered
        self._spacings = deque([usual] * KNOWN if usual is not None else [], maxlen=_REMEMBERED)

    @property
    def usual(self) -> float | None:
        """Median seconds between rows, None before enough were seen."""
        return median(self._spacings) if len(self._spacings) >= KNOWN else None

    def add(self, seconds: float, step: float) -> None:
        """The next row in the order of the log."""
        gap = None if self.last is None else seconds - self.last
        self.last = seconds
        if gap is None or gap < 0:
            return
        if gap > LEAST_SECONDS and (usual := self.usual) is not None and gap > TIMES_USUAL * usual:
            note = (
                f"no rows for {gap / 60:,.0f} min before step {step:,.15g}: the run stood still, or it was restarted "
                "and the tracker refused the steps that it went through again"
            )
            self.seen[note] = 1
            return
        self._spacings.append(gap)
