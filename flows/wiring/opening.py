"""The store and the sources that the configuration names."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from flows.config import Config
from flows.errors import BadConfig
from flows.sections import RunSection
from flows.sources.catalogue import open_sources
from flows.sources.contract import Source
from flows.sources.grammar import UserPattern
from flows.sources.lineage import Chain, Segment
from flows.store import Store, open_store


def utc_now() -> datetime:
    """The clock, for those that need a date."""
    return datetime.now(UTC)


def open_configured_store(config: Config, clock: Callable[[], float] = time.time) -> Store:
    """The store of the configuration. Raises BadConfig for one that would be gone after the pass."""
    if config.store.url == ":memory:":
        raise BadConfig(
            f"{config.path}: store.url: a watch needs a file to remember; write store.url = 'watchkeeper.duckdb'"
        )
    return open_store(config.store.url, clock=clock)


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
