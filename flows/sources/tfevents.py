"""The scalars of TensorBoard events: v1 `simple_value`, and v2 tensors of one number (their metadata says `scalars`, or is
not there). Field numbers: tensorflow/core/util/event.proto, framework/summary.proto, framework/tensor.proto.

Making Python objects of messages is what costs: four for a scalar. So the records of a block are joined and read as one message
whose fields are repeated, which comes back as a few lists; this holds where each record has exactly one of each, which
is counted. Other blocks are read record by record.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from flows.sources.rows import Rows
from flows.sources.timestamps import PLAUSIBLE_SECONDS
from flows.sources.wire import messages

NO_SCALAR = "histogram, image, text or other value that is no scalar"
_SCALARS = b"scalars"
_GROUP = 2_048  # records that are joined: one odd one among them sends them all the slow way
# fields of the tensors that hold numbers, by the number of their dtype; how their bytes are read
_HELD = {
    1: ("float_val", "<f4"), 2: ("double_val", "<f8"), 3: ("int_val", "<i4"), 4: ("int_val", "u1"), 5: ("int_val", "<i2"),
    6: ("int_val", "i1"), 9: ("int64_val", "<i8"), 10: ("bool_val", "?"), 14: ("half_val", "bfloat16"), 17: ("int_val", "<u2"),
    19: ("half_val", "<f2"), 22: ("uint32_val", "<u4"), 23: ("uint64_val", "<u8"),
}  # fmt: skip
_NUMBERS = {
    "float_val": (5, ["float"]), "double_val": (6, ["double"]), "int_val": (7, ["int32"]), "int64_val": (10, ["int64"]),
    "bool_val": (11, ["bool"]), "half_val": (13, ["int32"]), "uint32_val": (16, ["uint32"]), "uint64_val": (17, ["uint64"]),
}  # fmt: skip
_MESSAGES: dict[str, Any] = messages(
    "watchkeeper.tensorboard",
    {
        "Dim": {"size": (1, "int64")},
        "Shape": {"dim": (2, ["Dim"]), "unknown_rank": (3, "bool")},
        "Tensor": {"dtype": (1, "int32"), "shape": (2, "Shape"), "content": (4, "bytes"), **_NUMBERS},
        "Plugin": {"name": (1, "bytes")},
        "Metadata": {"plugin": (1, "Plugin")},
        "Value": {
            "tag": (1, "bytes"),
            "simple_value": (2, "float"),
            "tensor": (8, "Tensor"),
            "metadata": (9, "Metadata"),
        },
        "Summary": {"value": (1, ["Value"])},
        "Event": {"wall_time": (1, "double"), "step": (2, "int64"), "summary": (5, "Summary")},
        # the same for many that are joined
        "Events": {"wall_time": (1, ["double"]), "step": (2, ["int64"]), "summary": (5, ["bytes"])},
        "Summaries": {"value": (1, ["bytes"])},
        "Values": {
            "tag": (1, ["bytes"]),
            "simple_value": (2, ["float"]),
            "tensor": (8, ["bytes"]),
            "metadata": (9, ["bytes"]),
        },
        "Tensors": {"dtype": (1, ["int32"]), "shape": (2, ["bytes"]), "content": (4, ["bytes"]), **_NUMBERS},
    },
)
_Event, _Events, _Summaries = (_MESSAGES[name] for name in ("Event", "Events", "Summaries"))
_Values, _Tensors, _Metadata = (_MESSAGES[name] for name in ("Values", "Tensors", "Metadata"))


class _Scalars(NamedTuple):
    times: Sequence[float]
    steps: Sequence[int]
    tags: Sequence[bytes]
    values: Sequence[float] | NDArray[np.float64]


class Reader:
    """Adds the scalars of events to Rows, their tags behind `prefix`."""

    def __init__(self, rows: Rows, prefix: str = "") -> None:
        self._rows = rows
        self._prefix = prefix
        self._ids: dict[bytes, int | None] = {}

    def add(self, payloads: Sequence[bytes]) -> None:
        for at in range(0, len(payloads), _GROUP):
            group = payloads[at : at + _GROUP]
            self._put(_quickly(group) or self._one_by_one(group))

    def _one_by_one(self, payloads: Sequence[bytes]) -> _Scalars:
        times, steps, tags, values = list[float](), list[int](), list[bytes](), list[float]()
        for payload in payloads:
            try:
                event = _Event.FromString(payload)
            except DecodeError:
                self._rows.notes["record that is no event"] += 1
                continue
            for value in event.summary.value:
                number = value.simple_value if value.HasField("simple_value") else _number(value)
                if number is None:
                    self._rows.notes[NO_SCALAR] += 1
                    continue
                times.append(event.wall_time)
                steps.append(event.step)
                tags.append(value.tag)
                values.append(number)
        return _Scalars(times, steps, tags, values)

    def _put(self, found: _Scalars) -> None:
        for tag in set(found.tags) - self._ids.keys():
            self._ids[tag] = self._rows.id_of(self._prefix + tag.decode("utf-8", "replace"))
        ids = np.array([-1 if (number := self._ids[tag]) is None else number for tag in found.tags], np.int64)
        kept = ids >= 0
        steps, values = np.array(found.steps, np.float64), np.array(found.values, np.float64)
        self._rows.add_many(steps[kept], _micros(found.times)[kept], 1, ids[kept], values[kept])


def _quickly(payloads: Sequence[bytes]) -> _Scalars | None:
    """None where not each record has a time, a step and one scalar of the same kind."""
    count = len(payloads)
    try:
        events = _Events.FromString(b"".join(payloads))
        each = _Summaries.FromString(b"".join(events.summary)).value
        if not len(events.wall_time) == len(events.step) == len(events.summary) == len(each) == count:
            return None
        values = _Values.FromString(b"".join(each))
        if len(values.tag) != count or not all(map(_is_scalar, set(values.metadata))):
            return None
        numbers = _numbers_of(values, count)
    except DecodeError:
        return None
    return None if numbers is None else _Scalars(events.wall_time, events.step, values.tag, numbers)


def _numbers_of(values: Any, count: int) -> NDArray[np.float64] | None:
    if len(values.simple_value) == count and not values.tensor:
        return np.array(values.simple_value, np.float64)
    if len(values.tensor) == count and not values.simple_value:
        return _numbers(_Tensors.FromString(b"".join(values.tensor)), count)
    return None


def _numbers(tensors: Any, count: int) -> NDArray[np.float64] | None:
    """The numbers of tensors without dimensions, floats or doubles."""
    kinds = set(tensors.dtype)
    if len(tensors.dtype) != count or len(kinds) != 1 or not kinds <= {1, 2} or any(tensors.shape):
        return None
    field, dtype = _HELD[kinds.pop()]
    held = getattr(tensors, field)
    if len(held) == count and not tensors.content:
        return np.array(held, np.float64)
    width = np.dtype(dtype).itemsize
    if len(tensors.content) == count and not held and all(len(each) == width for each in tensors.content):
        return np.frombuffer(b"".join(tensors.content), dtype).astype(np.float64)
    return None


def _is_scalar(metadata: bytes) -> bool:
    return _Metadata.FromString(metadata).plugin.name in (b"", _SCALARS)


def _number(value: Any) -> float | None:
    """The number of a v2 scalar; None for anything else."""
    tensor = value.tensor
    held = _HELD.get(tensor.dtype)
    if held is None or not value.HasField("tensor") or value.metadata.plugin.name not in (b"", _SCALARS):
        return None
    if tensor.shape.unknown_rank or any(dim.size != 1 for dim in tensor.shape.dim):
        return None
    field, dtype = held
    numbers = getattr(tensor, field)
    if tensor.content:
        content = tensor.content
    elif not numbers:
        return 0.0  # TensorFlow leaves zeros out
    elif field != "half_val":
        return float(numbers[0])
    else:
        content = (numbers[0] & 0xFFFF).to_bytes(2, "little")
    if dtype == "bfloat16":
        content, dtype = b"\0\0" + content, "<f4"  # the upper half of a float
    if len(content) != np.dtype(dtype).itemsize:
        return None
    return float(np.frombuffer(content, dtype)[0])


def _micros(seconds: Sequence[float]) -> NDArray[np.int64]:
    """Microseconds since 1970; no time where it is none of a clock."""
    times = np.array(seconds, np.float64)
    with np.errstate(invalid="ignore"):
        fine = (times >= PLAUSIBLE_SECONDS[0]) & (times < PLAUSIBLE_SECONDS[1])
    return np.where(fine, np.round(np.where(fine, times, 0) * 1e6), np.iinfo(np.int64).min).astype(np.int64)


def wall_micros(payload: bytes) -> int:
    """The time of one event; the least number where it has none."""
    try:
        return int(_micros([_Event.FromString(payload).wall_time])[0])
    except DecodeError:
        return int(np.iinfo(np.int64).min)
