"""What is remembered of a source between two pulls, beside its cursor."""

import json
from dataclasses import dataclass, field
from typing import Any

from flows.records import Attempt
from flows.sources.contract import SYSTEM
from flows.stages.epochs import Axis
from flows.stages.honesty import Facts


@dataclass
class Tracker:
    """Where a source stands: attempts so far, per metric [samples, highest step, last step] of the newest, rows held."""

    attempts: list[Attempt] = field(default_factory=list)
    metrics: dict[str, list[float]] = field(default_factory=dict)
    held: list[tuple[Any, ...]] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)  # of the rows that have their attempt
    axis: Axis = field(default_factory=Axis)  # of the newest attempt

    def dump(self) -> str:
        """JSON text."""
        return json.dumps(
            {
                "attempts": [vars(a) for a in self.attempts],
                "metrics": self.metrics,
                "held": self.held,
                "facts": self.facts.dump(),
                "axis": vars(self.axis),
            },
            default=str,
        )

    @staticmethod
    def load(text: str | None) -> "Tracker":
        """The tracker that `dump` wrote; a fresh one for None."""
        if text is None:
            return Tracker()
        raw = json.loads(text)
        return Tracker(
            [Attempt(**a) for a in raw["attempts"]],
            raw["metrics"],
            [tuple(row) for row in raw["held"]],
            Facts.load(raw.get("facts", {})),
            Axis(**raw.get("axis", {})),
        )

    def reach(self) -> tuple[float, float]:
        """The highest step of the newest attempt, and the usual distance between two of its steps."""
        first = self.attempts[-1].first_step
        metrics = [known for name, known in self.metrics.items() if not name.startswith(SYSTEM)]
        count, last, _ = max(metrics or self.metrics.values())
        stride = (last - first) / max(count - 1, 1)
        whole = first == int(first) and last == int(last)
        return max(known[1] for known in metrics or self.metrics.values()), max(1.0, round(stride)) if whole else stride

    def is_first(self, step: float) -> bool:
        """Whether a step is where the source began, or less than a distance behind that."""
        return self.axis.first is not None and step - self.axis.offset < self.axis.first + self.reach()[1]
