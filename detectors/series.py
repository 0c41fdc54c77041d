"""One metric of one run: steps, values, times. Gaps and NaN are kept, never filled."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
# roles of speed in which a high value is a slow one
SLOW_IS_HIGH = frozenset({"step_time", "data_wait"})


@dataclass(frozen=True)
class Series:
    """A metric as it was logged: `step` strictly increasing, `value` of the same length, NaN and infinities kept.

    `seconds` are unix seconds of the log lines (NaN where unknown). Raises ValueError on lengths that differ or on
    steps that do not increase: an attempt that goes back is another series.
    """

    step: Array
    value: Array
    role: str = "other"
    name: str = ""
    unit: str = ""
    seconds: Array = field(default_factory=lambda: np.empty(0))

    def __init__(
        self,
        step: ArrayLike,
        value: ArrayLike,
        role: str = "other",
        name: str = "",
        unit: str = "",
        seconds: ArrayLike | None = None,
    ) -> None:
        steps = np.asarray(step, dtype=np.float64)
        values = np.asarray(value, dtype=np.float64)
        times = np.full(len(steps), np.nan) if seconds is None else np.asarray(seconds, dtype=np.float64)
        if steps.ndim != 1 or values.shape != steps.shape or times.shape != steps.shape:
            raise ValueError(f"series {name!r}: step, value and seconds must be flat and equally long")
        if len(steps) and not (np.isfinite(steps).all() and (np.diff(steps) > 0).all()):
            raise ValueError(f"series {name!r}: steps must be finite and increase; split attempts before judging")
        for key, item in (("step", steps), ("value", values), ("seconds", times)):
            object.__setattr__(self, key, item)
        for key, text in (("role", role), ("name", name or role), ("unit", unit)):
            object.__setattr__(self, key, text)

    def __len__(self) -> int:
        return len(self.step)
