"""With how many digits a log prints a number: what is less than they show is no change."""

import math

import numpy as np

from detectors.series import Array

DIGITS = 8  # significant ones of a 32-bit float


def last_digit(value: Array, at: float) -> float:
    """The unit of the last digit with which values are printed, at a value of such a size; tiny for floats."""
    digits, places = 1, 0
    for each in value[np.isfinite(value) & (value > 0)].tolist():
        mantissa, exponent = f"{each:.{DIGITS - 1}e}".split("e")
        mine = len(mantissa.replace(".", "").rstrip("0"))
        digits, places = max(digits, mine), max(places, mine - 1 - int(exponent))
    return float(max(10.0 ** (math.floor(math.log10(at)) - digits + 1), 10.0**-places))
