"""Hugging Face's trainer_state.json (or its log_history alone, as a JSON list): re-read whole at each pull."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from flows.errors import SourceUnavailable
from flows.records import Batch, Description
from flows.sources.contract import MAX_DOCUMENT_BYTES, ROW_NUMBER, refuse
from flows.sources.cursor import decode
from flows.sources.objects import ObjectRows
from flows.sources.rows import FLUSH_ROWS, Rows
from flows.sources.stepkey import choose_step_key
from flows.sources.streams import blocks

FILE_NAME = "trainer_state.json"
_HISTORY = re.compile(r'"log_history"\s*:\s*\[')
_ENTRY = re.compile(r"[^\s,]")
_CHECKPOINT = re.compile(r"checkpoint-\d{1,18}")
_START = re.compile(r"\ufeff?\s*\[")


@dataclass(frozen=True)
class TrainerState:
    """One run. `folder` instead of a file: its trainer_state.json, or that of its newest checkpoint, at each pull."""

    path: Path
    run: str
    source: str
    wanted: str | None = None

    def describe(self) -> Description:
        return Description(self.run, self.source, "trainer_state", _step_key(self.file(), self.wanted))

    def file(self) -> Path:
        """What is read now. Raises SourceUnavailable where the folder holds no state (any more)."""
        found = newest(self.path) if self.path.is_dir() else self.path
        if found is None:
            raise SourceUnavailable(f"{self.path}: no {FILE_NAME} in it or its checkpoints; has the trainer saved yet?")
        return found

    def pull(self, cursor: str | None) -> Iterator[Batch]:
        state = decode(cursor, "trainer_state")
        entries = int(state.get("entries", 0))
        path = self.file()
        key = _step_key(path, self.wanted)
        known = state.get("step_key") == key and _begins_with(path, entries, state.get("mark"))
        restart = bool(cursor) and not known
        seen = entries if known else 0
        objects = ObjectRows(Rows(path), key, state.get("last_step") if known else None, seen)
        digest, at, sent = _hash(), 0, seen
        for at, (text, entry) in enumerate(_entries(path), start=1):
            digest.update(text.encode("utf-8", "surrogatepass"))
            if at > seen:
                _add(objects, entry)
            if len(objects.rows) >= FLUSH_ROWS:
                yield _batch(objects, at, digest, restart)
                restart, sent = False, at
        if restart or at > sent:
            yield _batch(objects, at, digest, restart)


def newest(folder: Path) -> Path | None:
    """The trainer_state.json of a run's folder: its own, else that of the checkpoint with the highest step."""
    if (folder / FILE_NAME).is_file():
        return folder / FILE_NAME
    states = [path for path in folder.glob(f"checkpoint-*/{FILE_NAME}") if _is_checkpoints(path)]
    return max(states, key=lambda path: int(path.parent.name.rpartition("-")[2]), default=None)


def _is_checkpoints(path: Path) -> bool:
    return bool(_CHECKPOINT.fullmatch(path.parent.name)) and path.is_file()


def run_name(path: Path) -> str:
    """The folder's name for a trainer_state.json (its run's folder for a checkpoint's), else the file's stem."""
    if path.name != FILE_NAME:
        return path.stem
    folder = path.resolve().parent
    return folder.parent.name if _CHECKPOINT.fullmatch(folder.name) else folder.name


def looks_like_history(text: str) -> bool:
    """Whether the beginning of a document is that of a trainer state or of a list of objects."""
    return bool(_HISTORY.search(text)) or bool(re.match(r"\ufeff?\s*\[\s*\{", text))


def open_history(path: Path, run: str, source: str, wanted: str | None) -> TrainerState:
    """Raises BadInput where there is no entry with a step and a number."""
    state = TrainerState(path, run, source, wanted)
    file = state.file()
    objects, entries = ObjectRows(Rows(file), state.describe().step_key), [e for _, e in islice(_entries(file), 64)]
    for entry in entries:
        _add(objects, entry)
    if not len(objects.rows):
        count = len(entries)
        what = f"no number with a step in its first {count} entries" if count else "its log_history is empty"
        raise refuse(file, what, "read it again after the trainer has logged (logging_steps)")
    return state


