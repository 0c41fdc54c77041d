"""What the judge remembers of a whole run between two passes."""

import json
from dataclasses import dataclass, field
from typing import Any

from detectors.finding import Finding, Recovery
from flows.incidents.incident import answers_from_json, answers_to_json
from flows.incidents.pending import Waits, from_rows, to_rows
from flows.stages.memory import decode, encode


@dataclass
class RunState:
    """`answers` are those of incidents that may still change, an attempt; `live` their ids; `begun` the attempts told of."""

    answers: dict[int, list[Finding | Recovery]] = field(default_factory=dict)
    live: list[str] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    silent: dict[str, Any] | None = None
    clock: dict[str, Any] | None = None  # the newest log line and the usual time between two
    evals: dict[str, dict[str, Any]] = field(default_factory=dict)  # attempt -> metric -> overfit
    joint: dict[str, dict[str, Any]] = field(default_factory=dict)  # attempt -> detector across metrics -> its state
    bounded: bool = False  # the coverage speaks of a user's bounds
    seats: list[list[Any]] = field(default_factory=list)  # metrics of the first tier
    second: dict[str, dict[str, Any]] = field(default_factory=dict)  # attempt -> state of the second tier
    pending: list[Waits] = field(default_factory=list)
    heard: dict[str, float] = field(
        default_factory=dict
    )  # attempt and time of an event -> the step from which it counts

    @staticmethod
    def load(text: str | None) -> "RunState":
        """The state that `dump` wrote; a fresh one for None."""
        raw = json.loads(text, object_hook=decode) if text else {}
        return RunState(
            {int(k): answers_from_json(v) for k, v in raw.get("answers", {}).items()},
            raw.get("live", []),
            raw.get("begun", []),
            raw.get("silent"),
            raw.get("clock"),
            raw.get("evals", {}),
            raw.get("joint", {}),
            raw.get("bounded", False),
            raw.get("seats", []),
            raw.get("second", {}),
            from_rows(raw.get("pending", [])),
            raw.get("heard", {}),
        )

    def dump(self) -> str:
        """JSON text."""
        answers = {str(k): answers_to_json(v) for k, v in self.answers.items() if v}
        return json.dumps({**vars(self), "answers": answers, "pending": to_rows(self.pending)}, default=encode)
