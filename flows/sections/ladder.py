"""`[ladder]`: smaller runs of the same recipe, and the size of those that are compared with them."""

from typing import Literal

from pydantic import Field

from flows.sections.section import Positive, Section


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
