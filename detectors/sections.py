"""Block medians of many metrics side by side, a row a metric: what detectors across metrics judge. No verdicts.

Columns are block numbers (16 samples of the metric's own index), so that metrics that are logged together line up. A
block may be judged when every metric has reached it, or when some metric is LATE blocks ahead: a leaf that stopped
holds nobody up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from detectors.finding import Answer
from detectors.series import Array

LATE = 2  # blocks

Blocks = Mapping[str, Array]  # metric -> (k, 3): number of the block, its last step, median of its values
Leaves = Mapping[str, tuple[str, str]]  # metric -> role, and the layer, leaf, rank or expert that it belongs to


class JointDetector(Protocol):
    """One phenomenon across metrics. `scan` is pure; the order in which metrics arrive does not matter."""

    DETECTOR: tuple[str, int]

    def scan(self, new: Blocks, leaves: Leaves, state: Mapping[str, Any]) -> tuple[list[Answer], Any]:
        """Takes the blocks that are new; `leaves` tells of each of their metrics what it is."""
        ...

    def carry(self, state: Mapping[str, Any], step: float) -> dict[str, Any]:
        """What a new attempt that begins at `step` keeps of its parent's state."""
        ...


def _none() -> Array:
    return np.empty((0, 0))


@dataclass(frozen=True)
class Section:
    """`step` and `value` have shape (metrics, blocks), NaN where a metric has none; column 0 is block `first`.

    `first` is None after a restart, until the first new block tells where the old ones end. Blocks before `done` were
    judged.
    """

    names: Sequence[str] = ()
    first: int | None = 0
    done: int = 0
    step: Array = field(default_factory=_none)
    value: Array = field(default_factory=_none)

    def dump(self) -> dict[str, Any]:
        """For a detector's state."""
        return vars(self) | {"names": list(self.names)}


def load(state: Mapping[str, Any], key: str = "section") -> Section:
    """The section that `dump` gave; an empty one where the state has none."""
    return Section(**state[key]) if key in state else Section()


def extended(old: Section, new: Blocks) -> Section:
    """With the rows of new blocks; the latest value of a block counts."""
    rows = {name: part for name, part in new.items() if len(part)}
    if not rows:
        return old
    lowest, highest = int(min(part[0, 0] for part in rows.values())), int(max(part[-1, 0] for part in rows.values()))
    first = lowest - old.step.shape[1] if old.first is None else old.first if old.names else lowest
    first = min(first, lowest)
    shift = 0 if old.first is None or not old.names else old.first - first
    names = sorted({*old.names, *rows})
    shape = (len(names), max(highest + 1 - first, shift + old.step.shape[1]))
    step, value = np.full(shape, np.nan), np.full(shape, np.nan)
    at = {name: k for k, name in enumerate(names)}
    kept = [at[name] for name in old.names]
    step[kept, shift : shift + old.step.shape[1]] = old.step
    value[kept, shift : shift + old.step.shape[1]] = old.value
    for name, part in rows.items():
        columns = part[:, 0].astype(int) - first
        step[at[name], columns], value[at[name], columns] = part[:, 1], part[:, 2]
    done = lowest if old.first is None or not old.names else old.done
    return Section(names, first, done, step, value)


def due(section: Section) -> range:
    """The blocks that may be judged now."""
    known = np.isfinite(section.step)
    if not known.any():
        return range(0)
    width = known.shape[1]
    reached = np.where(known.any(axis=1), width - 1 - np.argmax(known[:, ::-1], axis=1), -1) + (section.first or 0)
    stop = max(int(reached.min()), int(reached.max()) - LATE) + 1
    return range(section.done, max(section.done, stop))


def forget(section: Section, done: int, keep: int) -> Section:
    """Blocks before `done` are judged; the `keep` last of them stay, and metrics without any block in them go."""
    cut = max(0, done - keep - (section.first or 0))
    step, value = section.step[:, cut:], section.value[:, cut:]
    live: NDArray[np.bool_] = np.asarray(np.isfinite(step).any(axis=1))
    names = [name for name, seen in zip(section.names, live, strict=True) if seen]
    return Section(names, (section.first or 0) + cut, done, step[live], value[live])


def before(section: Section, step: float) -> Section:
    """What of it lies before a step, for the attempt that begins there."""
    with np.errstate(invalid="ignore"):
        stays = (section.step < step).any(axis=0)
    return Section(section.names, None, 0, section.step[:, stays], section.value[:, stays])
