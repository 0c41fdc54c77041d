"""The systems that are compared, each a function of a case."""

from systems.registry import SYSTEMS

__all__ = ["SYSTEMS"]
