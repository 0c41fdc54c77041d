"""What the judge remembers of one metric and attempt between two passes, as bytes.

The tail holds the samples since the last whole chunk and the lookback before them, so a pass reads only what is new:
its cost follows that, not how long the run already is.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from detectors.noise import CHUNK
from detectors.series import Array
from detectors.window import LOOKBACK

FORMAT = 1


def _none() -> Array:
    return np.empty(0)


@dataclass
class Memory:
    """`first` is the sample index of element 0 of the arrays, `start` the last whole chunk, `judged` the next to speak of."""

    first: int = 0
    start: int = 0
    judged: int = 0
    step: Array = field(default_factory=_none)
    value: Array = field(default_factory=_none)
    seconds: Array = field(default_factory=_none)
    states: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    live: bool = False  # a value other than zero was seen
    sentinels: int = 0  # values passed over because they are no measurement

    @property
    def end(self) -> int:
        """Index behind the newest sample."""
        return self.first + len(self.step)

    def take(self, step: Array, value: Array, seconds: Array) -> None:
        """Append new samples."""
        self.step = np.concatenate([self.step, step])
        self.value = np.concatenate([self.value, value])
        self.seconds = np.concatenate([self.seconds, seconds])

    def forget(self) -> None:
        """Drop what no chunk will look at again."""
        keep = max(self.first, self.start - LOOKBACK) // CHUNK * CHUNK
        cut = keep - self.first
        self.first, self.step, self.value, self.seconds = keep, self.step[cut:], self.value[cut:], self.seconds[cut:]

    def dump(self) -> bytes:
        """Bytes: a line of JSON, then the three arrays."""
        head: dict[str, Any] = {"format": FORMAT, "first": self.first, "start": self.start, "judged": self.judged}
        head |= {"live": self.live, "sentinels": self.sentinels, "states": self.states}
        text = json.dumps(head, default=encode).encode()
        return text + b"\n" + np.concatenate([self.step, self.value, self.seconds]).astype("<f8").tobytes()

    @staticmethod
    def load(data: bytes) -> "Memory | None":
        """The inverse of `dump`; None where another version wrote it."""
        text, _, raw = data.partition(b"\n")
        head = json.loads(text, object_hook=decode)
        if head["format"] != FORMAT:
            return None
        step, value, seconds = np.frombuffer(raw, "<f8").reshape(3, -1)
        return Memory(
            head["first"],
            head["start"],
            head["judged"],
            step,
            value,
            seconds,
            head["states"],
            head["live"],
            head["sentinels"],
        )


def encode(item: Any) -> Any:
    """For json.dumps: float arrays as base64. Raises TypeError for what cannot be kept."""
    if isinstance(item, np.ndarray):
        return {"f8": base64.b64encode(item.astype("<f8").tobytes()).decode(), "shape": item.shape}
    raise TypeError(f"a detector's state holds {type(item).__name__}; only JSON values and float arrays can be kept")


def decode(item: dict[str, Any]) -> Any:
    """For json.loads: the inverse of `encode`."""
    if item.keys() == {"f8", "shape"}:
        return np.frombuffer(base64.b64decode(item["f8"]), "<f8").reshape(item["shape"])
    return item
