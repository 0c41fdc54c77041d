"""Which metric is what: patterns of names in dialects/*.toml, then what the user's config says over them."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from flows.errors import BadConfig
from flows.records import Role

# unit and healthy direction where a dialect says nothing else
ROLES: dict[str, tuple[str, str]] = {
    "loss": ("nats", "down"),
    "grad_norm": ("", "none"),
    "update_norm": ("", "none"),
    "param_norm": ("", "none"),
    "mfu": ("", "up"),
    "throughput": ("", "up"),
    "step_time": ("s", "down"),
    "token_drop": ("fraction", "down"),
    "router_entropy": ("nats", "up"),
    "router_load": ("", "none"),
    "router_bias": ("", "flat"),
    "router_logit": ("", "flat"),
    "max_logit": ("", "flat"),
    "logsumexp": ("", "flat"),
    "learning_rate": ("", "none"),
    "eval_loss": ("nats", "down"),
    "eval_score": ("", "up"),
    "batch_size": ("", "none"),
    "sequence_length": ("tokens", "none"),
    "tokens": ("tokens", "up"),
    "memory": ("GiB", "flat"),
    "data_wait": ("s", "down"),
    "clipped": ("", "none"),
    "skipped_steps": ("steps", "down"),
    "link_errors": ("", "down"),
    "checkpoint": ("steps", "up"),
    "gpu": ("", "none"),
    "other": ("", "none"),
}
HEALTHY = ("up", "down", "flat", "none")
_FIELDS = ("role", "unit", "healthy", "group")
# one of many by its number, where a dialect names no group. The lowest rank often logs for the whole run.
_BY_LAYER = frozenset({"router_entropy", "router_load", "router_bias", "router_logit", "token_drop"})
_BY_RANK = frozenset({"step_time", "throughput", "mfu", "data_wait", "link_errors"})
_LAYER = re.compile(r"(?:layer|block|expert)s?[._/]?\d+")
_RANK = re.compile(
    r"(?<![a-z])(?:(?:rank|gpu|device|worker|replica)s?[._/]?0*[1-9]\d*|(?:host|node)s?[._/]?[a-z]*0*[1-9][a-z0-9]*(?:_[a-z]?\d+)*)"
)
# `*` is any text, `{group}` the layer or leaf, `[0-9]` a digit (its dash has become an underscore)
_WILD = re.compile(r"(\*|\{group\}|\[0_9\])")
_MEANING = {"*": ".*", "{group}": "(?P<group>.+?)", "[0_9]": "[0-9]"}


@dataclass(frozen=True)
class _Patterns:
    """All patterns in their order: names without a wildcard by their plain form; the others with their longest
    literal part, which is looked for first because that is ten times quicker than trying the pattern."""

    exact: Mapping[str, tuple[int, Role]]
    wild: tuple[tuple[int, str, re.Pattern[str], Role], ...]


def role_of(name: str, overrides: Mapping[str, Mapping[str, str]] | None = None) -> Role:
    """The role of a metric. `overrides` maps a name or a glob to role, unit, healthy, group; the first match counts.

    Upper case, blanks, dashes and (in names without a wildcard) slashes make no difference to the dialects.
    Raises BadConfig where an override names what does not exist.
    """
    found = _known_role(name)
    for pattern, said in (overrides or {}).items():
        if pattern == name or fnmatchcase(name, pattern):
            return _overruled(found, pattern, said)
    return found


def _overruled(found: Role, pattern: str, said: Mapping[str, str]) -> Role:
    unknown = [field for field in said if field not in _FIELDS]
    if unknown:
        raise BadConfig(f"metric {pattern!r}: no field {unknown[0]!r}; there are {', '.join(_FIELDS)}")
    role = said.get("role", found.role)
    if role not in ROLES:
        raise BadConfig(f"metric {pattern!r}: no role {role!r}; there are {', '.join(ROLES)}")
    if said.get("healthy", "none") not in HEALTHY:
        raise BadConfig(f"metric {pattern!r}: healthy is one of {', '.join(HEALTHY)}, not {said['healthy']!r}")
    base = found if role == found.role else _role({"role": role}, found.group)
    return replace(base, **{field: said[field] for field in ("unit", "healthy", "group") if field in said})


@lru_cache(maxsize=200_000)
def _known_role(name: str) -> Role:
    patterns, light = _patterns(), _light(name)
    before, role = patterns.exact.get(_plain(light), (None, None))
    for at, part, pattern, wild_role in patterns.wild:
        if before is not None and at > before:
            break
        if part in light and (found := pattern.fullmatch(light)):
            return replace(wild_role, group=_group(name.strip(), found) or _numbered(light, wild_role.role))
    return replace(role, group=role.group or _numbered(light, role.role)) if role else _role({"role": "other"})


def _numbered(light: str, role: str) -> str:
    """The layer and expert, or the rank, that a name counts: "layer_3/expert_7" of "moe/layer_3/expert_7_load"."""
    parts = _LAYER if role in _BY_LAYER else _RANK if role in _BY_RANK else None
    return "/".join(parts.findall(light)) if parts else ""


def _group(name: str, found: re.Match[str]) -> str:
    """The part of the name that `{group}` stands for, as it was written."""
    if "group" not in found.re.groupindex:
        return ""
    start, end = found.span("group")
    return name[start:end]


@cache
def _patterns() -> _Patterns:
    exact: dict[str, tuple[int, Role]] = {}
    wild: list[tuple[int, str, re.Pattern[str], Role]] = []
    named = [(name, _role(entry)) for entry in _dialect_entries() for name in entry["names"]]
    for at, (name, role) in enumerate(named):
        light = _light(name)
        parts = _WILD.split(light)
        if len(parts) == 1:
            exact.setdefault(_plain(light), (at, role))
        else:
            literal = max((part for part in parts if not _WILD.fullmatch(part)), key=len)
            regex = "".join(_MEANING.get(part, re.escape(part)) for part in parts)
            wild.append((at, literal, re.compile(regex, re.DOTALL), role))
    return _Patterns(exact, tuple(wild))


def _dialect_entries() -> list[dict[str, Any]]:
    folder = Path(__file__).parent / "dialects"
    dialects = [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.toml"))]
    return [entry for dialect in sorted(dialects, key=lambda one: one["rank"]) for entry in dialect["metric"]]


def _role(entry: Mapping[str, Any], group: str = "") -> Role:
    unit, healthy = ROLES[entry["role"]]
    return Role(entry["role"], entry.get("unit", unit), entry.get("healthy", healthy), group)


def _light(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def _plain(light: str) -> str:
    return light.replace("/", "_").replace(".", "_")
