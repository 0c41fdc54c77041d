"""Which source reads a target: told by its content, never by its name."""

import re
from dataclasses import replace
from pathlib import Path

from flows.errors import BadInput
from flows.sources.contract import MAX_LINE_BYTES, Source, refuse
from flows.sources.delimited import open_tables
from flows.sources.jsonl import first_objects, open_lines, parse_line
from flows.sources.lightning import is_metrics_file, metrics_files
from flows.sources.parquet import MAGIC, open_parquet
from flows.sources.streams import head, open_file
from flows.sources.tensorboard import is_event_file, open_event_file, open_event_folder
from flows.sources.tfrecords import begins_with_record
from flows.sources.trackio import MAGIC as SQLITE
from flows.sources.trackio import open_trackio
from flows.sources.trainer_state import looks_like_history, newest, open_history, run_name
from flows.sources.wandb_file import open_wandb
from flows.sources.wandb_log import START as WANDB

_BINARY = {
    b"PK\x03\x04": ("a ZIP archive", "unpack it and name a file of it"),
    b"BZh": ("bzip2-compressed", "decompress it, or compress it with gzip or zstd"),
    b"\xfd7zXZ": ("xz-compressed", "decompress it, or compress it with gzip or zstd"),
    b"\xff\xfe": ("UTF-16 text", "convert it with iconv -f UTF-16 -t UTF-8"),
    b"\xfe\xff": ("UTF-16 text", "convert it with iconv -f UTF-16 -t UTF-8"),
}
_SUFFIXES = re.compile(r"(\.(jsonl|ndjson|json|csv|tsv|txt|log|parquet|pq))?(\.(gz|gzip|zst|zstd))?$", re.IGNORECASE)
_KNOWN = (
    "JSON Lines, CSV or TSV, Parquet, TensorBoard events, a .wandb file, trackio's database, or a trainer_state.json"
)


def open_sources(target: str, *, step_key: str | None = None, run: str | None = None) -> list[Source]:
    """The runs of a file or folder, in its order. `run` overrules their name (`run/name` for one of several).

    Raises BadInput, with one line that says what is wrong and how to mend it, where there is nothing to watch.
    """
    if re.match(r"[a-z][a-z0-9+.-]+://", target, re.IGNORECASE):
        kind = target.split("://", maxsplit=1)[0]
        raise refuse(f"{kind}://...", "this kind of address cannot be read", "name a local file or folder")
    path = Path(target)
    try:
        found = path.is_dir(), path.is_file(), path.exists()
    except (OSError, ValueError):
        raise refuse(target[:200], "no usable path", "name a file or folder") from None
    if not found[2]:
        raise refuse(target, "no such file or folder", "check the path (relative to the current folder)")
    if found[0]:
        return _in_folder(path, step_key, run)
    if not found[1]:
        raise refuse(target, "no regular file", "write the log to a file and name that")
    return _in_file(path, target, step_key, run)


def _in_folder(folder: Path, step_key: str | None, run: str | None) -> list[Source]:
    """A Trainer's output folder, or one with a single log that can be read."""
    state = newest(folder)
    name = run or folder.resolve().name
    if state is not None:
        return [open_history(folder, name, str(folder), step_key)]
    if runs := open_wandb(folder, run, str(folder), step_key):
        return list(runs)
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    found: dict[Path, list[Source]] = {}
    why: list[str] = []
    for file in files[:100]:
        try:
            if not is_event_file(file):
                called = run or (name if is_metrics_file(file) else None)
                found[file] = _in_file(file, str(file), step_key, called)
            elif not any(map(is_event_file, found)):  # all of them are one log
                found[file] = list(open_event_folder(folder, run, str(folder), step_key))
        except BadInput as error:
            why.append(f"{file.name}: {str(error).removeprefix(f'{file}: ')}")
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        names = ", ".join(path.name for path in list(found)[:12])
        raise refuse(folder, f"a folder with {len(found)} logs", f"name one of them: {names}")
    if below := _below(folder, step_key, run):
        return below
    seen = "; ".join(why[:3]) or "no files"
    raise refuse(folder, f"no log that can be read ({seen})", f"put one of these there: {_KNOWN}")


def _below(folder: Path, step_key: str | None, run: str | None) -> list[Source]:
    """Runs in the folders of a folder that holds none itself, as trackers lay them out."""
    if runs := open_wandb(folder / "wandb", run, str(folder), step_key):
        return list(runs)
    if events := open_event_folder(folder, run, str(folder), step_key):
        return list(events)
    versions = metrics_files(folder)
    names = {path: path.parent.name for path in versions}
    if run is not None:
        names = {path: f"{run}/{name}" if len(names) > 1 else run for path, name in names.items()}
    return [source for path, name in names.items() for source in _in_file(path, str(path), step_key, name)]


def _in_file(path: Path, target: str, step_key: str | None, run: str | None) -> list[Source]:
    name = run or run_name(path) or path.name
    with open_file(path) as file:
        start = file.read(16)
    if not start:
        raise refuse(path, "an empty file", "name the log of a run that has begun")
    if found := _of_tracker(path, start, target, step_key, run):
        return found
    text = head(path)
    _refuse_binary(path, text)
    if not text.strip():
        raise refuse(path, "nothing but blank lines", "name the log of a run that has begun")
    if looks_like_history(text.decode("utf-8", "replace")):
        return [open_history(path, name, target, step_key)]
    if b"\n" not in text and len(text) > MAX_LINE_BYTES:
        what = f"the line is longer than {MAX_LINE_BYTES >> 20} MB"
        raise refuse(path, what, "write one JSON object or one row of values a line", 1)
    first = list(first_objects(text))
    starts_with_object = text.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
    if first and (starts_with_object or b'{"tracker"' in text):
        return [open_lines(path, _stem(path, run), target, step_key, first)]
    if starts_with_object:
        raise _no_objects(path, text)
    tables = open_tables(path, _stem(path, run), target, step_key)
    if run is None:
        return list(tables)
    several = len(tables) > 1
    return [replace(table, run=f"{run}/{table.run}" if several else run) for table in tables]


def _of_tracker(path: Path, start: bytes, target: str, step_key: str | None, run: str | None) -> list[Source]:
    """The runs of a binary file that a tracker or a table writer left, by its first bytes; none for any other."""
    if start.startswith(MAGIC):
        return [open_parquet(path, _stem(path, run), target, step_key)]
    if start.startswith(SQLITE):
        return list(open_trackio(path, run, target, step_key))
    if begins_with_record(start):
        return [open_event_file(path, run, target, step_key)]
    return list(open_wandb(path, run, target, step_key)) if start.startswith(WANDB) else []


def _stem(path: Path, run: str | None) -> str:
    return run or _SUFFIXES.sub("", path.name) or path.name


def _refuse_binary(path: Path, text: bytes) -> None:
    for start, (what, mend) in _BINARY.items():
        if text.startswith(start):
            raise refuse(path, what, mend)
    if b"\0" in text:
        raise refuse(path, "a binary file", f"give {_KNOWN}")


def _no_objects(path: Path, text: bytes) -> BadInput:
    """Why a file that begins with a brace has no line that is an object with metrics."""
    line = text.lstrip().split(b"\n")[0]
    mend = 'write one object a line, such as {"step": 1, "loss": 2.5}'
    item, _ = parse_line(line)
    if item is not None:
        return refuse(path, "JSON, but no metrics of a run", mend, 1)
    return refuse(path, "no JSON object on the first line, and no log_history", mend, 1)
