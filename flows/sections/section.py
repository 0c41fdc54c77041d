"""What every section of watchkeeper.toml shares."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

SEVERITIES = ("S0", "S1", "S2", "S3", "S4")
# set by us, not by the file
OURS = frozenset({"path", "written"})

Severity = Literal["S0", "S1", "S2", "S3", "S4"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    @model_validator(mode="before")
    @classmethod
    def _not_ours(cls, given: Any) -> Any:
        if isinstance(given, dict) and (ours := OURS & given.keys()):
            raise ValueError(f"no such key: {', '.join(sorted(ours))}")
        return given
