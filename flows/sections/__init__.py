"""The sections of watchkeeper.toml, each with what it may hold; config.py reads the file."""

from flows.sections.alerting import ChannelSection, DigestSection, LimitSection, QuietSection, RouteSection
from flows.sections.keeping import RecordSection, RetentionSection, StoreSection, WatchSection
from flows.sections.ladder import LadderSection, RungSection, SizeSection
from flows.sections.rules import BoundSection, CheckSection, PatternSection
from flows.sections.runs import MixtureSection, PlanSection, RoleSection, RunSection, SegmentSection, StageSection
from flows.sections.section import OURS, SEVERITIES, Section, Severity

__all__ = [
    "OURS",
    "SEVERITIES",
    "BoundSection",
    "ChannelSection",
    "CheckSection",
    "DigestSection",
    "LadderSection",
    "LimitSection",
    "MixtureSection",
    "PatternSection",
    "PlanSection",
    "QuietSection",
    "RecordSection",
    "RetentionSection",
    "RoleSection",
    "RouteSection",
    "RunSection",
    "RungSection",
    "Section",
    "SegmentSection",
    "Severity",
    "SizeSection",
    "StageSection",
    "StoreSection",
    "WatchSection",
]
