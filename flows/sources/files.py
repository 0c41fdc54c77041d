"""Which source reads a file: told by its first bytes, then by its first lines, never by its name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from flows.errors import BadInput
from flows.sources.contract import MAX_LINE_BYTES, Source, refuse
from flows.sources.delimited import is_plain_table, open_tables
from flows.sources.grammar import UserPattern, built_in, read_line
from flows.sources.jsonl import first_objects, open_lines, parse_line
from flows.sources.mllog import open_mllog
from flows.sources.parquet import MAGIC, open_parquet
from flows.sources.stepkey import choose_step_key
from flows.sources.streams import head, open_file
from flows.sources.textlog import open_text
from flows.sources.tfrecords import begins_with_record
from flows.sources.trackio import MAGIC as SQLITE
from flows.sources.trackio import open_trackio
from flows.sources.trainer_state import looks_like_history, open_history, run_name
from flows.sources.wandb_log import START as WANDB

_BINARY = {
    b"PK\x03\x04": ("a ZIP archive", "unpack it and name a file of it"),
    b"BZh": ("bzip2-compressed", "decompress it, or compress it with gzip or zstd"),
    b"\xfd7zXZ": ("xz-compressed", "decompress it, or compress it with gzip or zstd"),
    b"\xff\xfe": ("UTF-16 text", "convert it with iconv -f UTF-16 -t UTF-8"),
    b"\xfe\xff": ("UTF-16 text", "convert it with iconv -f UTF-16 -t UTF-8"),
}
_HOLE = re.compile(rb"\0{8,}")  # what a file system leaves where a machine died while it wrote a text
_SUFFIXES = re.compile(r"(\.(jsonl|ndjson|json|csv|tsv|txt|log|parquet|pq))?(\.(gz|gzip|zst|zstd))?$", re.IGNORECASE)
KNOWN = (
    "JSON Lines, CSV or TSV, Parquet, a console log, TensorBoard events, a .wandb file, trackio's database, "
    "or a Hugging Face trainer_state.json"
)


@dataclass(frozen=True)
class Reading:
    """How the user wants a log read: by which step, under which name, by which patterns of his own."""

    step_key: str | None = None
    run: str | None = None
    patterns: Sequence[UserPattern] = ()

    def called(self, run: str | None) -> "Reading":
        """The same under another name."""
        return replace(self, run=run)

    def stem(self, path: Path) -> str:
        """The name of a run that does not name itself."""
        return self.run or _SUFFIXES.sub("", path.name) or path.name


def open_file_run(path: Path, target: str, reading: Reading) -> list[Source]:
    """The runs of one file; `target` is what the user called it. Raises BadInput where it holds none."""
    with open_file(path) as file:
        start = file.read(16)
    if not start:
        raise refuse(path, "an empty file", "name the log of a run that has begun")
    if found := _binary(path, start, target, reading):
        return found
    text = head(path)
    _refuse_binary(path, text)
    if not text.strip():
        raise refuse(path, "nothing but blank lines", "name the log of a run that has begun")
    if looks_like_history(text.decode("utf-8", "replace")):
        name = reading.run or run_name(path) or path.name
        return [open_history(path, name, target, reading.step_key)]
    if b"\n" not in text and b"\r" not in text and len(text) > MAX_LINE_BYTES:
        what = f"the line is longer than {MAX_LINE_BYTES >> 20} MB"
        raise refuse(path, what, "write one JSON object or one row of values a line", 1)
    first = list(first_objects(text))
    starts_with_object = text.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
    if first and (starts_with_object or b'{"tracker"' in text):
        return [open_lines(path, reading.stem(path), target, reading.step_key, first)]
    if not starts_with_object:
        return _console_or_tables(path, target, reading, first)
    log = _console(path, target, reading, thorough=False)
    if log is None:
        raise _no_objects(path, text)
    return [log]


def _binary(path: Path, start: bytes, target: str, reading: Reading) -> list[Source]:
    """The runs of a binary file that a tracker or a table writer left, by its first bytes; none for any other."""
    if start.startswith(MAGIC):
        return [open_parquet(path, reading.stem(path), target, reading.step_key)]
    if start.startswith(SQLITE):
        return list(open_trackio(path, reading.run, target, reading.step_key))
    if begins_with_record(start):
        from flows.sources.tensorboard import open_event_file  # protobuf, which text needs not

        return [open_event_file(path, reading.run, target, reading.step_key)]
    if start.startswith(WANDB):
        from flows.sources.wandb_file import open_wandb

        return list(open_wandb(path, reading.run, target, reading.step_key))
    return []


def _console_or_tables(path: Path, target: str, reading: Reading, first: list[dict[str, Any]]) -> list[Source]:
    """A console log that a pattern knows, else objects among other lines, a table, or whatever console log it may be."""
    console = partial(_console, path, target, reading)
    if not reading.patterns and is_plain_table(path, head(path)):
        return _tables(path, target, reading)
    header = head(path).removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")[0].decode("utf-8", "replace")
    if (log := console(thorough=read_line(header, built_in()) is not None)) is not None:
        return [log]
    if sum(choose_step_key(item) is not None for item in first) > 1:
        return [open_lines(path, reading.stem(path), target, reading.step_key, first)]
    try:
        return _tables(path, target, reading)
    except BadInput as error:
        if (log := console(thorough=True)) is not None:
            return [log]
        raise BadInput(f"{error} (and no pattern of console logs fits its lines: see docs/sources.md)") from None


def _tables(path: Path, target: str, reading: Reading) -> list[Source]:
    tables = open_tables(path, reading.stem(path), target, reading.step_key)
    run = reading.run
    if run is None:
        return list(tables)
    several = len(tables) > 1
    return [replace(table, run=f"{run}/{table.run}" if several else run) for table in tables]


def _console(path: Path, target: str, reading: Reading, *, thorough: bool) -> Source | None:
    """A console log; `thorough` looks further than its beginning, and at last takes what looks like one."""
    run, step_key = reading.stem(path), reading.step_key
    log = open_mllog(path, run, target, step_key, thorough=thorough)
    return log or open_text(path, run, target, step_key, reading.patterns, thorough=thorough)


def _refuse_binary(path: Path, text: bytes) -> None:
    for start, (what, mend) in _BINARY.items():
        if text.startswith(start):
            raise refuse(path, what, mend)
    if b"\0" in text and (b"\0" in (rest := _HOLE.sub(b"", text)) or not rest.strip()):
        raise refuse(path, "a binary file", f"give {KNOWN}")


def _no_objects(path: Path, text: bytes) -> BadInput:
    """Why a file that begins with a brace has no line that is an object with metrics."""
    line = text.lstrip().split(b"\n")[0]
    mend = 'write one object a line, such as {"step": 1, "loss": 2.5}'
    item, _ = parse_line(line)
    if item is not None:
        return refuse(path, "JSON, but no metrics of a run", mend, 1)
    return refuse(path, "no JSON object on the first line, and no log_history", mend, 1)
