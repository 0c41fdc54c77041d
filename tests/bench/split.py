"""Which half a recording or a seed belongs to, by split.toml."""

import tomllib
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

HALVES = ("tuning", "held_out")


@cache
def _split() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "split.toml").read_text(encoding="utf-8"))


def half_of_seed(seed: int) -> str:
    """The half of an injection, a scenario, a null run or an unlisted recording."""
    parity = "odd" if seed % 2 else "even"
    return next(half for half in HALVES if _split()["seeds"][half] == parity)


def seeds_of(half: str, count: int) -> list[int]:
    """The first `count` seeds of a half, from 1 on."""
    return [seed for seed in range(1, 2 * count + 1) if half_of_seed(seed) == half]


def half_of_recording(file: str, seed: int | None = None, said: str | None = None) -> str:
    """The half of a file below data/. Raises ValueError where its label says something else, or nothing tells."""
    listed = [h for h in HALVES if any(fnmatchcase(file, pattern) for pattern in _split()["recordings"][h])]
    half = listed[0] if listed else half_of_seed(seed) if seed is not None else said
    if len(listed) > 1 or half not in HALVES:
        raise ValueError(f"{file}: list it once in tests/bench/split.toml, or give its label a seed")
    if said not in (None, half):
        raise ValueError(f"{file}: its label says {said}, tests/bench/split.toml says {half}; mend the label")
    return half
