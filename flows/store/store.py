"""The store as the stages see it. Each method is one short transaction; nothing stays open between two calls."""

from pathlib import Path

from flows.errors import BadConfig
from flows.store.connection import Database
from flows.store.frames import timestamp
from flows.store.judging import Judging
from flows.store.keeping import Keeping
from flows.store.opened import Clock
from flows.store.pulling import Pulling
from flows.store.reading import Reading
from flows.store.schema import bring_up_to_date
from flows.store.telling import Telling


class Store(Pulling, Judging, Telling, Reading, Keeping):
    """All that watchkeeper remembers; made by open_store.

    Times go in as unix seconds or datetimes, and come out as naive UTC.
    """


def open_store(url: str | Path, *, clock: Clock, must_exist: bool = False) -> Store:
    """The store at `url`: the path of a DuckDB file, made or migrated if need be, or ":memory:".

    Raises StoreTooNew, StoreBusy, StoreFull; BadConfig for a URL that is no path, or if it `must_exist` and does not.
    """
    path = path_of(url)
    if must_exist and path is not None and not path.exists():
        raise BadConfig(
            f"store {path}: there is none yet. Run `watchkeeper watch --once`, or give another path as store.url."
        )
    database = Database(path)
    return Store(database, clock, bring_up_to_date(database, timestamp(clock())))


def path_of(url: str | Path) -> Path | None:
    """The file behind a store URL; None for ":memory:". Raises BadConfig for another scheme."""
    text = str(url)
    if text == ":memory:":
        return None
    if ":" in text.partition("/")[0]:
        raise BadConfig(f"store.url {text!r}: only the path of a DuckDB file or ':memory:' can be a store so far.")
    return Path(text).expanduser().resolve()
