"""Which cases a benchmark consists of, and how each comes to be. A plan is cheap; its case is written when it is judged."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import base
import inject
import null
from cases import Case
from recorded import recorded_cases
from split import HALVES, half_of_seed, seeds_of

FAMILIES = ("recorded", "injected", "scenario", "null")


@dataclass(frozen=True)
class Plan:
    """One case to be: `of` is a recorded case (recorded, injected); `name` a fault or a scenario."""

    family: str
    half: str
    name: str = ""
    seed: int = 0
    amplitude: float = 0.0
    of: Case | None = None

    @property
    def title(self) -> str:
        """What it is called when it could not be written."""
        return f"{self.family}/{self.of.name if self.of else ''}/{self.name}-{self.amplitude:g}-{self.seed}"


def make(plan: Plan, folder: Path) -> Case:
    """Write the case into `folder`; a recording is taken as it lies."""
    if plan.family == "recorded":
        assert plan.of is not None
        return plan.of
    if plan.family == "injected":
        assert plan.of is not None
        healthy = base.base_of(plan.of)
        assert healthy is not None
        return inject.write(healthy, plan.name, plan.amplitude, plan.seed, folder)
    if plan.family == "null":
        return null.write(plan.seed, folder)
    import scenarios

    return scenarios.write(plan.name, folder, plan.seed, plan.half)


def recorded() -> list[Plan]:
    """Every recording."""
    return [Plan("recorded", case.half, of=case) for case in recorded_cases()]


def injected(placements: int, names: Sequence[str] = (), faults: Sequence[str] = ()) -> list[Plan]:
    """`placements` of every fault (or of the named ones) and amplitude; each half has half of them, in turn over its base runs.

    Placement by placement, so that a run that is cut short has seen every fault.
    """
    out: list[list[Plan]] = []
    chosen = base.choose([*recorded_cases(), *base.made_cases()], names)
    for half in HALVES:
        mine = [(case, run) for case in chosen if case.half == half and (run := base.base_of(case))]
        for k, seed in enumerate(seeds_of(half, placements // 2) if mine else ()):
            lap = []
            for j, fault in enumerate(faults or inject.FAULTS):
                fitting = [case for case, run in mine if inject.possible(run, fault)]
                case = fitting[(k + j) % len(fitting)] if fitting else None
                lap += [
                    Plan("injected", half, fault, seed, float(a), case) for a in inject.FAULTS[fault].ladder if case
                ]
            out += [lap] if lap else []
    laps = sorted(range(len(out)), key=lambda k: out[k][0].seed)
    return [plan for k in laps for plan in out[k]]


def scenario(seeds: int) -> list[Plan]:
    """Every scenario with the seeds from 1 on."""
    import scenarios

    return [
        Plan("scenario", half_of_seed(seed), name, seed) for seed in range(1, seeds + 1) for name in scenarios.SCENARIOS
    ]


def nulls(samples: int) -> list[Plan]:
    """As many null runs as make `samples`, rounded up."""
    return [Plan("null", half_of_seed(seed), seed=seed) for seed in range(1, -(-samples // null.SAMPLES) + 1)]
