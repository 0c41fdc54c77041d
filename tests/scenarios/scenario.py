"""What a scenario is, and numbers that remember where they come from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import polars as pl
from cases import Truth

from flows.sources.roles import ROLES

LOSS = frozenset({"loss"})
GRAD = frozenset({"grad_norm"})
UPDATE = frozenset({"update_norm"})
NORM = frozenset({"param_norm"})
SPEED = frozenset({"mfu", "throughput", "step_time"})
DROPS = frozenset({"token_drop"})
EVALS = frozenset({"eval_loss"})
SCORES = frozenset({"eval_score"})
RATE = frozenset({"learning_rate"})
ANY = frozenset(ROLES)  # a gap in time or a rewind is no metric's own


class Figure(float):
    """A number with its origin; computes like any float."""

    origin = ""


class Published(Figure):
    """Stands in the source of the scenario."""

    origin = "published"


class Derived(Figure):
    """Follows from published numbers by arithmetic, or is inferred from the order of published steps."""

    origin = "derived"


class Assumed(Figure):
    """Ours: the source tells the shape but not this number."""

    origin = "assumed"


Build = Callable[[np.random.Generator, bool], pl.DataFrame]  # (chance, with the incident?) -> rows in log order


@dataclass(frozen=True)
class Scenario:
    """One published incident. `build` gives the same stretch of the run with it or, as if nothing had been, without."""

    name: str
    source: str
    summary: str
    figures: SimpleNamespace
    build: Build
    truths: tuple[Truth, ...]
    events: tuple[Mapping[str, object], ...] = ()
    seconds_per_step: float | None = None  # None: the log's own times


def event(
    kind: str, step: float, note: str, *, known_at: float | None = None, until: float | None = None
) -> dict[str, object]:
    """Known from its own step on, or from `known_at`; it lasts until `until` if that is given."""
    lasts = {} if until is None else {"end_step": int(until)}
    return {
        "kind": kind,
        "step": int(step),
        **lasts,
        "recorded_at_step": int(step if known_at is None else known_at),
        "note": note,
    }


def truth(
    fault: str,
    kind: str,
    roles: frozenset[str],
    onset: float,
    end: float,
    severity: int,
    patterns: tuple[str, ...] = (),
    *,
    visible: float | None = None,
    benign: bool = False,
) -> Truth:
    """A Truth of a replayed fault; visible at its onset unless told."""
    seen = int(onset if visible is None else visible)
    return Truth(fault, kind, roles, int(onset), seen, int(end), severity, patterns, benign)
