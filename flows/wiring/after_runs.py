"""What a pass does once every run has had its turn: the record, upkeep, and the watch's own failures."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from flows.errors import DeliveryFailed, UndeliverableError
from flows.passes import Outcome
from flows.record.artifacts import Told
from flows.sections import RetentionSection
from flows.stages import selfcheck
from flows.stages.pagelink import pages_of
from flows.stages.record import write_record
from flows.stages.upkeep import thin
from flows.store import Store
from flows.wiring.house import PUBLISH_SECONDS, House
from flows.wiring.terms import terms_of

UPKEEP_SECONDS = 86_400.0


def keep_record(house: House, store: Store) -> None:
    """The operating record, when an incident has changed, else now and then."""
    out = house.config.record.out
    if out is not None:
        page = out / "index.html"
        if house.report.changes or not page.exists() or house.clock() - page.stat().st_mtime >= PUBLISH_SECONDS:
            write_record(store, out, terms_of(house.config.record))
            page.touch()


def list_open(house: House, store: Store) -> None:
    """What is open in the runs that were judged, the gravest first, for those who look into Prefect."""
    found = []
    for name in house.judged:
        pages = pages_of(store, name, house.report.record)
        for row in (each for each in store.open_incidents(name) if each["severity"] >= 1):
            told = Told(f"S{row['severity']}", name, row["title"], pages.get(row["incident_id"], ""))
            found.append((-row["severity"], name, row["onset_step"], told))
    house.report.going += [told for *_, told in sorted(found, key=lambda each: each[:3])]


def keep_up(store: Store, section: RetentionSection, clock: Callable[[], float]) -> int:
    """Thin once a day; when it was done last is the time of a file beside the store."""
    assert store.path is not None
    mark = store.path.with_name(f"{store.path.name}.upkeep")
    if mark.exists() and clock() - mark.stat().st_mtime < UPKEEP_SECONDS:
        return 0
    mark.touch()
    return thin(store, section, clock)


def ask_channels(house: House, store: Store) -> None:
    for row in house.report.attempt("store", "ask channels", store.failing_channels) or []:
        if row["channel"] in house.channels:
            kind = UndeliverableError if row["dead"] else DeliveryFailed
            house.report.outcomes.append(Outcome(f"channel {row['channel']}", "notify", error=kind(row["error"])))


def watch_itself(house: House) -> None:
    """Failures of the watch go straight to the channels: their way must not lead through the store."""
    report, store_file = house.report, Path(house.config.store.url)
    troubles = [trouble for each in report.failures if (trouble := each.trouble()) is not None]
    looked = {each.owner for each in report.outcomes if not each.skipped} | {"store"}
    path = store_file.with_name(f"{store_file.name}.watch.json")
    work = partial(selfcheck.tell, path, troubles, looked, house.channels, house.clock())
    _, failed = report.attempt("watch", "self-check", work) or (0, {})
    report.outcomes += [Outcome(f"channel {name}", "self-check", error=error) for name, error in failed.items()]
