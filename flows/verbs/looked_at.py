"""One thing that `watchkeeper doctor` looked at."""

from dataclasses import dataclass

OK, BROKEN, STALE, UNCHECKED = "ok", "broken", "stale", "not checked"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: state is ok, broken, stale or not checked."""

    what: str
    state: str
    detail: str
