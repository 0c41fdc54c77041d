"""What a value means: MFU in percent or as a fraction, and numbers that trainers write for "not known"."""

import numpy as np
from numpy.typing import NDArray

# quantities that cannot be negative: a negative one stands for "not measured" (nanoGPT logs MFU -100 until it has one)
NEVER_NEGATIVE = frozenset(
    {"mfu", "throughput", "step_time", "data_wait", "grad_norm", "param_norm", "update_norm", "token_drop", "memory"}
)
LARGEST_FRACTION = 1.5  # MFU above 1 happens where the peak is set too low; 1.5 percent does not on a real accelerator


def sentinels(role: str, values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which values stand for "not measured" in a metric of this role. NaN and infinities are not: those are values."""
    if role not in NEVER_NEGATIVE:
        return np.zeros(values.shape, dtype=bool)
    return np.isfinite(values) & (values < 0)


def mfu_is_percent(values: NDArray[np.float64], unit: str = "") -> bool | None:
    """Whether an MFU metric is in percent: by its unit if that is known, else by the median of its positive values.

    Above LARGEST_FRACTION it is percent, else a fraction. None where no value is finite and positive. Fooled by a run
    below 1.5 % MFU that logs percent under a name no dialect knows: say `unit = "percent"` in the config then.
    """
    if unit:
        return unit == "percent"
    seen = values[np.isfinite(values) & (values > 0)]
    return bool(np.median(seen) > LARGEST_FRACTION) if len(seen) else None
