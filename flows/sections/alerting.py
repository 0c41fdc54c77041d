"""`[[channel]]` and `[[route]]`: whom to tell, about what, and when not."""

from collections.abc import Collection
from datetime import time
from fnmatch import fnmatchcase
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, model_validator

from flows.sections.section import SEVERITIES, Section, Severity
from flows.services import SECRET_URLS, Service, unmet
from flows.values import KEEPERS, Address, Seconds, Secret


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
    severities: dict[Severity, str] = Field(default_factory=dict)
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
        if secret and str(given.get("url", "env:")).partition(":")[0] not in KEEPERS:
            raise ValueError(
                f"the url of {given['service']} is a secret; write env:NAME, file:/path or block:secret/name"
            )
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
