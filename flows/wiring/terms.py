"""Sections of the configuration as the stages take them."""

from fnmatch import fnmatchcase

from detectors.bounds import Bound
from flows.config import Config
from flows.record.places import Served
from flows.record.veil import Policy
from flows.sections import SEVERITIES, CheckSection, RecordSection
from flows.stages import checks
from flows.stages.bounds import Watched
from flows.stages.gather import Terms


def check_of(section: CheckSection) -> checks.Check:
    """A check as its stage takes it."""
    return checks.Check(section.label, section.sql, SEVERITIES.index(section.severity), section.why)


def watched_bounds(config: Config, run: str) -> list[Watched]:
    """The user's own bounds for a run, one for each side."""
    return [
        Watched(
            Bound(side, limit, each.samples, SEVERITIES.index(each.severity), each.why),
            each.metric or "",
            each.role or "",
        )
        for each in config.bound
        if fnmatchcase(run, each.run)
        for side, limit in (("above", each.above), ("below", each.below))
        if limit is not None
    ]


def terms_of(section: RecordSection) -> Terms:
    """The terms of publishing as the record's stage takes them."""
    return Terms(_policy(section), section.title, section.links, section.samples)


def served(section: RecordSection) -> Served:
    """Where the record stands, and what it has a page of."""
    return Served(section.url, _policy(section))


def _policy(section: RecordSection) -> Policy:
    return Policy(section.runs, section.metrics, frozenset(section.show), section.names)
