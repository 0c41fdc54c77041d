"""What is pending: it holds, but not for as long as was asked. It is listed, and nobody is told; data alone move it.

Each has the id of the incident that it would become, and its beginning and its end, with the reason, stand in the log of
incidents. A run that logs nothing leaves it as it is.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from detectors.finding import Pending
from flows.incidents.incident import Incident, incident_id
from flows.incidents.people import JUDGE
from flows.incidents.states import DROPPED, PENDING
from flows.incidents.written import amount, duration
from flows.records import Operation

Ends = Callable[["Waits"], str]  # why one is no longer pending, for a reason that no sample tells; "" where it is


@dataclass(frozen=True)
class Waits:
    """What is pending in an attempt of a run, as it was seen last, and the id of the incident that it may become."""

    id: str
    attempt: int
    what: Pending


def waits(run: str, attempt: int, what: Pending) -> Waits:
    """It with its id. What fires at its onset has its finding there; of a user's bound the step of the finding is no part."""
    episode = what.detector, what.metric, what.episode
    return Waits(incident_id(run, attempt, episode, what.onset_step, what.onset_step), attempt, what)


def follow(
    run: str,
    known: Sequence[Waits],
    said: Iterable[tuple[int, Pending]],
    incidents: Collection[Incident],
    ends: Ends,
    now: float,
) -> tuple[list[Waits], list[Operation]]:
    """What is pending behind a pass, and the lines of the log that it gives; the latter come before those of `incidents`.

    `known` was pending before, `said` are the words of the pass by attempt in their order, `now` is in unix seconds.
    """
    held: dict[str, Waits] = {each.id: each for each in known}
    lines: list[Operation] = []

    def end(each: Waits, why: str) -> None:
        del held[each.id]
        lines.append(_line(run, DROPPED, each, f"{in_words(each.what)}: {why}", now))

    for attempt, what in said:
        each = waits(run, attempt, what)
        if what.over:
            if each.id in held:
                end(replace(held[each.id], what=replace(held[each.id].what, seen=what.seen, step=what.step)), what.over)
            continue
        if each.id not in held:
            lines.append(_line(run, PENDING, each, in_words(what), now))
        held[each.id] = each
    homes = {(each.attempt, *episode): each for each in incidents for episode in each.episodes()}
    for each in list(held.values()):
        home = homes.get((each.attempt, each.what.detector, each.what.metric, each.what.episode))
        if home is not None and home.id != each.id:
            end(each, f"it is part of incident {home.id}")
        elif home is not None:
            del held[each.id]  # its next word is that it has opened
        elif why := ends(each):
            end(each, why)
    return list(held.values()), lines


def in_words(what: Pending) -> str:
    """ "train/loss above 3 for 12 of 30 samples"; "no sample of train/loss for 9 min of 15 min"."""
    if what.unit == "seconds":
        return f"{what.about} {what.metric} for {duration(what.seen)} of {duration(what.wanted)}"
    return f"{what.metric} {what.about} for {amount(what.seen)} of {amount(what.wanted)} {what.unit}"


def _line(run: str, word: str, each: Waits, why: str, now: float) -> Operation:
    return Operation(
        run, word, JUDGE, now, why, each.id, step=each.what.step, severity=each.what.severity, findings=0, silent=True
    )


def to_rows(known: Iterable[Waits]) -> list[dict[str, object]]:
    """For JSON."""
    return [{"id": each.id, "attempt": each.attempt, **vars(each.what)} for each in known]


def from_rows(rows: Iterable[Mapping[str, object]]) -> list[Waits]:
    """What `to_rows` gave."""
    out = []
    for row in rows:
        fields = dict(row)
        name, attempt = str(fields.pop("id")), int(str(fields.pop("attempt")))
        out.append(Waits(name, attempt, Pending(**fields)))  # type: ignore[arg-type]
    return out
