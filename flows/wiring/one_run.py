"""The stages of one run, in their order and under its lease."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

from flows.config import Config
from flows.playbook import load_playbook
from flows.records import Role
from flows.routing import digests, takers
from flows.sections import RunSection
from flows.sources.catalogue import open_sources
from flows.sources.contract import Source
from flows.sources.roles import role_of
from flows.stages.aftermath import aftermath
from flows.stages.against import Against
from flows.stages.announce import tell_owed
from flows.stages.beside import Reference
from flows.stages.digest import tell_digests
from flows.stages.firing import tell_in_hand
from flows.stages.judge import Judged, judge
from flows.stages.ladder import on_record
from flows.stages.planned import SOURCE, plan_of, planned_events
from flows.stages.pull import pull
from flows.stages.runstate import RunState
from flows.store import Lease, Store
from flows.wiring.house import LEASE_SECONDS, House, announcing, hearing, send
from flows.wiring.opening import open_run
from flows.wiring.terms import watched_bounds

# a run whose last line was older than this when it was first pulled is a finished log: its silence is no stall
FINISHED_SECONDS = 3600.0


def watch_entry(house: House, store: Store, run: RunSection) -> None:
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


def _watch_run(house: House, store: Store, run: RunSection, name: str, source: Source | None) -> None:
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
                    hand = partial(tell_in_hand, store, name, house.channels, hearing(house, name), house.clock)
                    house.report.attempt(owner, "in hand", hand)
                    going = partial(aftermath, store, name, told, clock=house.clock)
                    house.report.changes += house.report.attempt(owner, "aftermath", going) or []
                    noting = partial(tell_digests, store, name, digests(house.config, run, name), clock=house.clock)
                    house.report.attempt(owner, "digest", noting)
                lease.renew()
            send(house, store, owner, name, lease)

    house.report.attempt(owner, "lease", chain)


def _pull(store: Store, source: Source, lease: Lease, run: RunSection, config: Config) -> Any:
    overrides = config.roles_of(run)

    def role(name: str) -> Role:
        return role_of(name, overrides)

    if source.describe().run in set(store.runs()["run"]):
        store.assign_roles(source.describe().run, role)
    return pull(store, source, role, epochs=run.step_key is None, progress=lambda rows: lease.renew())


def _judge(house: House, store: Store, run: RunSection, name: str) -> Judged:
    store.keep_events(name, SOURCE, list(planned_events(run.plan)) if run.plan is not None else ())
    return judge(
        store,
        name,
        load_playbook,
        clock=house.clock,
        live=is_live(store, name),
        watched=watched_bounds(house.config, name),
        against=Against(
            None if run.plan is None else plan_of(run.plan), _reference(house, store, run, name), on_record(store, name)
        ),
        announce=announcing(house, store, run, name),
    )


def references_first(config: Config) -> list[RunSection]:
    """The runs, those that others are compared with before the others: what is paired must be there."""
    wanted = {run.reference for run in config.run}
    return sorted(config.run, key=lambda run: run.label not in wanted)


def _reference(house: House, store: Store, run: RunSection, name: str) -> Reference | None:
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


def is_live(store: Store, name: str) -> bool:
    """Whether its silence would mean something: it was still writing when it was first pulled, or has written since."""
    heard = RunState.load(store.run_state(name)).clock
    if heard is None:
        return False
    created: datetime = store.runs().filter(run=name)["created_at"][0]
    return float(heard["at"]) >= created.replace(tzinfo=UTC).timestamp() - FINISHED_SECONDS
