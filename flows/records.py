"""The values that pass between the rooms. Frozen; none of them knows where it came from or where it goes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

# what a source yields: one row a sample, in the order in which the run wrote them
SAMPLE_SCHEMA: dict[str, pl.DataType] = {
    "step": pl.Float64(),
    "logged_at": pl.Datetime("us"),  # naive UTC; null where the source has no clock
    "name": pl.String(),
    "value": pl.Float64(),
}

# what the store keeps of it: `attempt` and `late` are the pull stage's verdict on the order of the rows
STORED_SCHEMA: dict[str, pl.DataType] = {**SAMPLE_SCHEMA, "attempt": pl.Int32(), "late": pl.Boolean()}


@dataclass(frozen=True)
class Kin:
    """What a tracker says of how its runs belong together: their own id, their group, the id they were forked from."""

    id: str = ""
    group: str = ""
    parent: str = ""


@dataclass(frozen=True)
class Description:
    """What a source is, before anything is read from it."""

    run: str
    source: str  # what was read, as the user named it
    format: str  # jsonl, csv, parquet, trainer_state ...
    step_key: str  # which column gave the step
    kin: Kin = Kin()


@dataclass(frozen=True)
class Begin:
    """That a new attempt begins where the source does not go back: another segment of a logical run.

    `segment` is what is read from here on, `parent` the segment that it goes on from ("" for the one before), `last` the
    last step of that one which is valid (None: all of it), `reason` why it began.
    """

    segment: str
    parent: str = ""
    last: float | None = None
    reason: str = "segment"


@dataclass(frozen=True)
class Batch:
    """Rows (SAMPLE_SCHEMA, source order) and the cursor that stands behind them.

    `restart` says that the source begins again from its first row (the file was replaced): rows that are stored
    already are then to be expected. `notes` counts what was passed over, such as {"no JSON": 3}. With `begins` the first
    row (there is one) begins a new attempt.
    """

    rows: pl.DataFrame
    cursor: str
    restart: bool = False
    notes: Mapping[str, int] = field(default_factory=dict)
    begins: Begin | None = None


@dataclass(frozen=True)
class Role:
    """Which quantity a metric is. Unit and healthy direction are for display and for one-sided rules."""

    role: str  # a name of docs/roles.md
    unit: str = ""
    healthy: str = "none"  # up, down, flat, none: where a healthy run takes it
    group: str = ""  # layer or leaf for grouped metrics, "" for a whole-run metric


ANEW = "anew"  # of an attempt: it went back to the first step of a run, so that nothing was restored


@dataclass(frozen=True)
class Attempt:
    """One stretch of a run between restarts. Its steps before `valid_until` are part of the run as it stands."""

    attempt: int
    first_step: float
    parent: int | None
    reason: str  # start, rewind, ANEW; of a segment what the configuration says
    valid_until: float | None = None
    source: str = ""  # of a logical run with several: which one


@dataclass(frozen=True)
class Event:
    """What was planned or done. It counts from `recorded_at` on (seconds, UTC)."""

    kind: str
    step: float
    end_step: float | None = None
    note: str = ""
    recorded_at: float | None = None
    source: str = "user"
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Expected:
    """What was expected of a run, and when that was said (unix seconds). Never changed: another one has another version.

    `body["from_step"]` is the last step that was known then (None: none): it judges only what came later.
    """

    run: str
    name: str  # ladder, prediction
    version: str
    recorded_at: float
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Operation:
    """One line of the log of incidents: what a person did to one, or what the judge said of it. Never changed.

    `kind` is of a person ack, snooze, resolve, note, right, wrong, known, mute, unmute; of the judge opened, escalated,
    lowered, reopened, resolved, still, and followed, worked, failed (how it goes on, and whether `metric`, an action such
    as rollback, helped against `pattern`). `run` is a shell pattern for mutes, which have no incident but a `metric` (shell
    pattern) or a `pattern` (name of a cause). `step`, `severity` and `findings` (how many) are what was known then, so
    that what came later can be told from it. `silent`: nobody was told. `turn` orders the log (0: not stored yet).
    """

    run: str
    kind: str
    who: str
    at: float  # unix seconds
    why: str = ""
    incident_id: str | None = None
    metric: str = ""
    pattern: str = ""
    until_time: float | None = None  # unix seconds
    until_step: float | None = None
    step: float | None = None
    severity: int | None = None
    findings: int | None = None
    silent: bool = False
    turn: int = 0
