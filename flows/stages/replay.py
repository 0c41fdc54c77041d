"""What a live watch would have said of a stored run, when; and how that differs from what was said. Sends nothing.

The samples go through the same judge once more, in a store in memory, in the order and with the values in which they
were first read. Bounds, checks and silences up to a now are not replayed: they depend on a configuration and a clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from flows.incidents.budget import Reached
from flows.incidents.incident import OWN
from flows.messages.document import IncidentDoc, severity_number
from flows.playbook import load_playbook
from flows.records import STORED_SCHEMA, Attempt, Description, Role
from flows.stages.document import incidents_of
from flows.stages.judge import judge
from flows.store import Store, open_store

ROWS = 3_000_000
NEAR = 8  # samples between the onsets of what is the same word of two versions


@dataclass(frozen=True)
class Replayed:
    """What was said of a run: `incidents` in order of detection, `seconds` what the log's own times span (NaN: none)."""

    run: str
    incidents: tuple[IncidentDoc, ...]
    first_step: float
    last_step: float
    seconds: float


@dataclass(frozen=True)
class Difference:
    """One incident of either side. `what`: new, gone, louder, quieter; `old` and `new` are severities ("": none)."""

    what: str
    incident: IncidentDoc
    old: str
    new: str
    versions: str  # the detectors that say it, with their versions then and now


def replay(store: Store, run: str, last: float = float("inf")) -> Replayed:
    """Judge the samples of a stored run anew up to step `last`. Raises LookupError for a run that the store has not."""
    about = next((row for row in store.runs().iter_rows(named=True) if row["run"] == run), None)
    if about is None:
        known = ", ".join(store.runs()["run"]) or "no run yet"
        raise LookupError(f"no run {run!r} in the store; it has {known}")
    fresh = open_store(":memory:", clock=lambda: 0.0)
    fresh.register_run(Description(run, about["source"], about["format"], about["step_key"]))
    for event in store.events(run):
        fresh.add_event(run, event)
    roles = {row["name"]: row for row in store.metrics(run).iter_rows(named=True)}
    attempts, newest, after = store.attempts(run), 0, 0
    seen: list[tuple[float, float, float, float]] = []
    while len((part := store.again(run, ROWS, after)).rows):
        found, after = part.rows.filter(pl.col("step") <= last), part.upto_batch
        rows = _stored(found)
        if len(rows):
            newest = max(newest, int(rows["attempt"].to_numpy().max()))
            fresh.append(run, rows, _so_far(attempts, newest), "", "", {}, lambda name: _role(roles[name]))
            judge(fresh, run, load_playbook, clock=lambda: 0.0)
            seconds = found["seconds"].to_numpy()
            known = seconds[np.isfinite(seconds)]
            times = (float(known.min()), float(known.max())) if len(known) else (np.nan, np.nan)
            step = rows["step"].to_numpy()
            seen.append((*times, float(step.min()), float(step.max())))
    said = sorted(incidents_of(fresh, run), key=lambda each: (each["detected_step"], each["onset_step"]))
    if not seen:
        return Replayed(run, tuple(said), 0.0, 0.0, float("nan"))
    extent = np.array(seen)
    timed = np.isfinite(extent[:, 1]).any()
    span = float(np.nanmax(extent[:, 1]) - np.nanmin(extent[:, 0])) if timed else float("nan")
    return Replayed(run, tuple(said), float(extent[:, 2].min()), float(extent[:, 3].max()), span)


def reached(found: Replayed, first: float = float("-inf")) -> list[Reached]:
    """Each severity that an incident came to, with the step at which it was known, from step `first` on."""
    return [
        Reached(found.run, each["id"], turn["step"], severity_number(turn["severity"]))
        for each in found.incidents
        for turn in each["severity_history"]
        if turn["step"] >= first
    ]


def differences(store: Store, found: Replayed) -> list[Difference]:
    """What the replay says otherwise than the store has it, loudest first; the user's own bounds and checks apart.

    Two incidents are the same when one finding of each is of the same metric and attempt and begins within some samples.
    """
    then = [i for i in incidents_of(store, found.run) if i["findings"] and not _own(i)]
    then = [i for i in then if i["detected_step"] <= found.last_step]
    free = list(then)
    out: list[Difference] = []
    for now in found.incidents:
        was = next((each for each in free if _same(each, now)), None)
        if was is None:
            out.append(Difference("new", now, "", _worst(now), _versions(now)))
            continue
        free.remove(was)
        old, new = _worst(was), _worst(now)
        if old != new:
            what = "louder" if new > old else "quieter"
            out.append(Difference(what, now, old, new, f"then {_versions(was)}; now {_versions(now)}"))
    out += [Difference("gone", was, _worst(was), "", _versions(was)) for was in free]
    return sorted(out, key=lambda each: (max(each.old, each.new), -each.incident["onset_step"]), reverse=True)


def _stored(found: pl.DataFrame) -> pl.DataFrame:
    """Rows of the judge as the pull gives them."""
    times = (pl.col("seconds").fill_nan(None) * 1e6).cast(pl.Int64).cast(pl.Datetime("us"))
    rows = found.with_columns(name=pl.col("name").cast(pl.String), logged_at=times, late=pl.lit(False))
    return rows.select(*STORED_SCHEMA).cast(dict(STORED_SCHEMA))  # type: ignore[arg-type]


def _so_far(attempts: Sequence[Attempt], reached: int) -> list[Attempt]:
    """The attempts that had begun, as they stood then: what came later cuts nothing off yet."""
    begun = [each for each in attempts if each.attempt <= reached]
    return [
        replace(each, valid_until=min((late.first_step for late in begun if late.attempt > each.attempt), default=None))
        for each in begun
    ]


def _role(row: dict[str, Any]) -> Role:
    return Role(row["role"], row["unit"], row["healthy"], row["group_name"])


def _own(incident: IncidentDoc) -> bool:
    return all(each["detector"] in OWN for each in incident["findings"])


def _worst(incident: IncidentDoc) -> str:
    return max(str(each["severity"]) for each in incident["severity_history"])


def _same(one: IncidentDoc, other: IncidentDoc) -> bool:
    return any(
        a["metric"] == b["metric"]
        and a["kind"] == b["kind"]
        and abs(a["onset_step"] - b["onset_step"]) <= NEAR * float(a["evidence"].get("cadence") or 1.0)
        for a in one["findings"]
        for b in other["findings"]
    )


def _versions(incident: IncidentDoc) -> str:
    return ", ".join(sorted({f"{each['detector']} {each.get('version', 1)}" for each in incident["findings"]}))
