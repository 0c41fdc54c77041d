"""What a pass goes on from and what it gives: memories, those of new attempts seeded from their parents, and answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from detectors.bounds import Bound
from detectors.finding import Answer, Finding, Pending, Recovery
from detectors.noise import CHUNK
from detectors.series import Array
from detectors.window import LOOKBACK
from flows.records import Attempt
from flows.stages.crowd import TAIL, Crowd, Roles
from flows.stages.fresh import Flat, flat
from flows.stages.memory import Memory
from flows.stages.metric import seed
from flows.store import Store, Waiting

CROWD = ""  # stands in the store for the metrics that are screened together


@dataclass
class Answers:
    """New answers by attempt, and the memories that they came from: by (metric, attempt), and those of many by attempt."""

    new: dict[int, list[Finding | Recovery]] = field(default_factory=dict)
    memories: dict[tuple[str, int], Memory] = field(default_factory=dict)
    crowds: dict[int, Crowd] = field(default_factory=dict)
    pending: list[tuple[int, Pending]] = field(default_factory=list)  # by attempt, in the order in which it was said
    unreadable: set[str] = field(default_factory=set)  # metrics whose memory another version wrote

    def say(self, attempt: int, answers: Sequence[Answer]) -> None:
        """Add what is not merely unchecked."""
        told = [a for a in answers if isinstance(a, Finding | Recovery)]
        self.pending += [(attempt, a) for a in answers if isinstance(a, Pending)]
        if told:
            self.new.setdefault(attempt, []).extend(told)

    def states(self) -> dict[tuple[str, int], bytes]:
        """The memories for the store."""
        crowds = {(CROWD, attempt): crowd.dump() for attempt, crowd in self.crowds.items()}
        return {**{key: memory.dump() for key, memory in self.memories.items()}, **crowds}


@dataclass(frozen=True)
class Past:
    """What is remembered from before, or from an attempt that this pass has judged already.

    `limits` are the user's own bounds by metric.
    """

    store: Store
    run: str
    found: Waiting
    metrics: Roles
    limits: Mapping[str, Sequence[Bound]]
    out: Answers

    def memory(self, name: str, attempt: int) -> Memory | None:
        """Of one metric and attempt; None where there is none, or one of another version: it begins anew."""
        if (name, attempt) in self.out.memories:
            return self.out.memories[name, attempt]
        data = self.found.states.get((name, attempt))
        memory = None if data is None else Memory.load(data)
        if data is not None and memory is None:
            self.out.unreadable.add(name)
        return memory

    def memories(self, attempt: Attempt, names: Sequence[str]) -> dict[str, Memory]:
        """Of the metrics of an attempt, those new to it seeded from its parent."""
        known = {name: self.memory(name, attempt.attempt) for name in names}
        missing = [name for name, memory in known.items() if memory is None]
        out = {name: memory or Memory() for name, memory in known.items()}
        if attempt.parent is None or not missing:
            return out
        tails = self._tails(attempt, LOOKBACK + CHUNK, missing).each()
        for name in set(missing) & set(tails):
            role, group = self.metrics[name]
            parent, bounds = self.memory(name, attempt.parent), self.limits[name]
            out[name] = seed(parent, tails[name], name=name, role=role, group=group, bounds=bounds)
        return out

    def crowd(self, attempt: Attempt, names: Sequence[str]) -> Crowd:
        """The metrics of an attempt that are screened together, those new to it seeded from its parent."""
        crowd = self._crowd(attempt.attempt)
        missing = [name for name in names if not crowd.has(name)]
        if attempt.parent is not None and missing:
            crowd.seed(self._crowd(attempt.parent), self._tails(attempt, TAIL, missing), self.metrics)
        return crowd

    def reached(self, attempt: int, least: float) -> float:
        """The highest step that an attempt is known to have been at."""
        memories = (
            self.memory(name, number)
            for name, number in {**self.found.states, **self.out.memories}
            if number == attempt and name != CROWD
        )
        ends = [float(memory.step[-1]) for memory in memories if memory is not None and len(memory.step)]
        together: Array = self._crowd(attempt).last.step[:, -1]
        return max(least, *ends, float(np.nanmax(together, initial=least)))

    def _crowd(self, attempt: int) -> Crowd:
        if attempt in self.out.crowds:
            return self.out.crowds[attempt]
        data = self.found.states.get((CROWD, attempt))
        crowd = None if data is None else Crowd.load(data)
        if data is not None and crowd is None:
            self.out.unreadable.add(CROWD)
        return crowd or Crowd()

    def _tails(self, attempt: Attempt, n: int, names: Sequence[str]) -> Flat:
        """The last samples of the metrics before a fork."""
        return flat(self.store.lineage_tails(self.run, attempt.attempt, n, names))
