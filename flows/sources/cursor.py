"""Cursors are JSON text of one object that names its format."""

import json
from typing import Any


def decode(cursor: str | None, format_name: str) -> dict[str, Any]:
    """The fields of a cursor; none if it belongs to another format or cannot be read."""
    try:
        state = json.loads(cursor or "{}")
    except ValueError:
        return {}
    return state if isinstance(state, dict) and state.get("format") == format_name else {}
