"""What the proving ground is made of: cases with their truth, and the alarms that a system raises on them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

NOTE, INVESTIGATE, PAGE = 1, 2, 3  # severities S1 to S3; an alarm is what has S2 or more


@dataclass(frozen=True)
class Truth:
    """One thing that happened in a run.

    Steps are on the run's own axis. An alarm of one of `roles` whose step lies in [onset - 8, end] answers it.
    `benign` marks what was planned or harmless: an alarm that answers it is a false page of its own kind.
    `amplitude` is in the unit of the fault's ladder (see inject.py); recorded and replayed faults have none.
    """

    fault: str  # the row of the recall table: "lr_too_high", "spike", ...
    kind: str  # a finding's kind: spike, level, divergence, nonfinite, trend, variance, schedule, invariant, stall, rewind
    roles: frozenset[str]
    onset: int  # the first step that the cause touched
    visible: int  # the first step at which the effect exceeds one standard deviation of its metric; onset <= visible
    end: int  # the last step at which an alarm is still an answer
    severity: int  # the least severity that is right: 0 to 4
    patterns: tuple[str, ...] = ()  # entries of detectors/playbook that name the cause rightly; () asks for none
    benign: bool = False
    amplitude: float | None = None


@dataclass(frozen=True)
class Case:
    """One log file that every system reads, and what is true of it."""

    name: str
    family: str  # recorded, injected, scenario
    half: str  # tuning or held_out, by split.toml
    log: Path  # any format of flows.sources
    truths: tuple[Truth, ...]
    events: tuple[Mapping[str, object], ...] = ()  # known at the time: kind, step, recorded_at_step, note
    seconds_per_step: float | None = None  # None: the log's own times


@dataclass(frozen=True)
class Alarm:
    """What a system says about a run, at the first moment it says it."""

    step: int  # the step it had read when it spoke
    onset: int  # the step it names as the beginning; its own step where it names none
    metric: str
    role: str  # as flows.sources.roles has it
    severity: int
    kind: str = ""
    patterns: tuple[str, ...] = ()  # ranked causes, the first is the best


# A system reads one case and says all its alarms in the order of `step`. Nothing is kept between cases.
System = Callable[[Case], list[Alarm]]
