"""Values in SQL, written out.

DuckDB 1.5 imports pandas (half a second, where it is installed) as soon as one Python value is bound to a statement;
and the store would do so while others wait for their turn. So `?` and `$name` become literals before it sees them.
"""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

Parameters = Sequence[Any] | Mapping[str, Any]

# quoted text, quoted names and comments are passed over
_PLACE = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\$(?P<name>[a-z_]\w*)|(?P<mark>\?)""")


def literal(value: Any) -> str:  # noqa: PLR0911  # one line a type
    """One value as DuckDB reads it; raises TypeError for a type that no column of the store has."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"({value})"
    if isinstance(value, float):
        # a bare 0.1 would be a DECIMAL, which is not the same number
        return f"'{'nan' if math.isnan(value) else repr(value)}'::DOUBLE"
    if isinstance(value, datetime):
        return f"'{value.replace(tzinfo=None).isoformat(sep=' ')}'::TIMESTAMP"
    if isinstance(value, str):
        quoted = "'" + value.replace("'", "''") + "'"
        return "(" + quoted.replace("\0", "' || chr(0) || '") + ")" if "\0" in value else quoted
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(literal, value))}]"
    raise TypeError(f"no literal for a {type(value).__name__}")


def written_out(sql: str, parameters: Parameters) -> str:
    """`sql` with its `?` (a sequence) or `$name` (a mapping) replaced; all of them must be given, and no more."""
    marks = iter(parameters) if not isinstance(parameters, Mapping) else iter(())
    names = parameters if isinstance(parameters, Mapping) else {}

    def put(found: re.Match[str]) -> str:
        if found["mark"]:
            return literal(next(marks))
        return literal(names[found["name"]]) if found["name"] else found[0]

    text = _PLACE.sub(put, sql)
    if next(marks, marks) is not marks:
        raise ValueError(f"more values than places in {sql}")
    return text
