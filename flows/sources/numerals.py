"""Numbers as console logs write them: 1,234 and 1.05M, 1.2e-05 and 40%, nan, inf, and units behind them."""

import re

import numpy as np
import polars as pl
from numpy.typing import NDArray

_DIGITS = r"[0-9]+(?:,[0-9]{3})*(?:\.[0-9]*)?"
_TAIL = r"(?:[eE][-+]?[0-9]+|[KMGBTPE]\b)?"
# for Python's re and Polars' engine alike: no part looks around, none can fail once it began, so both take linear time
TOKEN = rf"[-+]?(?:\b{_DIGITS}{_TAIL}|\B\.[0-9]+{_TAIL}|\b(?:[nN]a[nN]|[iI]nf(?:inity)?)(?:ms?|s)?\b)"
NUMBER = rf"[-+]?(?:{_DIGITS}{_TAIL}|\.[0-9]+{_TAIL}|(?:[nN]a[nN]|[iI]nf(?:inity)?)(?:ms?|s)?\b)"
IN_POLARS = TOKEN.replace(r"\b", r"(?-u:\b)").replace(r"\B", r"(?-u:\B)")
_SUFFIX = {"K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_NUMBER = re.compile(NUMBER)
_PLAIN = re.compile(r"[-+]?(?:[0-9.]+(?:[eE][-+]?[0-9]+)?|nan|inf(?:inity)?)", re.IGNORECASE)


def to_number(text: str) -> float:
    """The value of a text that NUMBER matched; a unit of time behind `nan` is none of it."""
    text = text.replace(",", "")
    found = _PLAIN.match(text)
    value = float(found[0]) if found else float("nan")
    return value * _SUFFIX.get(text[found.end() :], 1.0) if found else value


def value_of(text: str) -> float | None:
    """The number a text begins with, None without one."""
    found = _NUMBER.match(text.strip())
    return to_number(found[0]) if found else None


def to_numbers(texts: pl.Series) -> NDArray[np.float64]:
    """The same of many."""
    found = texts.str.replace_all(",", "", literal=True).cast(pl.Float64, strict=False)
    odd = found.is_null().arg_true()
    values = found.to_numpy().copy()
    for at in odd:
        values[at] = to_number(texts[at])
    return values
