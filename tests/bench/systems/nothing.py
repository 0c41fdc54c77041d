"""Answers nothing: no false alarm, and nothing found. The scorer must not praise it."""

from cases import Alarm, Case


def nothing(case: Case) -> list[Alarm]:
    """No alarm, whatever the case is."""
    del case
    return []
