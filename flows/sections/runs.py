"""`[[run]]`: what to watch, of which parts it is made, and what was planned."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from flows.sections.ladder import SizeSection
from flows.sections.section import Positive, Section


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


class RunSection(Section):
    """One thing to watch: a file or folder, or a URL; or, as one run, several that went on where others stopped."""

    source: str = ""
    segment: tuple[SegmentSection, ...] = ()
    name: str | None = Field(default=None, min_length=1)
    step_key: str | None = None
    tags: tuple[str, ...] = ()
    roles: dict[str, RoleSection] = Field(default_factory=dict)
    plan: PlanSection | None = None
    ladder: SizeSection | None = None
    reference: str = ""
    gates: dict[str, Positive] = Field(default_factory=dict)
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
