"""The sections of watchkeeper.toml, each with what it may hold; config.py reads the file."""

from collections.abc import Collection
from datetime import time, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from flows.services import SECRET_URLS, Service, unmet
from flows.values import Address, Seconds, Secret

SEVERITIES = ("S0", "S1", "S2", "S3", "S4")
# set by us, not by the file
OURS = frozenset({"path", "written"})

Severity = Literal["S0", "S1", "S2", "S3", "S4"]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    @model_validator(mode="before")
    @classmethod
    def _not_ours(cls, given: Any) -> Any:
        if isinstance(given, dict) and (ours := OURS & given.keys()):
            raise ValueError(f"no such key: {', '.join(sorted(ours))}")
        return given


class RetentionSection(Section):
    """Samples older than `full_days` are thinned to one in `keep_one_of`; incidents and what surrounds them never are."""

    full_days: float = Field(ge=1, allow_inf_nan=False)
    keep_one_of: int = Field(default=16, ge=2, le=4096)


class StoreSection(Section):
    """Where watchkeeper keeps what it knows, and how long whole."""

    url: str = "watchkeeper.duckdb"
    retention: RetentionSection | None = None


class RoleSection(Section):
    """Which quantity the metrics of a pattern are, over what the dialects say."""

    role: str | None = None
    unit: str | None = None
    healthy: Literal["up", "down", "flat", "none"] | None = None
    group: str | None = None


class SegmentSection(Section):
    """One source run of a logical run, with its first and last valid step, and the segment that it goes on from."""

    source: str = Field(min_length=1)
    name: str = ""
    first: float | None = Field(default=None, allow_inf_nan=False)
    last: float | None = Field(default=None, allow_inf_nan=False)
    parent: str = ""
    reason: str = "segment"
    written: str = Field(default="", exclude=True)

    @property
    def label(self) -> str:
        """Its name, or the source as it stands in the file."""
        return self.name or self.written or self.source

    @model_validator(mode="after")
    def _in_order(self) -> "SegmentSection":
        if self.first is not None and self.last is not None and self.last < self.first:
            raise ValueError(f"last {self.last:g} lies before first {self.first:g}; swap them")
        return self


class StageSection(Section):
    """From which step on a quantity has which value."""

    step: float = Field(ge=0, allow_inf_nan=False)
    value: float = Field(gt=0, allow_inf_nan=False)


class MixtureSection(Section):
    """From which step on the data are others."""

    step: float = Field(ge=0, allow_inf_nan=False)
    name: str = ""


def _staged(given: Any) -> Any:
    """One number is one stage from the first step on."""
    return ({"step": 0, "value": given},) if isinstance(given, int | float) else given


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Staged = Annotated[tuple[StageSection, ...], BeforeValidator(_staged)]


class PlanSection(Section):
    """What a run is meant to do; what is left out was not planned. Steps are the run's own."""

    steps: Positive | None = None
    tokens_per_step: Staged = ()
    batch_size: Staged = ()
    sequence_length: Staged = ()
    peak_learning_rate: Positive | None = None
    warmup_steps: float = Field(default=0, ge=0, allow_inf_nan=False)
    schedule: Literal["constant", "linear", "cosine", "sqrt"] = "constant"
    decay_from: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    final_learning_rate: float = Field(default=0, ge=0, allow_inf_nan=False)
    mixture: tuple[MixtureSection, ...] = ()
    checkpoint_interval: Positive | None = None

    @model_validator(mode="after")
    def _whole(self) -> "PlanSection":
        for name in ("tokens_per_step", "batch_size", "sequence_length"):
            found = [each.step for each in getattr(self, name)]
            if found != sorted(set(found)):
                raise ValueError(f"{name}: give its stages by rising step")
        if self.schedule != "constant" and (self.steps is None or self.peak_learning_rate is None):
            raise ValueError(f"schedule {self.schedule} needs steps and peak_learning_rate")
        begin = max(self.warmup_steps, self.decay_from or 0)
        if self.steps is not None and begin >= self.steps:
            raise ValueError(f"warm-up or decay_from ({begin:g}) does not lie before the last of {self.steps:g} steps")
        return self


