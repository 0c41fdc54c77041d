"""Upkeep of the store: old samples thinned by the owner's rule, a run at a time under its lease."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from flows.errors import LeaseTaken
from flows.sections import RetentionSection
from flows.store import Rule, Store

LEASE_SECONDS = 900.0


def rule_of(section: RetentionSection, now: float) -> Rule:
    """The rule of the configuration as it stands at `now` (unix seconds)."""
    at = datetime.fromtimestamp(now, UTC).replace(tzinfo=None)
    return Rule(at - timedelta(days=section.full_days), section.keep_one_of)


def thin(store: Store, section: RetentionSection, clock: Callable[[], float]) -> int:
    """Thin every run that no pass is at work on; returns how many samples were left out."""
    rule, removed = rule_of(section, clock()), 0
    for run in store.runs()["run"]:
        try:
            with store.lease(run, "upkeep", LEASE_SECONDS) as lease:
                for part in store.thinnable(run, rule):
                    removed += store.thin(run, part, rule)
                    lease.renew()
        except LeaseTaken:
            continue  # the next upkeep comes tomorrow
    return removed
