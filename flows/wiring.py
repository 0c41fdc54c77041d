"""Configuration -> the real store, sources, channels and clock; the only place that builds them.

A pass goes over the runs one by one, each under its lease. What fails is kept as a result and stops nothing else.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from detectors.bounds import Bound
from flows.channels.catalogue import open_configured
from flows.channels.contract import Channel
from flows.channels.heartbeat import ping
from flows.config import Config
from flows.errors import BadConfig, DeliveryFailed, UndeliverableError
from flows.passes import Call, Outcome, Report, plainly
from flows.playbook import load_playbook
from flows.record.veil import Policy
from flows.records import Role
from flows.routing import digests, gates_of, takers
from flows.sections import SEVERITIES, CheckSection, RecordSection, RetentionSection, RunSection
from flows.sources.catalogue import open_sources
from flows.sources.contract import Source
from flows.sources.grammar import UserPattern
from flows.sources.lineage import Chain, Segment
from flows.sources.roles import role_of
from flows.stages import checks, selfcheck
from flows.stages.acklink import linking
from flows.stages.aftermath import aftermath
from flows.stages.against import Against
from flows.stages.announce import announcer, tell_owed
from flows.stages.beside import Reference
from flows.stages.bounds import Watched
from flows.stages.digest import tell_digests
from flows.stages.door import door_of
from flows.stages.firing import keep_firing, keepers, tell_in_hand
from flows.stages.gather import Terms
from flows.stages.judge import Announce, Judged, judge, tell
from flows.stages.ladder import LADDER, is_usable
from flows.stages.notify import notify
from flows.stages.past import Answers
from flows.stages.planned import SOURCE, plan_of, planned_events
from flows.stages.publish import chart_of, folder_name, publish
from flows.stages.pull import pull
from flows.stages.record import write_record
from flows.stages.runstate import RunState
from flows.stages.upkeep import thin
from flows.store import Lease, Store, open_store

LEASE_SECONDS = 900.0
PUBLISH_SECONDS = 600.0
UPKEEP_SECONDS = 86_400.0
# a run whose last line was older than this when it was first pulled is a finished log: its silence is no stall
FINISHED_SECONDS = 3600.0


def utc_now() -> datetime:
    """The clock, for those that need a date."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class _House:
    """What the stages of one pass share."""

    config: Config
    channels: Mapping[str, Channel]
    clock: Callable[[], float]
    call: Call
    report: Report
    # runs that were judged in this pass, by name: their entry, and whether they had new samples
    judged: dict[str, tuple[RunSection, bool]] = field(default_factory=dict)


def open_configured_store(config: Config, clock: Callable[[], float] = time.time) -> Store:
    """The store of the configuration. Raises BadConfig for one that would be gone after the pass."""
    if config.store.url == ":memory:":
        raise BadConfig(
            f"{config.path}: store.url: a watch needs a file to remember; write store.url = 'watchkeeper.duckdb'"
        )
    return open_store(config.store.url, clock=clock)


def one_pass(config: Config, *, call: Call = plainly, clock: Callable[[], float] = time.time) -> Report:
    """Pull, judge and notify for every run, then tell of the watch's own failures and ping the heartbeat.

    Never raises for what a source, a channel or the store does: the report holds it.
    """
    report = Report([run.label for run in config.run], record=config.record.url)
    channels = {
        each.name: channel
        for each in config.channel
        if (channel := report.attempt(f"channel {each.name}", "open", partial(open_configured, each))) is not None
    }
    house = _House(config, channels, clock, call, report)
    store = report.attempt("store", "open", partial(open_configured_store, config, clock), call)
    if store is not None:
        for run in _references_first(config):
            _watch_entry(house, store, run)
        _ask_checks(house, store)
        _ask_channels(house, store)
        if config.record.out is not None:
            report.attempt("record", "publish", partial(_write_record, house, store), call)
        if config.store.retention is not None:
            report.attempt("store", "upkeep", partial(_keep_up, store, config.store.retention, clock), call)
    _watch_itself(house)
    if config.watch.heartbeat_url is not None and report.good:
        report.attempt("heartbeat", "ping", partial(ping, config.watch.heartbeat_url.get_secret_value()))
    return report


