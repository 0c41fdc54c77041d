"""TensorBoard event files: one, or a folder with those of a run.

TensorBoard takes every folder with event files for a run of its own. Here a folder is a part of the run above it, its path in
front of its tags (`validation/epoch_loss`), where that run would be torn apart otherwise: below a folder that has event
files itself (add_scalars, an Estimator's `eval`), and where it is called like a share of the data (Keras's `train` and
`validation`). Other folders are runs, named by their path.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.errors import SourceUnavailable
from flows.records import Batch, Description
from flows.sources.contract import refuse
from flows.sources.rows import Rows
from flows.sources.strands import Piece, mark, pull_strands
from flows.sources.tfevents import Reader, wall_micros
from flows.sources.tfrecords import LOST, first_payload, is_event_file, read_records

_NAMED = "tfevents"  # what TensorBoard itself looks for in the name
_SHARES = re.compile(r"(train|training|val|valid|validation|eval|evaluation|dev|test|testing)\d*", re.IGNORECASE)
MAX_DEPTH = 6
MAX_FILES = 10_000


@dataclass(frozen=True)
class EventFile:
    """A file of a run: `name` in the cursor, what stands in front of its tags."""

    path: Path
    name: str
    began: int
    prefix: str = ""

    def goes_on(self, state: Mapping[str, Any]) -> bool:
        at = state.get("at", 0)
        return at == 0 or mark(self.path, at) == state.get("mark")

    def read(self, state: Mapping[str, Any], rows: Rows) -> Iterator[Piece]:
        reader = Reader(rows, self.prefix)
        for records in read_records(self.path, int(state.get("at", 0))):
            lost = LOST in records.notes
            if lost and state.get("lost") == records.end:
                return  # it was told before
            reader.add(records.payloads)
            rows.notes.update(records.notes)
            found, notes = rows.take()
            behind = {"at": records.end, "mark": mark(self.path, records.end)}
            yield Piece(found, {**behind, "lost": records.end} if lost else behind, notes)


@dataclass(frozen=True)
class EventFiles:
    """One run: the file, or the folders with their prefixes, which are looked through at each pull."""

    path: Path
    run: str
    source: str
    parts: tuple[tuple[Path, str], ...] = ()

    def describe(self) -> Description:
        return Description(self.run, self.source, "tensorboard", "step")

    def pull(self, cursor: str | None) -> Iterator[Batch]:
        files = self._files()
        if not files:
            raise SourceUnavailable(f"{self.path}: its event files are gone; is the file system there?")
        yield from pull_strands(self.path, files, cursor, "tensorboard", {})

    def _files(self) -> list[EventFile]:
        if not self.parts:
            return [EventFile(self.path, self.path.name, wall_micros(first_payload(self.path)))]
        found = [(path, prefix) for folder, prefix in self.parts for path in _in(folder)]
        return [
            EventFile(path, path.relative_to(self.path).as_posix(), wall_micros(first_payload(path)), prefix)
            for path, prefix in found
            if is_event_file(path)
        ]


def open_event_file(path: Path, run: str | None, source: str, wanted: str | None) -> EventFiles:
    """The run of one file. Raises BadInput for a step key."""
    _refuse_step_key(path, wanted)
    named = path.resolve().parent.name if _NAMED in path.name else path.stem
    return EventFiles(path, run or named or path.name, source)


def open_event_folder(folder: Path, run: str | None, source: str, wanted: str | None) -> list[EventFiles]:
    """The runs of a folder and those below it; none where there is no event file."""
    holders = [Path(place) for place in _holders(folder)]
    if not holders:
        return []
    _refuse_step_key(folder, wanted)
    parts: dict[Path, list[tuple[Path, str]]] = {}
    for holder in holders:
        root = _root(holder, folder, set(holders))
        prefix = "" if root == holder else f"{holder.relative_to(root).as_posix()}/"
        parts.setdefault(root, []).append((holder, prefix))
    found = []
    for root, each in parts.items():
        own = folder.resolve().name if root == folder else root.relative_to(folder).as_posix()
        called = own if run is None else run if len(parts) == 1 else f"{run}/{own}"
        found.append(EventFiles(root, called, source, tuple(each)))
    return found


def _holders(folder: Path) -> list[str]:
    """Folders with event files, the upper ones first."""
    found, seen = [], 0
    for place, folders, files in os.walk(folder):
        folders.sort()
        if len(Path(place).relative_to(folder).parts) >= MAX_DEPTH:
            folders.clear()
        seen += len(files) + len(folders)
        if any(map(is_event_file, _in(Path(place)))):
            found.append(place)
        if seen > MAX_FILES:
            break
    return found


def _root(holder: Path, folder: Path, holders: set[Path]) -> Path:
    """The folder of the run to which it belongs: the uppermost that has events, else the one above a share of the data."""
    within = [holder, *(place for place in holder.parents if place == folder or folder in place.parents)]
    top = next(place for place in reversed(within) if place in holders)
    return top.parent if top != folder and _SHARES.fullmatch(top.name) else top


def _in(folder: Path) -> Sequence[Path]:
    try:
        return sorted(path for path in folder.iterdir() if _NAMED in path.name and path.is_file())
    except OSError:
        return []  # a part that is gone


def _refuse_step_key(path: Path, wanted: str | None) -> None:
    if wanted not in (None, "step"):
        raise refuse(path, "event files have one step, and no other column to take it from", "leave --step-key out")
