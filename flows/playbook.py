"""Reads the playbook: patterns and interventions that ship as TOML beside the detectors.

Its strings are literal ones ('...'): the standard library reads a quoted one character by character, three times as long.
"""

import tomllib
from functools import cache
from importlib.resources import files

from detectors.pattern import Pattern, pattern_of
from flows.errors import BadConfig


@cache
def load_playbook() -> tuple[Pattern, ...]:
    """Every pattern in order of name. Raises BadConfig when an entry is incomplete or named twice."""
    patterns: dict[str, Pattern] = {}
    for path in sorted(files("detectors").joinpath("playbook").iterdir(), key=lambda item: item.name):
        if not path.name.endswith(".toml"):
            continue
        for name, table in tomllib.loads(path.read_text(encoding="utf-8")).items():
            if name in patterns:
                raise BadConfig(f"{path.name}: pattern [{name}] is defined twice; rename or remove one")
            try:
                patterns[name] = pattern_of(name, table)
            except ValueError as error:
                raise BadConfig(f"{path.name}: {error}") from error
    return tuple(patterns[name] for name in sorted(patterns))
