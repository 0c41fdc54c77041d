"""Which channel serves which URL."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from flows.channels import alertmanager, discord, github, opsgenie, pagerduty, slack, teams, webhook
from flows.channels.apprise_bridge import open_apprise
from flows.channels.contract import Channel
from flows.channels.folder import Folder
from flows.channels.smtp import SCHEMES, open_smtp
from flows.errors import BadConfig

if TYPE_CHECKING:
    from flows.sections import ChannelSection


def open_channel(name: str, url: str, timeout_seconds: float = 15.0) -> Channel:
    """folder:PATH (or folder://PATH), a mail URL, or any other Apprise URL. Raises BadConfig without the URL in it."""
    scheme, colon, rest = url.partition(":")
    if not colon or not rest.strip("/"):
        raise BadConfig(
            f"channel {name!r}: no URL; write folder:PATH, mailtos://..., or an Apprise URL such as slack://..."
        )
    if scheme.lower() == "folder":
        return Folder(name, Path(rest.removeprefix("//")))
    if scheme.lower() in SCHEMES:
        return open_smtp(name, url, timeout_seconds)
    return open_apprise(name, url, timeout_seconds)


def open_configured(section: "ChannelSection", timeout_seconds: float = 15.0) -> Channel:
    """The channel of a [[channel]] entry. Raises BadConfig without a secret in it."""
    url = section.url.get_secret_value() if section.url is not None else ""
    if section.service is None:
        return open_channel(section.name, url, timeout_seconds)
    if url and not url.startswith(("https://", "http://")):
        raise BadConfig(f"channel {section.name!r}: its url does not begin with https://; see docs/channels.md")
    return _open_service(section, url, timeout_seconds)


def _open_service(section: "ChannelSection", url: str, timeout_seconds: float) -> Channel:  # noqa: PLR0911  # one a line
    name, to = section.name, section.to
    token = section.token.get_secret_value() if section.token is not None else ""
    match section.service:
        case "slack":
            return slack.Slack(name, to, token, url or slack.ADDRESS, timeout_seconds)
        case "discord":
            return discord.open_discord(name, url, to, timeout_seconds)
        case "teams":
            return teams.Teams(name, url, timeout_seconds)
        case "github":
            return github.open_github(name, to, token, url or github.ADDRESS, timeout_seconds)
        case "pagerduty":
            words = _words(section, pagerduty.WORDS)
            return pagerduty.PagerDuty(name, token, words, url or pagerduty.ADDRESS, timeout_seconds)
        case "opsgenie":
            words = _words(section, opsgenie.WORDS)
            return opsgenie.Opsgenie(name, token, words, url or opsgenie.ADDRESS, timeout_seconds)
        case "alertmanager":
            return alertmanager.Alertmanager(name, url, token, _words(section), timeout_seconds)
        case _:
            return webhook.Webhook(name, url, token, _words(section), timeout_seconds)


def _words(section: "ChannelSection", known: Collection[str] = ()) -> dict[str, str]:
    """The service's words for our severities; raises BadConfig for one that it does not have."""
    words = {str(ours): theirs for ours, theirs in section.severities.items()}
    if odd := sorted(word for word in words.values() if known and word not in known):
        raise BadConfig(f"channel {section.name!r}: severities: {', '.join(odd)}: it is {', '.join(sorted(known))}")
    return words
