"""A run in MLflow's file store, `mlruns/EXPERIMENT/RUN`: one text file a metric, a line `milliseconds value step` a sample.

Read directly, without MLflow: its own store would make folders, and MLflow 3.17 refuses file stores by default.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from flows.records import SAMPLE_SCHEMA, Batch, Description
from flows.sources.contract import MAX_LINE_BYTES, MAX_METRICS, MAX_NAME_CHARS, refuse
from flows.sources.cursor import decode
from flows.sources.merge import Piece, Place, merged
from flows.sources.streams import open_file

FORMAT = "mlflow"
_HELD_BYTES = 32 << 20  # of all metric files together
_META = "meta.yaml"
_RUN_NAME = re.compile(r"^run_name:\s*(['\"]?)(.*?)\1\s*$", re.MULTILINE)


@dataclass(frozen=True)
class RunFolder:
    """One run. The cursor holds a place for each metric's file."""

    path: Path
    run: str
    source: str

    def describe(self) -> Description:
        return Description(self.run, self.source, FORMAT, "step")

    def pull(self, cursor: str | None) -> Iterator[Batch]:
        state = decode(cursor, FORMAT)
        places: dict[str, Place] = dict(state.get("files") or {})
        files = metric_files(self.path)
        notes: Counter[str] = Counter()
        restart = bool(cursor) and not all(_still_there(files.get(name), place) for name, place in places.items())
        restart |= bool(cursor) and not places
        if restart:
            places = {}
        size = min(1 << 20, max(4096, _HELD_BYTES // max(1, len(files))))
        pieces = {name: _pieces(path, places.get(name), size, notes) for name, path in files.items()}
        for rows, moved in merged(pieces):
            places |= moved
            yield Batch(rows, _cursor(places), restart, dict(notes))
            restart = False
            notes.clear()
        if restart:
            yield Batch(pl.DataFrame(schema=SAMPLE_SCHEMA), _cursor(places), restart, dict(notes))


def is_run_folder(folder: Path) -> bool:
    """Whether it is a run of a file store, or a store or experiment that holds runs."""
    return bool(_runs(folder))


def open_run_folder(folder: Path, run: str | None) -> RunFolder:
    """Raises BadInput where there are several runs, or none has logged a metric."""
    runs = _runs(folder)
    if len(runs) > 1:
        names = ", ".join(str(path) for path in runs[:12])
        raise refuse(folder, f"an MLflow store with {len(runs)} runs", f"name one of them: {names}")
    if not metric_files(runs[0]):
        raise refuse(runs[0], "a run without a metric", "read it again when the run has logged one")
    found = _RUN_NAME.search((runs[0] / _META).read_text(encoding="utf-8", errors="replace"))
    return RunFolder(runs[0], run or run_label(found[2] if found else "", runs[0].name), str(folder))


def run_label(name: str, run_id: str) -> str:
    """`hero-1a2b3c`: the name of an MLflow run need not be its own."""
    return f"{name or 'run'}-{run_id[:6]}"


def metric_files(folder: Path) -> dict[str, Path]:
    """The file of each metric, by name; names with a slash lie in folders."""
    base = folder / "metrics"
    found = {
        path.relative_to(base).as_posix(): path
        for path in sorted(base.rglob("*"))
        if path.is_file() and len(path.relative_to(base).as_posix()) <= MAX_NAME_CHARS
    }
    if len(found) > MAX_METRICS:
        raise refuse(folder, f"more than {MAX_METRICS:,} metrics", "log one name a quantity, not one a step")
    return found


def _runs(folder: Path) -> list[Path]:
    """The folder itself, or the runs one or two levels below it."""
    if _is_run(folder):
        return [folder]
    if not (folder / _META).is_file() and not any(folder.glob(f"*/{_META}")):
        return []
    return sorted(
        path.parent for depth in ("*", "*/*") for path in folder.glob(f"{depth}/{_META}") if _is_run(path.parent)
    )


def _is_run(folder: Path) -> bool:
    return (folder / _META).is_file() and (folder / "metrics").is_dir()


def _cursor(places: dict[str, Place]) -> str:
    return json.dumps({"format": FORMAT, "files": places})


def _still_there(path: Path | None, place: Place) -> bool:
    """Whether the last line that was read still stands where it stood."""
    if path is None:
        return False
    with open_file(path) as file:
        file.seek(place["at"] - place["length"])
        return _digest(file.read(place["length"])) == str(place["mark"])


def _pieces(path: Path, place: Place | None, size: int, notes: Counter[str]) -> Iterator[Piece]:
    """Whole lines from the place on, about `size` bytes at a time."""
    at = place["at"] if place else 0
    while True:
        with open_file(path) as file:
            file.seek(at)
            text = file.read(size)
        end = text.rfind(b"\n") + 1
        if not end:
            if len(text) < size:
                return  # the last line may not be finished
            size *= 2
            if size > MAX_LINE_BYTES:
                raise refuse(path, f"a line longer than {MAX_LINE_BYTES >> 20} MB", "is it a metric of MLflow?")
            continue
        piece = _parse(text[:end], at, notes)
        at += end
        yield piece


def _parse(text: bytes, start: int, notes: Counter[str]) -> Piece:
    fields, ends = text.split(), np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == 10) + 1
    try:
        if len(fields) != 3 * len(ends):
            raise ValueError
        table = np.array(fields).reshape(-1, 3)
        times, values, steps = table[:, 0].astype(np.int64), table[:, 1].astype(np.float64), table[:, 2].astype(float)
        if not np.isfinite(steps).all():
            raise ValueError
    except (ValueError, OverflowError):
        return _parse_slowly(text, start, notes)
    return _piece(text, start, times, steps, values, ends)


def _parse_slowly(text: bytes, start: int, notes: Counter[str]) -> Piece:
    """Line by line: old lines have no step, new ones may name a data set behind it."""
    rows: list[tuple[int, float, float, int]] = []
    end = 0
    for line in text.splitlines(keepends=True):
        end += len(line)
        parts = line.split()
        try:
            time, value, step = int(parts[0]), float(parts[1]), float(int(parts[2])) if len(parts) > 2 else 0.0
            rows.append((int(np.int64(time)), value, step, end))
        except (ValueError, IndexError, OverflowError):
            if parts:
                notes["line that is no sample"] += 1
    times, values, steps, ends = (np.array(column) for column in zip(*rows, strict=True)) if rows else [np.empty(0)] * 4
    return _piece(text, start, times.astype(np.int64), steps.astype(float), values.astype(float), ends.astype(np.int64))


def _piece(text: bytes, start: int, times: Any, steps: Any, values: Any, ends: Any) -> Piece:
    def place(rows: int) -> Place:
        end = int(ends[rows - 1])
        line = text[text.rfind(b"\n", 0, end - 1) + 1 : end]
        return {"at": start + end, "length": len(line), "mark": _digest(line)}

    return Piece(times, steps, values, place)


def _digest(line: bytes) -> str:
    return hashlib.blake2b(line, digest_size=8).hexdigest()
