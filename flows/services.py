"""The services that are spoken to through their own API, and what a [[channel]] of each must say."""

from collections.abc import Collection
from typing import Literal

Service = Literal["slack", "discord", "teams", "github", "pagerduty", "opsgenie", "alertmanager", "webhook"]
SECRET_URLS = frozenset({"discord", "teams"})
# which keys of a [[channel]] a service needs, and which it may have
NEEDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "slack": (("token", "to"), ("url",)),
    "discord": (("url",), ("to",)),
    "teams": (("url",), ()),
    "github": (("token", "to"), ("url",)),
    "pagerduty": (("token",), ("url", "severities")),
    "opsgenie": (("token",), ("url", "severities")),
    "alertmanager": (("url",), ("token", "severities")),
    "webhook": (("url",), ("token", "severities")),
}


def unmet(service: str | None, given: Collection[str]) -> str:
    """What is wrong with the keys of a [[channel]]; "" for nothing. Without a service it needs a url and no more."""
    needs, may = NEEDS.get(service or "", (("url",), ()))
    of = f"service {service}" if service else "a channel without a service"
    if missing := [key for key in needs if key not in given]:
        return f"{' and '.join(missing)} missing; {of} needs {' and '.join(needs)}"
    odd = [key for key in given if key not in (*needs, *may)]
    return f"{of} has no use for {' and '.join(odd)}" if odd else ""