def open_run(config: Config, run: RunSection) -> list[Source]:
    """The sources of a [[run]] entry: one for several segments. Copies of remote files stay beside the store.

    Raises BadConfig for a segment that holds several runs, BadInput where nothing can be read.
    """
    patterns = [UserPattern(**each.model_dump()) for each in config.pattern]
    opened = partial(open_sources, step_key=run.step_key, patterns=patterns, cache=Path(f"{config.store.url}.remote"))
    if not run.segment:
        return opened(run.source, run=run.name)
    parts = []
    for each in run.segment:
        found = opened(each.source)
        if len(found) != 1:
            names = ", ".join(source.describe().run for source in found[:12])
            raise BadConfig(
                f"{config.path}: segment {each.label} of run {run.label} holds {len(found)} runs ({names}); a segment is "
                "one of them: give as its source the file, folder or address of that run alone."
            )
        parts.append(Segment(each.label, found[0], each.first, each.last, each.parent, each.reason))
    return [Chain(run.label, parts)]


def _watch_entry(house: _House, store: Store, run: RunSection) -> None:
    """All runs of one [[run]] entry: a file may hold several."""
    owner = f"run {run.label}"
    sources = house.report.attempt(owner, "open", partial(open_run, house.config, run), house.call)
    if sources is not None:
        for source in sources:
            _watch_run(house, store, run, source.describe().run, source)
        return
    # what is stored of it already is still judged (it may have fallen silent) and its messages still go out
    known = house.report.attempt(owner, "look up", partial(_known_runs, store, run)) or []
    for name in known:
        _watch_run(house, store, run, name, None)


def _known_runs(store: Store, run: RunSection) -> list[str]:
    return [run.label] if run.segment and run.label in set(store.runs()["run"]) else _stored_runs(store, run.source)


def _stored_runs(store: Store, source: str) -> list[str]:
    return [row["run"] for row in store.runs().iter_rows(named=True) if row["source"] == source]


def _watch_run(house: _House, store: Store, run: RunSection, name: str, source: Source | None) -> None:
    """The chain of stages of one run, under its lease."""
    owner = f"run {run.label}"

    def chain() -> None:
        with store.lease(name, "watch", LEASE_SECONDS) as lease:
            if source is not None:
                work = partial(_pull, store, source, lease, run, house.config)
                house.report.attempt(owner, "pull", work, house.call)
                lease.renew()
            # a run that was never pulled has nothing to judge
            if source is None or name in _stored_runs(store, source.describe().source):
                judged = house.report.attempt(owner, "judge", partial(_judge, house, store, run, name), house.call)
                if judged is not None:
                    house.report.changes += judged.transitions
                    house.judged[name] = run, judged.samples > 0
                    told = takers(house.config, run, name)
                    owing = partial(tell_owed, store, name, told, clock=house.clock, remind=house.config.watch.remind)
                    house.report.changes += house.report.attempt(owner, "owed", owing) or []
                    hand = partial(tell_in_hand, store, name, house.channels, _hearing(house, name), house.clock)
                    house.report.attempt(owner, "in hand", hand)
                    going = partial(aftermath, store, name, told, clock=house.clock)
                    house.report.changes += house.report.attempt(owner, "aftermath", going) or []
                    noting = partial(tell_digests, store, name, digests(house.config, run, name), clock=house.clock)
                    house.report.attempt(owner, "digest", noting)
                lease.renew()
            _send(house, store, owner, name, lease)

    house.report.attempt(owner, "lease", chain)