class SizeSection(Section):
    """How large a run is, how long it is meant to be, and what it ran with, as far as a ladder must know.

    `backend`, `batch` and `mix` are names of one's own: what differs from the large run is not compared where it matters.
    """

    active_parameters: Positive
    steps: Positive | None = None
    tokens_per_step: Positive | None = None
    backend: str = ""
    batch: str = ""
    mix: str = ""

    @property
    def settings(self) -> dict[str, str]:
        """What must be the same."""
        return {key: value for key in ("backend", "batch", "mix") if (value := getattr(self, key))}


class RungSection(SizeSection):
    """A smaller run of the same recipe, with the steps that were planned for it, whether or not it did them."""

    source: str = Field(min_length=1)
    name: str = Field(min_length=1)


class LadderSection(Section):
    """Smaller runs that tell what to expect of larger ones, aligned on the schedule or on tokens per active parameter."""

    align: Literal["schedule", "tokens_per_parameter"] = "schedule"
    rung: tuple[RungSection, ...] = ()


class RunSection(Section):
    """One thing to watch: a file or folder, or a URL; or, as one run, several that went on where others stopped."""

    source: str = ""
    segment: tuple[SegmentSection, ...] = ()
    name: str | None = Field(default=None, min_length=1)
    step_key: str | None = None
    tags: tuple[str, ...] = ()
    roles: dict[str, RoleSection] = {}
    plan: PlanSection | None = None
    ladder: SizeSection | None = None
    reference: str = ""
    gates: dict[str, Positive] = {}
    written: str = Field(default="", exclude=True)

    @model_validator(mode="after")
    def _one_or_several(self) -> "RunSection":
        if bool(self.source) == bool(self.segment):
            raise ValueError("set either source, or a [[run.segment]] for each source run of it")
        if self.segment and self.name is None:
            raise ValueError("name is missing; a run of several segments must have one")
        known: list[str] = []
        for each in self.segment:
            if each.label in known:
                raise ValueError(f"two segments are called {each.label}; give each its own name")
            if each.parent and each.parent not in known:
                before = ", ".join(known) or "none"
                raise ValueError(f"segment {each.label}: no segment before it is called {each.parent} ({before})")
            known.append(each.label)
        return self

    @property
    def label(self) -> str:
        """What to call it before its source was opened: its name, or the source as it stands in the file."""
        return self.name or self.written or self.source


class WatchSection(Section):
    """How often, and what to do beside alerting."""

    interval: Annotated[Seconds, Field(ge=1)] = 60.0
    cron: str | None = None
    heartbeat_url: Address | None = None
    remind: Annotated[Seconds, Field(ge=60)] | None = None
    out: Path | None = None

    @model_validator(mode="after")
    def _one_schedule(self) -> "WatchSection":
        if self.cron is not None and "interval" in self.model_fields_set:
            raise ValueError("interval and cron are both set; keep one of them")
        if self.cron is not None and len(self.cron.split()) != 5:
            raise ValueError(f"cron {self.cron!r} does not have five fields; write for instance '*/5 * * * *'")
        return self

    @property
    def every(self) -> timedelta:
        """The interval."""
        return timedelta(seconds=self.interval)


class QuietSection(Section):
    """Hours of the day in which a channel takes nothing below a severity; what came meanwhile follows at their end."""

    begin: time
    end: time
    zone: str = "UTC"
    passes: Severity = "S3"

    @model_validator(mode="after")
    def _known_zone(self) -> "QuietSection":
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"zone {self.zone!r} is not known here; write for instance Europe/Berlin") from None
        if self.begin == self.end:
            raise ValueError("begin and end are the same; leave quiet out for none")
        return self


class LimitSection(Section):
    """At most so many messages in a time; pages (S3, S4) pass."""

    most: int = Field(ge=1)
    each: Annotated[Seconds, Field(gt=0)] = 3600.0


class DigestSection(Section):
    """What is too small for the channel, collected: after a time, or after steps of the run."""

    each: Annotated[Seconds, Field(gt=0)] | None = None
    steps: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    min_severity: Severity = "S1"

    @model_validator(mode="after")
    def _one_of_two(self) -> "DigestSection":
        if (self.each is None) == (self.steps is None):
            raise ValueError('set either each = "1d" or steps = 5000')
        return self


