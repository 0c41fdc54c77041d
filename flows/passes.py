"""What a pass is made of, whoever runs it: stages by name, and what became of each."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from flows.errors import LeaseTaken, PermanentError, StoreBusy, StoreFull, StoreTooNew, WatchkeeperError
from flows.incidents import Incident, Transition
from flows.messages.as_markdown import escape, lines_of
from flows.messages.blocks import Link
from flows.record.artifacts import Told, listed
from flows.record.places import Served
from flows.stages.selfcheck import Trouble

T = TypeVar("T")


class Call(Protocol):
    """Runs a stage under a name: just so, or as a Prefect task. Raises what the stage raises in the end."""

    def __call__(self, name: str, work: Callable[[], T]) -> T: ...


def plainly(name: str, work: Callable[[], T]) -> T:  # the name is for those that show it
    """The call without Prefect."""
    return work()


@dataclass(frozen=True)
class Outcome:
    """One stage of one owner (`run NAME`, `channel NAME`, `store` ...): its value, or the error it ended with."""

    owner: str
    stage: str
    value: Any = None
    error: Exception | None = None

    @property
    def skipped(self) -> bool:
        """Another pass was at work: dropped, not failed."""
        return isinstance(self.error, LeaseTaken)

    @property
    def text(self) -> str:
        """The error in one line; one that is not ours may hold anything, so that only its kind is told."""
        if self.error is None or isinstance(self.error, WatchkeeperError):
            return " ".join(str(self.error or "").split())
        return f"{type(self.error).__name__} in the stage {self.stage}; the log of the watch has the details"

    def trouble(self) -> Trouble | None:
        """What the watch must be told of itself, if anything."""
        if self.error is None or self.skipped:
            return None
        kind, owner = type(self.error), self.owner
        if isinstance(self.error, StoreBusy | StoreFull | StoreTooNew):
            owner = "store"  # whichever run met it first
        return Trouble(f"{owner}|{kind.__name__}", self.text, issubclass(kind, PermanentError))


@dataclass
class Report:
    """Every stage of a pass. `runs` are the configured runs by label, `changes` what became known of incidents.

    `going` are the open incidents of the runs that were judged, the gravest first; `record` is where the operating record
    is served.
    """

    runs: Sequence[str] = ()
    outcomes: list[Outcome] = field(default_factory=list)
    changes: list[Transition] = field(default_factory=list)
    going: list[Told] = field(default_factory=list)
    record: Served = field(default_factory=Served)

    def attempt(self, owner: str, stage: str, work: Callable[[], T], call: Call = plainly) -> T | None:
        """Do it and put down how it went; None where it failed."""
        try:
            value = call(f"{stage} {owner}", work)
        except Exception as error:  # noqa: BLE001  # one stage that breaks must not end the watch of the others
            self.outcomes.append(Outcome(owner, stage, error=error))
            return None
        self.outcomes.append(Outcome(owner, stage, value))
        return value

    @property
    def failures(self) -> list[Outcome]:
        """Stages that ended with an error, other than those that another pass holds."""
        return [each for each in self.outcomes if each.error is not None and not each.skipped]

    def failed(self, label: str) -> bool:
        """Whether a run did not get its whole pass."""
        return any(each.owner in (f"run {label}", "store") for each in self.failures)

    def skipped(self, label: str) -> bool:
        """Whether another pass was at work on it."""
        return any(each.owner == f"run {label}" and each.skipped for each in self.outcomes)

    @property
    def good(self) -> bool:
        """Whether every run was watched and everything that was due got out."""
        return not self.failures and not any(self.skipped(label) for label in self.runs)

    @property
    def blind(self) -> bool:
        """Whether no run at all was watched, though none is held by another pass."""
        return bool(self.failures) and all(self.failed(label) for label in self.runs)

    @property
    def all_skipped(self) -> bool:
        """Whether another pass was at work on every run."""
        return bool(self.runs) and all(self.skipped(label) for label in self.runs)

    def rows(self) -> list[dict[str, Any]]:
        """One row a run: what was read, judged, told, and how it ended."""
        return [self._row(label) for label in self.runs]

    def _row(self, label: str) -> dict[str, Any]:
        mine = [each for each in self.outcomes if each.owner == f"run {label}"]
        values = {stage: [e.value for e in mine if e.stage == stage and e.value is not None] for stage in _STAGES}
        errors = [each.text for each in mine if each.error is not None and not each.skipped]
        return {
            "run": label,
            "state": "failed" if self.failed(label) else "skipped" if self.skipped(label) else "watched",
            "new rows": sum(each.new_rows for each in values["pull"]),
            "judged": sum(each.samples for each in values["judge"]),
            "changes": sum(len(each.transitions) for stage in ("judge", "checks") for each in values[stage]),
            "delivered": sum(each.delivered for each in values["notify"]),
            "waiting": sum(each.postponed for each in values["notify"]),
            "error": errors[0] if errors else "",
        }

    def markdown(self) -> str:
        """The pass in a few lines: incidents that changed first, then what failed, what is open, and the runs."""
        lines = [*lines_of(Link("Operating record", self.record.url)), ""] if self.record.url else []
        lines += listed([self._told(change) for change in self.changes])
        lines += [f"- failed: {escape(f'{each.owner}, {each.stage}: {each.text}')}" for each in self.failures]
        lines += ["", "Open:", "", *listed(self.going)] if self.going else []
        rows = self.rows()
        if rows:
            lines += ["", "| " + " | ".join(rows[0]) + " |", "|" + " --- |" * len(rows[0])]
            lines += ["| " + " | ".join(escape(str(v)) for v in row.values()) + " |" for row in rows]
        return "\n".join(lines) or "no runs in the configuration"

    def page(self, incident: Incident) -> str:
        """The address of an incident's page in the record, "" for none."""
        metrics = [finding.metric for finding in incident.findings]
        return self.record.incident(incident.run, incident.id, incident.severity, metrics)

    def _told(self, change: Transition) -> Told:
        incident = change.incident
        return Told(f"S{incident.severity} {change.what}", incident.run, incident.title, self.page(incident))

    def summary(self) -> str:
        """One line."""
        rows = self.rows()
        parts = [f"{sum(row['state'] == 'watched' for row in rows)} of {len(rows)} runs watched"]
        parts += [f"{len(self.changes)} change{'s' * (len(self.changes) > 1)} of incidents"] if self.changes else []
        for state in ("failed", "skipped"):
            if names := [row["run"] for row in rows if row["state"] == state]:
                parts.append(f"{state}: {', '.join(names)}")
        other = sorted({e.owner for e in self.failures if not e.owner.startswith("run ")})
        return "; ".join(parts + ([f"trouble with {', '.join(other)}"] if other else []))

    def told(self) -> dict[str, Any]:
        """What the command line needs of it: summary, good, skipped."""
        return {"summary": self.summary(), "good": self.good, "skipped": self.all_skipped}


_STAGES = ("pull", "judge", "checks", "notify")


def alerts_of(report: Report) -> Iterable[dict[str, Any]]:
    """What Prefect automations can react to: event name, resource and facts of each change of an incident."""
    for change in report.changes:
        incident = change.incident
        facts = ("attempt", "status", "title", "pattern", "confidence", "onset_step", "detected_step", "resolved_step")
        yield {
            "event": f"watchkeeper.incident.{change.what}",
            "resource": {
                "prefect.resource.id": f"watchkeeper.incident.{incident.id}",
                "prefect.resource.name": incident.title[:200],
                "watchkeeper.run": incident.run,
                "watchkeeper.severity": f"S{incident.severity}",
            },
            "payload": {
                "run": incident.run,
                "incident_id": incident.id,
                "severity": f"S{incident.severity}",
                "step": change.step,
                "page": report.page(incident),
                **{name: getattr(incident, name) for name in facts},
                "findings": [
                    {"metric": f.metric, "kind": f.kind, "direction": f.direction, "onset_step": f.onset_step}
                    for f in incident.findings
                ],
            },
        }
