"""`watchkeeper doctor`: what is configured, reachable, stale or not checked, and why. It changes nothing."""

import difflib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.config import Config, load_config
from flows.errors import WatchkeeperError
from flows.sections import CheckSection, RunSection
from flows.serving import KEEP_DAYS, configured_api, home_beside, is_healthy, meet, running
from flows.telemetry import off
from flows.verbs.looked_at import BROKEN, OK, STALE, UNCHECKED, Finding
from flows.verbs.watch import ConfigOption
from flows.verbs.ways_out import channels, heartbeat, outbox, phone_of, send_tests

if TYPE_CHECKING:
    from flows.store import Store

MOST_FREE, LEAST_WORTH, MOST_PREFECT_MB = 0.3, 64e6, 1_000.0


def doctor(
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON document")] = False,
    send_test: Annotated[str | None, typer.Option(help="send a test message to this channel, or to all")] = None,
) -> None:
    """Look at the configuration, the store, each source and channel, and Prefect. Sends nothing but what --send-test asks.

    Exit status: 0 nothing is broken, 1 something is, 2 the configuration cannot be read.

    Example: watchkeeper doctor
    """
    off()
    loaded = load_config(config)
    if send_test is not None:
        _meet_server(loaded)
    found = list(examine(loaded) if send_test is None else send_tests(loaded, send_test))
    if as_json:
        print(json.dumps({"schema": "watchkeeper.doctor/1", "checks": [asdict(each) for each in found]}, indent=1))  # noqa: T201
    else:
        width = max(len(each.what) for each in found)
        for each in found:
            print(f"{each.state:<11}  {each.what:<{width}}  {each.detail}")  # noqa: T201
    raise typer.Exit(int(any(each.state == BROKEN for each in found)))


def examine(config: Config) -> Iterator[Finding]:
    """Everything there is to look at."""
    when = f"cron {config.watch.cron!r}" if config.watch.cron else f"every {config.watch.interval:g} s"
    yield Finding("config", OK, f"{config.path}: {len(config.run)} runs, {len(config.channel)} channels, {when}")
    if not config.run:
        yield Finding("runs", BROKEN, "no [[run]] in the configuration: nothing is watched")
    yield from _tried("store", lambda: _store(config))
    for run in config.run:
        yield from _tried(f"run {run.label}", lambda run=run: _source(config, run))  # type: ignore[misc]
    yield from _tried("bounds", lambda: _bounds(config))
    for check in config.check:
        yield from _tried(f"check {check.label}", lambda check=check: _check(config, check))  # type: ignore[misc]
    yield _prefect(config)
    _meet_server(config)
    yield from channels(config)
    if config.phone is not None:
        yield phone_of(config.phone)
    yield heartbeat(config)


def _meet_server(config: Config) -> None:
    """What a block of Prefect keeps is asked of the server that the watch asks."""
    if configured_api() is None:
        meet(home_beside(config.store.url))


