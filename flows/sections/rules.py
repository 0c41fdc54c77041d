"""`[[bound]]`, `[[check]]` and `[[pattern]]`: limits, questions and log lines of the user's own."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from flows.sections.section import Section, Severity


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


class PatternSection(Section):
    """Lines of console logs that no pattern of ours reads: a regular expression whose named groups are metrics."""

    name: str = Field(min_length=1)
    regex: str = Field(min_length=1)
    names: dict[str, str] = Field(default_factory=dict)
    scale: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=dict)
