"""The life of an incident as data: its states, the words that move it, and what may follow what.

    pending -> firing <-> cooling -> resolved -> firing (the same incident, inside its window)

What is pending (it goes on, but not for as long as was asked) is no incident yet: it has no row and nobody is told, but
its beginning and its end are in the log (`pending.py`). A cooling incident is still open: everything in it has recovered,
and stays quiet for `cooling` steps before it is said to be over, so that what flaps is one incident and not a message a
turn. Missing data moves nothing: only samples and people do.
"""

from collections.abc import Mapping, Sequence

from detectors.finding import Finding, cadence
from flows.incidents.incident import OWN
from flows.incidents.reach import SHARE, WIDE, is_brief, seen

PENDING, FIRING, COOLING, RESOLVED = STATES = ("pending", "firing", "cooling", "resolved")
DROPPED = "dropped"  # what was pending came to nothing
OPEN = frozenset({FIRING, COOLING})
UNSEEN = ""  # nothing of it in the log yet, as of an incident older than the log

# what the judge and people say moves an incident from state to state; words that are not here move nothing (ack, note ...)
MOVES: Mapping[tuple[str, str], str] = {
    (UNSEEN, PENDING): PENDING,
    (PENDING, DROPPED): UNSEEN,
    **{(state, "opened"): FIRING for state in (UNSEEN, PENDING)},
    **{(UNSEEN, word): FIRING for word in ("escalated", "lowered", "reopened", "still", "firing")},
    **{(FIRING, word): FIRING for word in ("escalated", "lowered", "still")},
    **{(COOLING, word): COOLING for word in ("escalated", "lowered", "still")},
    **{(state, "cooling"): COOLING for state in (UNSEEN, FIRING)},
    (COOLING, "firing"): FIRING,
    **{(state, word): RESOLVED for state in (UNSEEN, FIRING, COOLING) for word in ("resolved", "resolve")},
    **{(RESOLVED, word): RESOLVED for word in ("escalated", "lowered", "resolve")},
    (RESOLVED, "reopened"): FIRING,
    # what was kept back is told late, as it stands then
    **{(state, word): state for state in (FIRING, COOLING) for word in ("opened", "reopened")},
    (RESOLVED, "resolved"): RESOLVED,
}


def moved(state: str, word: str) -> str:
    """The state after a word; a word that may not follow leaves it as it is."""
    return MOVES.get((state, word), state)


def cooling(findings: Sequence[Finding]) -> float:
    """Steps that an incident must stay quiet after its last recovery before it is over.

    64 samples of its coarsest metric, but at most 2 % of the steps seen and at least 2 samples. None for annotations, for
    an excursion of one or two samples, which is over before anything could come of it, and for a user's own bound or
    check, which says itself when it is over.
    """
    if all(is_brief(item) or item.detector in OWN or not item.severity for item in findings):
        return 0.0
    return max(min(WIDE * cadence(item), max(SHARE * seen(item), 2 * cadence(item))) for item in findings)
