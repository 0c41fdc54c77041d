"""`[store]`, `[watch]` and `[record]`: how often to look, what to keep, and what to publish."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from flows.sections.section import Section
from flows.values import Address, Seconds


class RetentionSection(Section):
    """Samples older than `full_days` are thinned to one in `keep_one_of`; incidents and what surrounds them never are."""

    full_days: float = Field(ge=1, allow_inf_nan=False)
    keep_one_of: int = Field(default=16, ge=2, le=4096)


class StoreSection(Section):
    """Where watchkeeper keeps what it knows, and how long whole."""

    url: str = "watchkeeper.duckdb"
    retention: RetentionSection | None = None


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


class RecordSection(Section):
    """The operating record: where it goes, and what of the store may be published; all else stays private."""

    out: Path | None = None
    url: str = Field(default="", pattern=r"^(https?://[^\s@?#]+)?$")
    title: str = "Operating record"
    runs: tuple[str, ...] = ("*",)
    metrics: tuple[str, ...] = ("*",)
    show: tuple[Literal["people", "notes", "sources", "configuration"], ...] = ()
    names: dict[str, str] = Field(default_factory=dict)
    links: dict[str, str] = Field(default_factory=dict)
    samples: bool = True
