"""MLPerf's `:::MLLOG {json}` lines, among whatever else a console prints and behind the labels of ranks.

Samples are the events that carry a number and, in their metadata, a step; the values of `tracked_stats` go by their own
names. An event without a step says how the run is configured. Source of the keys: mlcommons/logging, mllog/constants.py.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flows.records import Batch, Description
from flows.sources.contract import refuse
from flows.sources.cursor import decode
from flows.sources.events import AXES, EventRows, axis_of, parse_event
from flows.sources.lines import Place, place_of, read_lines, still_there
from flows.sources.rows import FLUSH_ROWS, Rows
from flows.sources.streams import BLOCK_BYTES

LOOK_AT_BYTES = 8 << 20


@dataclass(frozen=True)
class MlLog:
    """An MLPerf log. `axis` are the names under which its metadata gives the step."""

    path: Path
    run: str
    source: str
    step_key: str
    axis: tuple[str, ...]

    def describe(self) -> Description:
        return Description(self.run, self.source, "mllog", self.step_key)

    def pull(self, cursor: str | None) -> Iterator[Batch]:
        state = decode(cursor, "mllog")
        start, restart = place_of(state), False
        if cursor and (state.get("axis") != list(self.axis) or not still_there(self.path, start)):
            state, start, restart = {}, Place(), True
        rows, place = Rows(self.path), start
        events = EventRows(rows, self.axis, state)
        for piece in read_lines(self.path, start, returns=True):
            if not piece.whole:
                break
            events.add(piece.lines)
            place = piece.place
            if len(rows) >= FLUSH_ROWS:
                yield self._batch(events, place, restart)
                restart = False
        if restart or place != start:
            yield self._batch(events, place, restart)

    def _batch(self, events: EventRows, place: Place, restart: bool) -> Batch:
        rows, notes = events.rows.take()
        state = {"format": "mllog", "axis": self.axis, **asdict(place), **events.state()}
        return Batch(rows, json.dumps(state), restart, notes)


def open_mllog(path: Path, run: str, source: str, wanted: str | None, *, thorough: bool) -> MlLog | None:
    """The log of a run whose first events hold a number at a step; None without such events.

    Raises BadInput where none of them has a step under the name `wanted`.
    """
    seen: dict[str, None] = {}
    for metadata in _steps(path, LOOK_AT_BYTES if thorough else BLOCK_BYTES):
        seen.update(dict.fromkeys(metadata))
    if not seen:
        return None
    if wanted is not None and wanted not in seen:
        what = f"no event with a number and {wanted!r} in its metadata (there is {', '.join(list(seen)[:12])})"
        raise refuse(path, what, "name one of these with --step-key")
    axis = (wanted,) if wanted is not None else axis_of(seen)
    return MlLog(path, run, source, next(key for key in axis if key in seen), axis)


def _steps(path: Path, most: int) -> Iterator[Sequence[str]]:
    """The numbers in the metadata of events with a step, by name."""
    known = {key for axis in AXES for key in axis}
    for piece in read_lines(path, Place(), returns=True):
        for line in piece.lines if piece.whole else ():
            event = parse_event(line)[0]
            if event is not None and isinstance(event.get("metadata"), dict):
                keys = [key for key, value in event["metadata"].items() if _is_number(value) and key != "lineno"]
                if known & set(keys):
                    yield keys
        if piece.place.offset >= most:
            return


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