def _add(objects: ObjectRows, entry: object) -> None:
    if not isinstance(entry, dict):
        objects.rows.notes["entry that is no object"] += 1
        return
    if "train_runtime" not in entry:
        objects.add(entry)
        return
    # the closing summary: its train_loss is the mean of the run, and would look like a jump of the loss
    kept = {name: value for name, value in entry.items() if name in (objects.step_key, "epoch")}
    rest = {f"summary/{name}": value for name, value in entry.items() if name not in kept}
    objects.add({**kept, **rest})


def _entries(path: Path) -> Iterator[tuple[str, Any]]:
    """Text and value of the entries, up to the last whole one; one in memory at a time."""
    text = _document(path)
    found = _START.match(text) or _HISTORY.search(text)
    if found is None:
        raise refuse(path, "no log_history in it", "give the trainer_state.json of a Hugging Face Trainer")
    decoder, at = json.JSONDecoder(), found.end()
    while True:
        found = _ENTRY.search(text, at)
        if found is None or found[0] == "]":
            return
        at = found.start()
        try:
            entry, end = decoder.raw_decode(text, at)
        except RecursionError:
            raise refuse(path, f"nested too deep at character {at}", "flatten the metrics before logging") from None
        except ValueError as error:
            if _unfinished(text, error):
                return
            line = text.count("\n", 0, at) + 1
            raise refuse(path, f"broken JSON ({error.args[0].split(':')[0]})", "write the file again", line) from None
        yield text[at:end], entry
        at = end


def _unfinished(text: str, error: ValueError) -> bool:
    """Whether the text just ends too early, as while the trainer writes it."""
    at = getattr(error, "pos", 0)
    return text.find("}", at) < 0 or len(text) - at < 3


def _document(path: Path) -> str:
    pieces, size = bytearray(), 0
    for block in blocks(path):
        size += len(block)
        if size > MAX_DOCUMENT_BYTES:
            what = f"a JSON document of more than {MAX_DOCUMENT_BYTES >> 20} MB"
            raise refuse(path, what, "log as JSON Lines (one object a line) or Parquet")
        pieces += block
    try:
        return pieces.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.end == len(pieces):
            return pieces[: error.start].decode("utf-8")  # cut within a character
        line = pieces.count(b"\n", 0, error.start) + 1
        raise refuse(path, "not UTF-8 text", "convert it, for example with iconv", line) from None


def _step_key(path: Path, wanted: str | None) -> str:
    seen: dict[str, None] = {}
    for _, entry in islice(_entries(path), 64):
        names = list(entry) if isinstance(entry, dict) else []
        found = choose_step_key(names, wanted)
        if found is not None:
            return found
        seen.update(dict.fromkeys(names))
    if wanted is None:
        return "step" if not seen else ROW_NUMBER
    mend = f"name one of these with --step-key: {', '.join(list(seen)[:12])}"
    raise refuse(path, f"no {wanted!r} in its first entries", mend)


def _begins_with(path: Path, entries: int, mark: object) -> bool:
    """Whether its first entries are those that were read before."""
    digest = _hash()
    for at, (text, _) in enumerate(_entries(path), start=1):
        digest.update(text.encode("utf-8", "surrogatepass"))
        if at == entries:
            return digest.hexdigest() == mark
    return entries == 0


def _hash() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=12)


def _batch(objects: ObjectRows, entries: int, digest: hashlib.blake2b, restart: bool) -> Batch:
    cursor = {"format": "trainer_state", "entries": entries, "mark": digest.hexdigest()}
    cursor |= {"step_key": objects.step_key, "last_step": objects.last_step}
    rows, notes = objects.rows.take()
    return Batch(rows, json.dumps(cursor), restart, notes)
