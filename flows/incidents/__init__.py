"""Findings of one origin become one incident, with severity, a sentence, a cause and what others did. Pure."""

from detectors.pattern import Check, Hypothesis, Suggestion
from flows.incidents.incident import Incident, Transition
from flows.incidents.lifecycle import fold, may_change, remembered, superseded, transitions

__all__ = [
    "Check",
    "Hypothesis",
    "Incident",
    "Suggestion",
    "Transition",
    "fold",
    "may_change",
    "remembered",
    "superseded",
    "transitions",
]