class ChannelSection(Section):
    """Whom to tell, from which severity on, about which runs (shell patterns), and when not.

    Without a `service` the `url` says which it is. `to` is a place at the service, `severities` its word for ours.
    """

    name: str = Field(min_length=1)
    service: Service | None = None
    url: Address | None = None
    token: Secret | None = None
    to: str = ""
    severities: dict[Severity, str] = {}
    ack_link: bool = False
    min_severity: Severity = "S2"
    runs: tuple[str, ...] = ("*",)
    quiet: QuietSection | None = None
    limit: LimitSection | None = None
    digest: DigestSection | None = None

    @model_validator(mode="before")
    @classmethod
    def _secret_url(cls, given: Any) -> Any:
        secret = isinstance(given, dict) and given.get("service") in SECRET_URLS
        if secret and str(given.get("url", "env:")).partition(":")[0] not in ("env", "file"):
            raise ValueError(f"the url of {given['service']} is a secret; write env:NAME or file:/path")
        return given

    @model_validator(mode="after")
    def _whole(self) -> "ChannelSection":
        given = [key for key in ("url", "token", "to", "severities") if getattr(self, key)]
        if wrong := unmet(self.service, given):
            raise ValueError(wrong)
        if self.ack_link and self.service == "github":
            raise ValueError("ack_link on an issue would let everybody who can read it acknowledge; leave it out")
        return self

    def takes(self, run: str, severity: int) -> bool:
        """Whether an incident of this run and severity (0..4) goes here."""
        return severity >= SEVERITIES.index(self.min_severity) and any(fnmatchcase(run, glob) for glob in self.runs)


class RouteSection(Section):
    """What goes to some channels: of these runs and tags, about these roles, from a severity on.

    A channel that a route names gets only what one of its routes gives it.
    """

    to: tuple[str, ...] = Field(min_length=1)
    runs: tuple[str, ...] = ("*",)
    tags: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    min_severity: Severity = "S0"

    def takes(self, run: str, tags: Collection[str], roles: Collection[str], severity: int) -> bool:
        """Whether an incident of this run, with findings of these roles, goes this way."""
        return (
            severity >= SEVERITIES.index(self.min_severity)
            and any(fnmatchcase(run, glob) for glob in self.runs)
            and (not self.tags or not set(self.tags).isdisjoint(tags))
            and (not self.roles or not set(self.roles).isdisjoint(roles))
        )


class BoundSection(Section):
    """A limit of the user's own for metrics by name (a shell pattern) or role, in the runs of a shell pattern."""

    metric: str | None = Field(default=None, min_length=1)
    role: str | None = Field(default=None, min_length=1)
    above: float | None = Field(default=None, allow_inf_nan=False)
    below: float | None = Field(default=None, allow_inf_nan=False)
    samples: int = Field(default=1, ge=1)
    severity: Severity = "S2"
    run: str = "*"
    why: str = ""

    @model_validator(mode="after")
    def _whole(self) -> "BoundSection":
        if (self.metric is None) == (self.role is None):
            raise ValueError("set either metric (a name or shell pattern) or role, and not both")
        if self.above is None and self.below is None:
            raise ValueError("set above or below, or both: beyond which number is it a finding?")
        if self.above is not None and self.below is not None and self.above < self.below:
            raise ValueError(
                f"above {self.above:g} and below {self.below:g}: every value would be a finding; swap them"
            )
        return self

    @property
    def label(self) -> str:
        """`role mfu below 40`."""
        sides = [
            f"{side} {limit:g}" for side, limit in (("above", self.above), ("below", self.below)) if limit is not None
        ]
        return f"{f'role {self.role}' if self.role else self.metric} {' or '.join(sides)}"


class CheckSection(Section):
    """A SQL file of the user's own whose rows are findings."""

    sql: Path
    name: str = ""
    severity: Severity = "S2"
    run: str = "*"
    why: str = ""

    @property
    def label(self) -> str:
        """Its name, or that of the file."""
        return self.name or self.sql.stem


class RecordSection(Section):
    """The operating record: where it goes, and what of the store may be published; all else stays private."""

    out: Path | None = None
    url: str = Field(default="", pattern=r"^(https?://[^\s@]+)?$")
    title: str = "Operating record"
    runs: tuple[str, ...] = ("*",)
    metrics: tuple[str, ...] = ("*",)
    show: tuple[Literal["people", "notes", "sources", "configuration"], ...] = ()
    names: dict[str, str] = {}
    links: dict[str, str] = {}
    samples: bool = True


class PatternSection(Section):
    """Lines of console logs that no pattern of ours reads: a regular expression whose named groups are metrics."""

    name: str = Field(min_length=1)
    regex: str = Field(min_length=1)
    names: dict[str, str] = {}
    scale: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = {}
