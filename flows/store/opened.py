"""An opened database with its clock; what each side of the store stands on."""

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from flows.store.confined import Confined
from flows.store.connection import Database
from flows.store.frames import Moment, timestamp

Clock = Callable[[], Moment]
Row = Mapping[str, Any]


class Opened:
    """A database, and the clock that dates what is written."""

    def __init__(self, database: Database, clock: Clock, backup: Path | None = None) -> None:
        self._database = database
        self._clock = clock
        self._confined = None if database.path is None else Confined(database.path)
        self.path = database.path
        self.backup = backup  # where an older store was kept when this one was migrated on opening

    def _now(self) -> datetime:
        return timestamp(self._clock())

    def _moment(self, now: Moment | None) -> datetime:
        return self._now() if now is None else timestamp(now)