def _tried(what: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from look()
    except (WatchkeeperError, OSError) as error:
        yield Finding(what, BROKEN, " ".join(str(error).split()))


def _store(config: Config) -> Iterator[Finding]:
    from flows.store import open_store

    path = Path(config.store.url)
    if not path.exists():
        yield Finding("store", UNCHECKED, f"{path}: none yet, the first pass makes it")
        return
    store = open_store(config.store.url, clock=time.time, must_exist=True)
    yield Finding(
        "store", OK, f"{path}: {path.stat().st_size / 1e6:,.1f} MB, schema up to date, nobody keeps it locked"
    )
    yield from _life(config, store, path)
    for row in store.leases():
        yield Finding(f"lease {row['run']}", OK, f"{row['owner']}, PID {row['pid']} on {row['host']} is at work on it")
    for run in store.runs()["run"]:
        for check, metric, reason, count, _ in store.coverage(run).iter_rows():
            if reason != "checked":
                yield Finding(
                    f"{run}: {check}", UNCHECKED, " ".join(filter(None, [metric, reason, f"({count})" * (count > 0)]))
                )
    yield from outbox(store)


def _life(config: Config, store: "Store", path: Path) -> Iterator[Finding]:
    """Size, growth, age; whether old samples are thinned, and whether the file has holes worth filling."""
    size, now = store.size(), time.time()
    file = path.stat().st_size
    age = 0.0 if size.oldest is None else (now - size.oldest.replace(tzinfo=UTC).timestamp()) / 86400
    daily = file * (1 - size.free) / max(size.samples, 1) * size.daily
    told = f"{size.samples:,} samples in {age:,.1f} days, of late {size.daily:,.0f} a day, about {daily / 1e6:,.1f} MB"
    yield Finding("store growth", OK, told)
    rule = config.store.retention
    kept = "everything is kept for ever ([store.retention] thins what is old)"
    if rule is not None:
        kept = f"whole for {rule.full_days:g} days, then one sample of {rule.keep_one_of}; incidents always whole"
    yield Finding("store retention", OK, kept)
    if size.free > MOST_FREE and file > LEAST_WORTH:
        yield Finding("store holes", STALE, f"{size.free:.0%} of the file is free: `watchkeeper upkeep` gives it back")
    database = home_beside(config.store.url) / "prefect.db"
    if database.is_file():
        megabytes = database.stat().st_size / 1e6
        state = OK if megabytes < MOST_PREFECT_MB else STALE
        yield Finding("prefect database", state, f"{megabytes:,.1f} MB; our own server keeps {KEEP_DAYS} days of it")


def _source(config: Config, run: RunSection) -> Iterator[Finding]:
    from flows.sources.roles import role_of
    from flows.wiring import open_run

    role_of("", config.roles_of(run))
    for source in open_run(config, run):
        found = source.describe()
        state, age = _age(config, found.run)
        yield Finding(f"run {found.run}", state, f"{found.source}: {found.format}, step {found.step_key!r}, {age}")


def _age(config: Config, run: str) -> tuple[str, str]:
    """How far the store has it, and how old that is: stale after ten intervals without a new row."""
    from flows.store import open_store

    if not Path(config.store.url).exists():
        return OK, "never pulled"
    store = open_store(config.store.url, clock=time.time, must_exist=True)
    known = store.runs().filter(run=run)
    last = store.metrics(run)["last_step"].max()
    if not len(known) or known["pulled_at"][0] is None or not isinstance(last, float):
        return OK, "never pulled"
    age = time.time() - known["pulled_at"][0].replace(tzinfo=UTC).timestamp()
    state = STALE if age > max(10 * config.watch.interval, 600.0) else OK
    return state, f"up to step {last:,.15g}, new rows last came {age:,.0f} s ago"


def _bounds(config: Config) -> Iterator[Finding]:
    """Each bound of the user's own, and whether any metric has it."""
    from flows.store import open_store
    from flows.wiring import watched_bounds

    known: dict[str, list[tuple[str, str]]] = {}
    if config.bound and Path(config.store.url).exists():
        store = open_store(config.store.url, clock=time.time, must_exist=True)
        known = {run: store.metrics(run).select("name", "role").rows() for run in store.runs()["run"]}
    for section in config.bound:
        alone = config.model_copy(update={"bound": (section,)})
        runs = {run: watched_bounds(alone, run) for run in known}
        mine = [run for run, watched in runs.items() if watched]
        have = [pair for run in mine for pair in known[run]]
        hits = sum(runs[run][0].takes(*pair) for run in mine for pair in known[run])
        what = f"bound {section.label}"
        if not mine:
            yield Finding(what, UNCHECKED, f"no run was pulled yet that {section.run!r} is about")
        elif not hits:
            wanted = section.role or section.metric or ""
            near = difflib.get_close_matches(wanted, {pair[section.role is not None] for pair in have}, n=3)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            yield Finding(what, UNCHECKED, f"no such metric in {', '.join(mine)}{hint}")
        else:
            yield Finding(what, OK, f"watches {hits} metrics of {len(mine)} runs, {section.severity}")


def _check(config: Config, check: CheckSection) -> Iterator[Finding]:
    """What a SQL check answers now."""
    from flows.stages.checks import ask
    from flows.store import open_store
    from flows.wiring import check_of

    what = f"check {check.label}"
    if not Path(config.store.url).exists():
        yield Finding(what, UNCHECKED, "no store yet to ask; the first pass makes it")
        return
    store = open_store(config.store.url, clock=time.time, must_exist=True)
    yield Finding(what, OK, f"{check.sql}: answers, {len(ask(store, check_of(check)))} rows now")


def _prefect(config: Config) -> Finding:
    api = configured_api()
    if api is not None:
        state = OK if is_healthy(api) else BROKEN
        return Finding("prefect", state, f"{api} {'answers' if state == OK else 'does not answer'}")
    api = running(home_beside(config.store.url))
    if api is not None:
        return Finding("prefect", OK, f"our own server answers on {api}")
    return Finding("prefect", OK, "no server configured: `watch` and `serve` start their own on loopback")
