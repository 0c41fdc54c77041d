"""Offline files of Weights & Biases (`run-ID.wandb`): one, a run's folder, or a `wandb` folder with many."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from flows.records import Batch, Description, Kin
from flows.sources.contract import refuse
from flows.sources.rows import Rows
from flows.sources.strands import Piece, mark, pull_strands
from flows.sources.streams import open_file
from flows.sources.wandb_log import START, read_records
from flows.sources.wandb_messages import RunRecord, history_names, run_record
from flows.sources.wandb_records import STEP_KEY, LastStep, Reader

_FIRST_RECORDS = 16  # the run record is the second


@dataclass(frozen=True)
class _File:
    """A file of a run; `last` is shared by all of them."""

    path: Path
    name: str
    began: int
    step_key: str
    last: LastStep

    def goes_on(self, state: Mapping[str, Any]) -> bool:
        at = state.get("at", 0)
        return at == 0 or mark(self.path, at) == state.get("mark")

    def read(self, state: Mapping[str, Any], rows: Rows) -> Iterator[Piece]:
        reader = Reader(rows, self.step_key, self.last)
        if "step" in state:
            self.last.step = state["step"]
        for records in read_records(self.path, int(state.get("at", 0))):
            reader.add(records.payloads)
            rows.notes.update(records.notes)
            found, notes = rows.take()
            yield Piece(found, {"at": records.end, "mark": mark(self.path, records.end), "step": self.last.step}, notes)


@dataclass(frozen=True)
class WandbRun:
    """One run: the files that have its id, as every resume writes one of its own."""

    path: Path
    run: str
    source: str
    files: tuple[tuple[Path, int], ...]
    step_key: str
    kin: Kin

    def describe(self) -> Description:
        return Description(self.run, self.source, "wandb", self.step_key, self.kin)

    def pull(self, cursor: str | None) -> Iterator[Batch]:
        last = LastStep()
        names = {path: path.name if path == self.path else str(path.relative_to(self.path)) for path, _ in self.files}
        files = [_File(path, names[path], began, self.step_key, last) for path, began in self.files]
        yield from pull_strands(self.path, files, cursor, "wandb", {"step_key": self.step_key})


def is_wandb_file(path: Path) -> bool:
    """By its first bytes."""
    with open_file(path) as file:
        return file.read(len(START)) == START


def open_wandb(path: Path, run: str | None, source: str, wanted: str | None) -> list[WandbRun]:
    """The runs of a file or folder, by their start; none where there is no such file."""
    runs: dict[str, list[tuple[Path, RunRecord]]] = {}
    for file in [path] if path.is_file() else _files(path):
        record = _record_of(file)
        runs.setdefault(record.run_id, []).append((file, record))
    ordered = sorted(runs.values(), key=lambda each: each[0][1].began)
    named = [each[0][1].name or each[0][1].run_id for each in ordered]
    found = []
    for name, each in zip(named, ordered, strict=True):
        own = name if named.count(name) == 1 else f"{name} {each[0][1].run_id}"
        called = (f"{run}/{own}" if len(ordered) > 1 else run) if run else own
        files = tuple((file, record.began) for file, record in each)
        first = each[0][1]
        kin = Kin(first.run_id, first.group, first.parent)
        found.append(WandbRun(path, called, source, files, wanted or STEP_KEY, kin))
    if wanted is not None:
        for each_run in found:
            _require(each_run, wanted)
    return found


def _files(folder: Path) -> list[Path]:
    """The files in a run's folder, or in those of a `wandb` folder."""
    for pattern in ("*.wandb", "*run-*/*.wandb"):
        files = sorted(path for path in folder.glob(pattern) if path.is_file() and is_wandb_file(path))
        kept = [path for path in files if path.parent.name != "latest-run"]  # a link to one of the others
        if files:
            return kept or files
    return []


def _record_of(path: Path) -> RunRecord:
    first = (payload for records in read_records(path, 0, piece=1) for payload in records.payloads)
    found = run_record(islice(first, _FIRST_RECORDS))
    name = path.stem.removeprefix("run-")
    return replace(found, run_id=found.run_id or name) if found else RunRecord(name, "", 0)


def _require(run: WandbRun, wanted: str) -> None:
    """Refuse a step key that is in none of the first rows."""
    for path, _ in run.files:
        first = next(read_records(path, 0), None)
        names = history_names(first.payloads) if first else {}
        if wanted in names:
            return
    if names:
        what = f"no {wanted!r} in its first rows (there is {', '.join(list(names)[:12])})"
        raise refuse(run.path, what, "name one of these with --step-key")
