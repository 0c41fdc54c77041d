"""Pure detectors: arrays in, findings out. No file, no database, no clock."""

from detectors.finding import Answer, Finding, NotChecked, Recovery
from detectors.series import Series
from detectors.suite import inspect

__all__ = ["Answer", "Finding", "NotChecked", "Recovery", "Series", "inspect"]
