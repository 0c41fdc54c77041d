"""What tells the first hypotheses apart: one sentence for each, from the entries of the playbook alone.

The entry's own word on its lookalike comes first; then the quantity that is not logged and that would part the two
scores most; then the first check of the entry that is in front. Fooled by: entries that say nothing of each other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from detectors.pattern import CONTRADICTED, FLAT, UNACCOUNTED, Apart, Hypothesis, Pattern, accounted

LEAST = 0.5  # log-odds by which a quantity must part two patterns to be worth logging


def tell_apart(ranked: Sequence[Hypothesis], table: Mapping[str, Pattern]) -> list[Hypothesis]:
    """The hypotheses, each with what tells it from the first (the first: from the second). A lone one has nothing.

    `table` holds the patterns by name; those without lookalikes of their own (the unknown one) are no alternative.
    """
    known = [item for item in ranked if table[item.pattern].lookalikes]
    if len(known) < 2:
        return list(ranked)
    first, second = known[0], known[1]
    others = {item.pattern: second if item is first else first for item in known}
    return [
        replace(item, apart=_apart(item, others[item.pattern], table)) if item.pattern in others else item
        for item in ranked
    ]


def _apart(one: Hypothesis, other: Hypothesis, table: Mapping[str, Pattern]) -> Apart:
    mine, its = table[one.pattern], table[other.pattern]
    if text := (mine.lookalikes or {}).get(its.name):
        return Apart(its.name, f"{its.name} if {text}")
    if text := (its.lookalikes or {}).get(mine.name):
        return Apart(its.name, f"{mine.name} if {text}")
    missing = sorted({*one.missing, *other.missing})
    odds = [(abs(gap), role, gap, move) for role in missing for move, gap in _gaps(mine, its, role).items()]
    size, role, gap, move = max(odds, key=lambda item: (item[0], item[1], item[3]), default=(0.0, "", 0.0, ""))
    if size >= LEAST:
        return Apart(its.name, f"log {role}: {move} speaks for {(mine if gap > 0 else its).name}", role)
    check = mine.checks[0]
    return Apart(its.name, f"{check.ask} {mine.name}: {check.expect}")


def _gaps(one: Pattern, other: Pattern, role: str) -> dict[str, float]:
    """By how much more each outcome of `role` would speak for the one than for the other."""
    return {move: _odds(one, role, move) - _odds(other, role, move) for move in ("up", "down", "flat")}


def _odds(pattern: Pattern, role: str, move: str) -> float:
    signs = [sign for sign in pattern.signs if role in sign.roles or role in sign.names()]
    if move == "flat":
        return FLAT if role in pattern.flat else 0.0
    if role in pattern.flat:
        return CONTRADICTED
    fitting = [sign.weight for sign in signs if sign.direction in ("any", move)]
    if signs:
        return max(fitting, default=CONTRADICTED)
    return 0.0 if role in accounted(pattern) else UNACCOUNTED
