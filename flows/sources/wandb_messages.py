"""The messages of a `.wandb` file, and what is read from one at a time.

Field numbers: wandb/proto/wandb_internal.proto. The items of a history row are read joined, as in tfevents.py: three lists
instead of an object an item. Go writes them in no order.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from google.protobuf.message import DecodeError

from flows.sources.objects import MAX_DEPTH
from flows.sources.timestamps import to_micros
from flows.sources.wire import messages

_LOOK_AT = 64
_MESSAGES: dict[str, Any] = messages(
    "watchkeeper.wandb",
    {
        "Time": {"seconds": (1, "int64"), "nanos": (2, "int32")},
        "Record": {"history": (2, "bytes"), "stats": (7, "bytes"), "run": (17, "bytes")},
        "Step": {"num": (1, "int64")},
        "History": {"item": (1, ["bytes"]), "step": (2, "Step")},
        "Item": {"key": (1, "bytes"), "nested_key": (2, ["bytes"]), "value_json": (16, "bytes")},
        "Items": {"key": (1, ["bytes"]), "nested_key": (2, ["bytes"]), "value_json": (16, ["bytes"])},
        "Stats": {"timestamp": (2, "Time"), "item": (3, ["bytes"])},
        "Run": {
            "run_id": (1, "bytes"),
            "project": (3, "bytes"),
            "run_group": (6, "bytes"),
            "display_name": (8, "bytes"),
            "starting_step": (14, "int64"),
            "start_time": (17, "Time"),
            "branch_point": (23, "Branch"),
        },
        "Branch": {"run": (1, "bytes")},
    },
)
Record, History, Items, Stats = (_MESSAGES[name] for name in ("Record", "History", "Items", "Stats"))
_Item, Run = _MESSAGES["Item"], _MESSAGES["Run"]


@dataclass(frozen=True)
class RunRecord:
    """What a run says of itself: its id and name ("" for none), microseconds since 1970 at its start.

    `group` and `parent`, the id of the run that it was forked from, are "" where there is none.
    """

    run_id: str
    name: str
    began: int
    group: str = ""
    parent: str = ""


def run_record(payloads: Iterable[bytes]) -> RunRecord | None:
    """The first run record among these."""
    for payload in payloads:
        try:
            record = Record.FromString(payload)
            if record.HasField("run"):
                run = Run.FromString(record.run)
                names = (run.run_id, run.display_name, run.run_group, run.branch_point.run)
                own, name, group, parent = map(text_of, names)
                return RunRecord(own, name, micros(run.start_time) or 0, group, parent)
        except DecodeError:
            continue
    return None


def history_names(payloads: Iterable[bytes]) -> dict[str, None]:
    """The columns of the first history rows, in their order."""
    rows = islice((row for payload in payloads if (row := _history_of(payload))), _LOOK_AT)
    return dict.fromkeys(name for row in rows for name in row)


def _history_of(payload: bytes) -> dict[str, Any]:
    try:
        return pairs(History.FromString(Record.FromString(payload).history).item)
    except DecodeError:
        return {}


def pairs(items: Sequence[bytes]) -> dict[str, Any]:
    """Names, nested ones joined by dots as W&B shows them, and values."""
    joined = Items.FromString(b"".join(items))
    count = len(items)
    names, values = joined.nested_key or joined.key, joined.value_json
    if len(values) != count or len(names) != count or (joined.nested_key and joined.key):
        each = [_Item.FromString(item) for item in items]
        names = [b".".join(item.nested_key) or item.key for item in each]
        values = [item.value_json for item in each]
    try:
        numbers = json.loads(b"[" + b",".join(values) + b"]")
    except (ValueError, RecursionError):
        numbers = ()
    if len(numbers) != count:
        numbers = [_value(text) for text in values]
    return dict(zip(map(text_of, names), numbers, strict=True))


def flat(row: dict[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Objects within values, which older clients wrote as one item, joined by dots."""
    for name, value in row.items():
        if isinstance(value, dict) and depth < MAX_DEPTH:
            yield from flat(value, f"{prefix}{name}.", depth + 1)
        else:
            yield prefix + name, value


def _value(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return ""  # counts as a text


def micros(time: Any) -> int | None:
    return to_micros(time.seconds + time.nanos / 1e9)


def text_of(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
