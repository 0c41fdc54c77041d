"""What the stages of one pass share, and how what they found leaves the house."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from flows.channels.contract import Channel
from flows.config import Config
from flows.passes import Call, Report
from flows.record.places import folder_name
from flows.routing import gates_of, takers
from flows.sections import RunSection
from flows.stages.announce import announcer
from flows.stages.door import door_of
from flows.stages.firing import keep_firing, keepers
from flows.stages.judge import Announce
from flows.stages.notify import Linking, notify
from flows.stages.pagelink import paging
from flows.stages.publish import chart_of, publish
from flows.store import Lease, Store

LEASE_SECONDS = 900.0
PUBLISH_SECONDS = 600.0


@dataclass(frozen=True)
class House:
    """What the stages of one pass share."""

    config: Config
    channels: Mapping[str, Channel]
    clock: Callable[[], float]
    call: Call
    report: Report
    link: Linking | None = None  # what acknowledges from a phone
    # runs that were judged in this pass, by name: their entry, and whether they had new samples
    judged: dict[str, tuple[RunSection, bool]] = field(default_factory=dict)


def hearing(house: House, name: str) -> list[str]:
    """The channels that may hear a page of the run."""
    return [each.name for each in house.config.channel if each.takes(name, 4)]


def announcing(house: House, store: Store, run: RunSection, name: str) -> Announce:
    return announcer(store, name, takers(house.config, run, name), clock=house.clock)


def send(house: House, store: Store, owner: str, name: str, lease: Lease) -> None:
    door = door_of(store, name, gates_of(house.config), house.clock)
    pages = paging(store, name, house.report.record)
    work = partial(notify, store, house.channels, house.clock, chart_of(store), name, house.link, door, pages)
    house.report.attempt(owner, "notify", work, house.call)
    for channel, keeper in keepers(house.channels, hearing(house, name)):
        kept = partial(keep_firing, store, name, channel, keeper, house.clock, pages)
        house.report.attempt(f"channel {channel}", "keep", kept)
    if house.config.watch.out is not None:
        lease.renew()
        house.report.attempt(owner, "publish", partial(_publish, house, store, name), house.call)


def _publish(house: House, store: Store, name: str) -> None:
    """Render the page when an incident has changed, else now and then: charts cost more than judging does."""
    assert house.config.watch.out is not None
    page = house.config.watch.out / folder_name(name) / "index.html"
    changed = any(change.incident.run == name for change in house.report.changes)
    if changed or not page.exists() or house.clock() - page.stat().st_mtime >= PUBLISH_SECONDS:
        publish(store, name, house.config.watch.out)
