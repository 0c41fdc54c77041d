"""What a detector is shown: the samples of one chunk with a fixed lookback, aligned on the metric's own sample index.

Everything that detectors compute hangs on positions that are multiples of BLOCK or CHUNK in that index, never on when
the watch happened to run. So a chunk may be shown sample by sample, and its answers only grow.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from detectors.finding import Answer, Finding, Recovery
from detectors.noise import BLOCK, CHUNK, Expectation, expect
from detectors.series import Array

LOOKBACK = 1024  # samples before a chunk that a detector may look at

assert LOOKBACK % CHUNK == 0 and CHUNK % BLOCK == 0

State = Mapping[str, Any]
Said = tuple[int, Answer]  # the sample index at which it could be said, and what is said


class Known(NamedTuple):
    """What was planned or done: where, of which kind, and the step from which on that is known (-inf: beforehand).

    A detector may use it at samples from `since` on only, whatever it does to those before.
    """

    step: float
    kind: str
    since: float = -math.inf


@dataclass(frozen=True)
class Chunk:
    """Samples of a metric from `start` (a multiple of CHUNK) on, behind LOOKBACK older ones as far as they exist.

    `first` is the index of element 0 of the arrays (a multiple of CHUNK too). What may be spoken about is either a whole
    number of CHUNKs or fewer samples than one CHUNK. Values may be NaN or infinite; sentinels are NaN already.
    """

    first: int
    start: int
    step: Array
    value: Array
    seconds: Array
    name: str
    role: str
    group: str = ""
    events: Sequence[Known] = ()  # those of later steps too

    @property
    def offset(self) -> int:
        """Position of the chunk's first sample in the arrays."""
        return self.start - self.first

    @property
    def end(self) -> int:
        """Index behind the last sample."""
        return self.first + len(self.step)

    @property
    def indices(self) -> range:
        """Sample indices that may be spoken about."""
        return range(self.start, self.end)

    def wholes(self) -> Iterator[tuple[slice, int]]:
        """Of each whole CHUNK that may be spoken about, its place in the arrays and its last sample index."""
        for begin in range(self.offset, self.offset + len(self.indices) // CHUNK * CHUNK, CHUNK):
            yield slice(begin, begin + CHUNK), self.first + begin + CHUNK - 1

    @cached_property
    def expected(self) -> Expectation:
        """Baseline and noise of the logarithm, for each sample that may be spoken about."""
        return expect(self.log, self.step, self.offset)

    @cached_property
    def log(self) -> Array:
        """Natural logarithm of the values; NaN where they are not positive and finite."""
        good = np.isfinite(self.value) & (self.value > 0)
        return np.log(np.where(good, self.value, np.nan))

    @cached_property
    def size(self) -> Array:
        """Natural logarithm of the distance from 0; NaN where it is 0 or not finite."""
        good = np.isfinite(self.value) & (self.value != 0)
        return np.log(np.abs(np.where(good, self.value, np.nan)))

    def cadence(self, index: int) -> float:
        """Median distance of the last 16 logged steps up to a sample index; 1 at the first sample."""
        at = self.at(index)
        known = self.step[max(at - BLOCK, 0) : at + 1]
        return float(np.median(np.diff(known))) if len(known) > 1 else 1.0

    def at(self, index: int) -> int:
        """Array position of a sample index."""
        return index - self.first

    def finding(
        self,
        detector: tuple[str, int],
        kind: str,
        onset: int,
        now: int,
        severity: int,
        episode: str,
        *,
        direction: str,
        magnitude: float,
        unit: str,
        onset_step: float | None = None,
        **evidence: Any,
    ) -> Said:
        """A Finding about this metric that begins at sample index `onset` and can be said at index `now`.

        `onset_step` is given where the onset may lie before the samples at hand.
        """
        return now, Finding(
            detector=detector[0],
            version=detector[1],
            kind=kind,
            metric=self.name,
            role=self.role,
            direction=direction,
            onset_step=float(self.step[self.at(onset)]) if onset_step is None else onset_step,
            detected_step=float(self.step[self.at(now)]),
            magnitude=magnitude,
            unit=unit,
            severity=severity,
            episode=episode,
            evidence={"samples": now + 1, "samples_out": now - onset + 1, "cadence": self.cadence(now), **evidence},
        )

    def recovery(self, detector: tuple[str, int], episode: str, now: int) -> Said:
        """The end of an episode, said at sample index `now`."""
        return now, Recovery(detector[0], self.name, episode, float(self.step[self.at(now)]))


class Detector(Protocol):
    """One phenomenon. `scan` is pure; with a partial chunk its answers are a prefix of those of the whole chunk."""

    DETECTOR: tuple[str, int]  # name and version

    def scan(self, chunk: Chunk, state: State) -> tuple[list[Said], State]:
        """Judge the chunk, beginning with the state at its start; returns the state at its end."""
        ...

    def carry(self, state: State, step: float) -> State:
        """What a new attempt that begins before `step` keeps of its parent's state."""
        ...