def _send(house: _House, store: Store, owner: str, name: str, lease: Lease) -> None:
    link = linking(house.config.phone, {each.name for each in house.config.channel if each.ack_link})
    door = door_of(store, name, gates_of(house.config), house.clock)
    work = partial(notify, store, house.channels, house.clock, chart_of(store), name, link, door)
    house.report.attempt(owner, "notify", work, house.call)
    for channel, keeper in keepers(house.channels, _hearing(house, name)):
        kept = partial(keep_firing, store, name, channel, keeper, house.clock)
        house.report.attempt(f"channel {channel}", "keep", kept)
    if house.config.watch.out is not None:
        lease.renew()
        house.report.attempt(owner, "publish", partial(_publish, house, store, name), house.call)


def _pull(store: Store, source: Source, lease: Lease, run: RunSection, config: Config) -> Any:
    overrides = config.roles_of(run)

    def role(name: str) -> Role:
        return role_of(name, overrides)

    if source.describe().run in set(store.runs()["run"]):
        store.assign_roles(source.describe().run, role)
    return pull(store, source, role, progress=lambda rows: lease.renew())


def _judge(house: _House, store: Store, run: RunSection, name: str) -> Judged:
    store.keep_events(name, SOURCE, list(planned_events(run.plan)) if run.plan is not None else ())
    return judge(
        store,
        name,
        load_playbook,
        clock=house.clock,
        live=is_live(store, name),
        watched=watched_bounds(house.config, name),
        against=Against(
            None if run.plan is None else plan_of(run.plan), _reference(house, store, run, name), _expected(store, name)
        ),
        announce=_announce(house, store, run, name),
    )


def _expected(store: Store, name: str) -> list[Mapping[str, Any]]:
    """What ladders predicted of a run, oldest first."""
    return [each.body for each in store.expectations(name) if each.name == LADDER and is_usable(each.body)]


def _references_first(config: Config) -> list[RunSection]:
    """The runs, those that others are compared with before the others: what is paired must be there."""
    wanted = {run.reference for run in config.run}
    return sorted(config.run, key=lambda run: run.label not in wanted)


def _reference(house: _House, store: Store, run: RunSection, name: str) -> Reference | None:
    """The run to compare with: one of the store, or a source that is pulled for that. None without one.

    Raises BadInput, SourceUnavailable.
    """
    if not run.reference:
        return None
    if run.reference in set(store.runs()["run"]):
        other = run.reference
    else:
        (source,) = open_sources(run.reference, step_key=run.step_key)
        other = source.describe().run
        with store.lease(other, "watch", LEASE_SECONDS) as lease:
            _pull(store, source, lease, run, house.config)
    return Reference(other, run.gates) if other != name else None


def _hearing(house: _House, name: str) -> list[str]:
    """The channels that may hear a page of the run."""
    return [each.name for each in house.config.channel if each.takes(name, 4)]


def _announce(house: _House, store: Store, run: RunSection, name: str) -> Announce:
    return announcer(store, name, takers(house.config, run, name), clock=house.clock)


def _ask_checks(house: _House, store: Store) -> None:
    """The user's own SQL, once a pass, when every run is judged: it may compare runs."""
    answered: dict[str, list[checks.Row]] = {}
    for section in house.config.check:
        rows = house.report.attempt(
            f"check {section.label}", "ask", partial(checks.ask, store, check_of(section)), house.call
        )
        if rows is not None:
            answered[section.label] = rows
    for name, (run, fresh) in house.judged.items():
        if house.config.check or checks.is_waiting(RunState.load(store.run_state(name))):
            _tell_checks(house, store, run, name, answered, fresh)


def _tell_checks(
    house: _House, store: Store, run: RunSection, name: str, answered: Mapping[str, Sequence[checks.Row]], fresh: bool
) -> None:
    owner = f"run {run.label}"
    mine = [each.label for each in house.config.check if fnmatchcase(name, each.run)]
    rows = {label: [row for row in answered[label] if row.run == name] for label in mine if label in answered}

    def find(state: RunState) -> Answers:
        return checks.news(rows, mine, state, store.attempts(name), store.metrics(name), fresh=fresh)

    def chain() -> None:
        with store.lease(name, "watch", LEASE_SECONDS) as lease:
            work = partial(
                tell, store, name, find, load_playbook, clock=house.clock, announce=_announce(house, store, run, name)
            )
            told = house.report.attempt(owner, "checks", work, house.call)
            if told is not None and told.transitions:
                house.report.changes += told.transitions
                _send(house, store, owner, name, lease)

    house.report.attempt(f"checks of {name}", "lease", chain)


