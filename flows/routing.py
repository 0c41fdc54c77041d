"""Who is told of what, from the configuration: takers, digests and gates of the channels."""

from functools import partial

from flows.config import Config
from flows.incidents import Incident
from flows.sections import SEVERITIES, ChannelSection, RunSection
from flows.stages.announce import Takes
from flows.stages.digest import Digest
from flows.stages.door import Gate


def takers(config: Config, run: RunSection, name: str) -> dict[str, Takes]:
    """Which incidents of the run `name`, which comes from the entry `run`, each channel is told of at once."""

    def takes(channel: ChannelSection, incident: Incident) -> bool:
        return config.takes(channel, name, run.tags, _roles(incident), incident.worst)

    return {each.name: partial(takes, each) for each in config.channel}


def digests(config: Config, run: RunSection, name: str) -> list[Digest]:
    """The digests of a run: what goes a channel's way, but is too small for it."""

    def takes(channel: ChannelSection, least: int, incident: Incident) -> bool:
        small = least <= incident.worst < SEVERITIES.index(channel.min_severity)
        any_size = channel.model_copy(update={"min_severity": "S0"})
        return small and config.takes(any_size, name, run.tags, _roles(incident), incident.worst)

    return [
        Digest(each.name, partial(takes, each, SEVERITIES.index(asked.min_severity)), asked.each, asked.steps)
        for each in config.channel
        if (asked := each.digest) is not None
    ]


def gates_of(config: Config) -> dict[str, Gate]:
    """The hours and the limit of each channel."""
    return {each.name: _gate(each) for each in config.channel}


def _gate(channel: ChannelSection) -> Gate:
    quiet, limit = channel.quiet, channel.limit
    most, seconds = (limit.most, limit.each) if limit is not None else (0, 1.0)
    if quiet is None:
        return Gate(most=most, seconds=seconds)
    return Gate(quiet.begin, quiet.end, quiet.zone, SEVERITIES.index(quiet.passes), most, seconds)


def _roles(incident: Incident) -> set[str]:
    return {finding.role for finding in incident.findings}
