"""JSON Lines: one object a line, or Levanter's json_logger events among the lines of a console log."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flows.records import Batch, Description
from flows.sources.contract import ROW_NUMBER, refuse
from flows.sources.cursor import decode
from flows.sources.lines import Lines, Place, place_of, read_lines, still_there
from flows.sources.objects import ObjectRows
from flows.sources.plain_objects import read_block
from flows.sources.rows import FLUSH_ROWS, Rows
from flows.sources.stepkey import choose_step_key
from flows.sources.timestamps import to_micros

_PREFIX_TIME = re.compile(r"\W{0,2}(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?)")
_LOOK_AT = 64  # objects that decide on the step key


@dataclass(frozen=True)
class JsonLines:
    """A JSONL file. `step_key` is None where one line without a step is all there is yet: the next one will tell."""

    path: Path
    run: str
    source: str
    wanted: str | None
    step_key: str | None

    def describe(self) -> Description:
        return Description(self.run, self.source, "jsonl", self.step_key or "step")

    def pull(self, cursor: str | None) -> Iterator[Batch]:
        state = decode(cursor, "jsonl")
        start, restart = place_of(state), False
        other_key = self.wanted not in (None, state.get("step_key"))
        if cursor and (not state.get("step_key") or other_key or not still_there(self.path, start)):
            state, start, restart = {}, Place(), True
        key = state.get("step_key") or self.step_key
        if key is None:
            return
        rows, place = Rows(self.path), start
        objects = ObjectRows(rows, key, state.get("last_step"), state.get("count", 0))
        for piece in read_lines(self.path, start):
            if not _add_lines(objects, piece):
                break
            place = piece.place
            if len(rows) >= FLUSH_ROWS:
                yield _batch(objects, place, restart)
                restart = False
        if restart or place != start:
            yield _batch(objects, place, restart)


def open_lines(path: Path, run: str, source: str, wanted: str | None, first: list[dict[str, Any]]) -> JsonLines:
    """From the `first` objects of the file. Raises BadInput where they hold no number to watch."""
    key = _step_key(path, first, wanted)
    objects = ObjectRows(Rows(path), key or "step", last_step=0.0)
    for item in first:
        _add_object(objects, item)
    if not len(objects.rows):
        seen = ", ".join(f"{what} ({number})" for what, number in objects.rows.notes.items())
        what = f"no number to watch in its first {len(first)} objects{': ' + seen if seen else ''}"
        raise refuse(path, what, 'log lines such as {"step": 1, "loss": 2.5}')
    return JsonLines(path, run, source, wanted, key)


def _step_key(path: Path, first: list[dict[str, Any]], wanted: str | None) -> str | None:
    """Decided by the first objects of the file, so that it stays the same while the file grows."""
    seen: dict[str, None] = {}
    for item in first:
        names = item["metrics"] if is_event(item) else item
        found = choose_step_key(names, wanted)
        if is_event(item) and (wanted is None or found is None):
            return "step"
        if found is not None:
            return found
        seen.update(dict.fromkeys(names))
    if wanted is not None:
        what = f"no {wanted!r} in its first {len(first)} objects (there is {', '.join(list(seen)[:12])})"
        raise refuse(path, what, "name one of these with --step-key")
    return ROW_NUMBER if len(first) > 1 else None


def first_objects(text: bytes) -> Iterator[dict[str, Any]]:
    """The objects with samples on the first whole lines of `text`, at most _LOOK_AT."""
    found = 0
    for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        item, _ = parse_line(line)
        if item is not None and is_sample(item):
            found += 1
            yield item
            if found == _LOOK_AT:
                return


def is_event(item: Mapping[str, Any]) -> bool:
    """Whether it is a log event of Levanter's json_logger."""
    return item.get("event") == "log" and "tracker" in item and isinstance(item.get("metrics"), dict)


def is_sample(item: Mapping[str, Any]) -> bool:
    """False for hparams, summary, artifact and finish events and for a run's config."""
    if "tracker" in item and "event" in item:
        return is_event(item)
    return not (item and item.keys() <= {"config", "summary"}) and bool(item)


def parse_line(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """The object on a line and the text before it; no object where there is none.

    Text may stand before the object only if that is a json_logger event, as Python's logging writes it: other
    console lines that end in braces are no log lines of a tracker.
    """
    prefix = ""
    if not line.lstrip().startswith(b"{"):
        at = line.find(b'{"tracker"')
        if at < 0:
            return None, ""
        prefix, line = line[:at].decode("utf-8", "replace"), line[at:]
    try:
        item = json.loads(line)
    except (ValueError, RecursionError):
        return None, ""
    return (item, prefix) if isinstance(item, dict) else (None, "")


def _parse_block(lines: list[bytes]) -> list[tuple[dict[str, Any], str]]:
    """All lines in one go, a third quicker than one by one; nothing if any of them is no object of its own."""
    try:
        items = json.loads(b"[" + b",".join(lines) + b"]")
    except (ValueError, RecursionError):
        return []
    if len(items) != len(lines) or not all(type(item) is dict for item in items):
        return []
    return [(item, "") for item in items]


def _add_lines(objects: ObjectRows, piece: Lines) -> bool:
    """Add the samples of the lines. False for an unfinished last line, which is left for the next pull."""
    notes = objects.rows.notes
    block = read_block(piece.text) if piece.whole else None
    if block is not None and is_sample(block.first) and objects.add_block(block):
        return True
    parsed = _parse_block(piece.lines) or map(parse_line, piece.lines)
    for line, (item, prefix) in zip(piece.lines, parsed, strict=True):
        if item is None:
            if not piece.whole:
                return False
            if line.strip():
                notes["line that is no JSON object"] += 1
        elif is_sample(item):
            _add_object(objects, item, prefix)
        else:
            notes["event that is no log line"] += 1
    return True


def _add_object(objects: ObjectRows, item: dict[str, Any], prefix: str = "") -> None:
    if is_event(item):
        objects.add(item["metrics"], item.get("step"), _prefix_time(prefix))
    else:
        objects.add(item)


def _prefix_time(prefix: str) -> int | None:
    found = _PREFIX_TIME.match(prefix) if prefix else None
    return to_micros(found[1].replace(",", ".")) if found else None


def _batch(objects: ObjectRows, place: Place, restart: bool) -> Batch:
    state = {**asdict(place), "step_key": objects.step_key, "last_step": objects.last_step, "count": objects.count}
    rows, notes = objects.rows.take()
    return Batch(rows, json.dumps({"format": "jsonl", **state}), restart, notes)