def check_of(section: CheckSection) -> checks.Check:
    """A check as its stage takes it."""
    return checks.Check(section.label, section.sql, SEVERITIES.index(section.severity), section.why)


def watched_bounds(config: Config, run: str) -> list[Watched]:
    """The user's own bounds for a run, one for each side."""
    return [
        Watched(
            Bound(side, limit, each.samples, SEVERITIES.index(each.severity), each.why),
            each.metric or "",
            each.role or "",
        )
        for each in config.bound
        if fnmatchcase(run, each.run)
        for side, limit in (("above", each.above), ("below", each.below))
        if limit is not None
    ]


def is_live(store: Store, name: str) -> bool:
    """Whether its silence would mean something: it was still writing when it was first pulled, or has written since."""
    heard = RunState.load(store.run_state(name)).clock
    if heard is None:
        return False
    created: datetime = store.runs().filter(run=name)["created_at"][0]
    return float(heard["at"]) >= created.replace(tzinfo=UTC).timestamp() - FINISHED_SECONDS


def _publish(house: _House, store: Store, name: str) -> None:
    """Render the page when an incident has changed, else now and then: charts cost more than judging does."""
    assert house.config.watch.out is not None
    page = house.config.watch.out / folder_name(name) / "index.html"
    changed = any(change.incident.run == name for change in house.report.changes)
    if changed or not page.exists() or house.clock() - page.stat().st_mtime >= PUBLISH_SECONDS:
        publish(store, name, house.config.watch.out)


def terms_of(section: RecordSection) -> Terms:
    """The terms of publishing as the record's stage takes them."""
    policy = Policy(section.runs, section.metrics, frozenset(section.show), section.names)
    return Terms(policy, section.title, section.links, section.samples)


def _write_record(house: _House, store: Store) -> None:
    """The operating record, when an incident has changed, else now and then."""
    out = house.config.record.out
    if out is not None:
        page = out / "index.html"
        if house.report.changes or not page.exists() or house.clock() - page.stat().st_mtime >= PUBLISH_SECONDS:
            write_record(store, out, terms_of(house.config.record))
            page.touch()


def _keep_up(store: Store, section: RetentionSection, clock: Callable[[], float]) -> int:
    """Thin once a day; when it was done last is the time of a file beside the store."""
    assert store.path is not None
    mark = store.path.with_name(f"{store.path.name}.upkeep")
    if mark.exists() and clock() - mark.stat().st_mtime < UPKEEP_SECONDS:
        return 0
    mark.touch()
    return thin(store, section, clock)


def _ask_channels(house: _House, store: Store) -> None:
    for row in house.report.attempt("store", "ask channels", store.failing_channels) or []:
        if row["channel"] in house.channels:
            kind = UndeliverableError if row["dead"] else DeliveryFailed
            house.report.outcomes.append(Outcome(f"channel {row['channel']}", "notify", error=kind(row["error"])))


def _watch_itself(house: _House) -> None:
    """Failures of the watch go straight to the channels: their way must not lead through the store."""
    report, store_file = house.report, Path(house.config.store.url)
    troubles = [trouble for each in report.failures if (trouble := each.trouble()) is not None]
    looked = {each.owner for each in report.outcomes if not each.skipped} | {"store"}
    path = store_file.with_name(f"{store_file.name}.watch.json")
    work = partial(selfcheck.tell, path, troubles, looked, house.channels, house.clock())
    _, failed = report.attempt("watch", "self-check", work) or (0, {})
    report.outcomes += [Outcome(f"channel {name}", "self-check", error=error) for name, error in failed.items()]
