"""Pure detectors: arrays in, findings out. No file, no database, no clock."""

from detectors.finding import Answer, Finding, NotChecked, Recovery
from detectors.segments import change_points
from detectors.series import Series
from detectors.suite import inspect

__all__ = ["Answer", "Finding", "NotChecked", "Recovery", "Series", "change_points", "inspect"]
