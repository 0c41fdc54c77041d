"""One pass over all runs."""

import time
from collections.abc import Callable
from functools import partial

from flows.channels.catalogue import open_configured
from flows.channels.heartbeat import ping
from flows.config import Config
from flows.passes import Call, Report, plainly
from flows.stages.acklink import linking
from flows.wiring.after_runs import ask_channels, keep_record, keep_up, list_open, watch_itself
from flows.wiring.house import House
from flows.wiring.one_run import references_first, watch_entry
from flows.wiring.opening import open_configured_store
from flows.wiring.own_checks import ask_checks
from flows.wiring.terms import served


def one_pass(config: Config, *, call: Call = plainly, clock: Callable[[], float] = time.time) -> Report:
    """Pull, judge and notify for every run, then tell of the watch's own failures and ping the heartbeat.

    Never raises for what a source, a channel or the store does: the report holds it.
    """
    report = Report([run.label for run in config.run], record=served(config.record))
    channels = {
        each.name: channel
        for each in config.channel
        if (channel := report.attempt(f"channel {each.name}", "open", partial(open_configured, each))) is not None
    }
    linked = {each.name for each in config.channel if each.ack_link}
    # an alert goes out without its link rather than not at all
    link = report.attempt("phone", "open", partial(linking, config.phone, linked))
    house = House(config, channels, clock, call, report, link)
    store = report.attempt("store", "open", partial(open_configured_store, config, clock), call)
    if store is not None:
        for run in references_first(config):
            watch_entry(house, store, run)
        ask_checks(house, store)
        ask_channels(house, store)
        report.attempt("store", "list what is open", partial(list_open, house, store))
        if config.record.out is not None:
            report.attempt("record", "publish", partial(keep_record, house, store), call)
        if config.store.retention is not None:
            report.attempt("store", "upkeep", partial(keep_up, store, config.store.retention, clock), call)
    watch_itself(house)
    heartbeat = config.watch.heartbeat_url
    if heartbeat is not None and report.good:
        report.attempt("heartbeat", "ping", lambda: ping(heartbeat.get_secret_value()))
    return report
