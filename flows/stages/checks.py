"""A user's own SQL checks: each row of a SELECT over the store is a finding.

A check sees the store as it is when it is asked, so its findings are known from the run's last step of that moment on.
The same check, run, metric and step is the same episode: it is told once, and again only when it has become more severe;
it is over when a later answer, given after new samples of the run, has no such row.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from detectors.finding import Finding, Recovery
from flows.errors import BadConfig, BadQuery
from flows.incidents.incident import Episode, plain
from flows.records import Attempt
from flows.stages.bounds import no_longer_asked, open_episodes
from flows.stages.past import Answers
from flows.stages.runstate import RunState
from flows.store import Limits, Store

DETECTOR = ("checks", 1)
MOST = 1_000  # rows: what has more tells of samples, not of findings
LIMITS = Limits(seconds=30.0, memory_mb=1024, rows=MOST)
SEVERITIES = ("S0", "S1", "S2", "S3", "S4")
DIRECTIONS = ("up", "down", "none")
KINDS = (
    "spike", "level", "trend", "divergence", "plateau", "overfit", "variance", "nonfinite", "stall", "rewind",
    "invariant", "schedule", "ladder", "replay",
)  # fmt: skip
NEEDED = ("run", "metric", "step")
NUMBERS = ("step", "detected_step", "value", "magnitude")
KNOWN = frozenset((*NEEDED, *NUMBERS, "severity", "direction", "kind", "title", "why"))
LIKE = "SELECT run, name AS metric, min(step) AS step FROM history WHERE ... GROUP BY ALL"


@dataclass(frozen=True)
class Check:
    """A check of the configuration: `severity` 0..4 and `why` stand where a row has none of its own."""

    name: str
    path: Path
    severity: int = 2
    why: str = ""


@dataclass(frozen=True)
class Row:
    """What one row says; `rest` holds the columns that mean nothing here."""

    run: str
    metric: str
    step: float
    detected_step: float | None
    value: float | None
    magnitude: float | None
    severity: int
    direction: str
    kind: str
    title: str
    why: str
    rest: Mapping[str, Any] = field(default_factory=dict)


def ask(store: Store, check: Check) -> list[Row]:
    """The rows of a check, of all runs. Raises BadConfig for its file, BadQuery for what it asks or gives."""
    try:
        sql = check.path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise BadConfig(f"{check.path}: cannot be read ({reason}); mend `sql` of the [[check]] {check.name}.") from None
    try:
        found = store.query(sql, limits=LIMITS)
    except BadQuery as error:
        raise BadQuery(f"{check.path}: {error}") from error
    if found.note:
        raise BadQuery(
            f"{check.path}: more than {MOST:,} rows; a row is a finding, not a sample: GROUP BY run, metric."
        )
    return read(found.rows, check, set(store.runs()["run"]))


def read(frame: pl.DataFrame, check: Check, runs: Collection[str]) -> list[Row]:
    """Rows as they mean it. Raises BadQuery that names the file, the row, the column and how to mend it."""
    if lacking := [name for name in NEEDED if name not in frame.columns]:
        raise BadQuery(
            f"{check.path}: no column {', '.join(lacking)} among {', '.join(frame.columns)}; write for instance {LIKE}."
        )
    rows: dict[tuple[str, str, float], Row] = {}
    for number, cells in enumerate(frame.iter_rows(named=True), 1):
        row = _row(cells, check, f"{check.path}: row {number}")
        if row.run not in runs:
            raise BadQuery(f"{check.path}: row {number}: run is {row.run!r}, which is none of the table `runs`.")
        rows.setdefault((row.run, row.metric, row.step), row)
    return list(rows.values())


def _row(cells: Mapping[str, Any], check: Check, where: str) -> Row:
    numbers = {name: _number(cells.get(name), f"{where}: {name}") for name in NUMBERS}
    step = numbers.pop("step")
    if step is None or not math.isfinite(step):
        raise BadQuery(f"{where}: step is {cells['step']}; give the step at which it began, as a number.")
    severity = cells.get("severity")
    if isinstance(severity, int):
        severity = f"S{severity}"
    return Row(
        run=str(cells["run"]),
        metric=str(cells["metric"] or ""),
        step=step,
        **numbers,
        severity=SEVERITIES.index(_one_of(severity, SEVERITIES, SEVERITIES[check.severity], f"{where}: severity")),
        direction=_one_of(cells.get("direction"), DIRECTIONS, "none", f"{where}: direction"),
        kind=_one_of(cells.get("kind"), KINDS, "level", f"{where}: kind"),
        title=str(cells.get("title") or ""),
        why=str(cells.get("why") or check.why),
        rest={name: plain(cell) for name, cell in cells.items() if name not in KNOWN},
    )


def _number(cell: Any, where: str) -> float | None:
    try:
        return None if cell is None else float(cell)
    except (TypeError, ValueError):
        raise BadQuery(f"{where} is {cell!r}; it must be a number.") from None


def _one_of(cell: Any, allowed: Sequence[str], default: str, where: str) -> str:
    if cell is None:
        return default
    if cell not in allowed:
        raise BadQuery(f"{where} is {cell!r}; it must be one of {', '.join(allowed)}.")
    return str(cell)


def news(
    answered: Mapping[str, Sequence[Row]],
    configured: Collection[str],
    state: RunState,
    attempts: Sequence[Attempt],
    metrics: pl.DataFrame,
    *,
    fresh: bool,
) -> Answers:
    """What the answers (check -> rows of this run) tell that was not told before.

    `configured` are the checks of this run, those that failed too; `fresh` says that the run has new samples: without
    them a row that is gone is no recovery.
    """
    last = float(max([0.0, *metrics["last_step"].drop_nulls()]))
    about = {row["name"]: row for row in metrics.iter_rows(named=True)}
    found, now = Answers(), {}
    for name, rows in answered.items():
        for row in rows:
            now[DETECTOR[0], row.metric, f"{name}@{row.step:.15g}"] = name, row
    known: dict[Episode, tuple[int, int]] = {}
    for number, finding in _open(state, attempts):
        episode = DETECTOR[0], finding.metric, finding.episode
        name = finding.episode.rpartition("@")[0]
        known[episode] = number, finding.severity
        if name not in configured:
            found.say(number, no_longer_asked(finding, last))
        elif fresh and name in answered and episode not in now:
            step = max(last, finding.detected_step)
            found.say(number, [Recovery(DETECTOR[0], finding.metric, finding.episode, step)])
    for episode, (name, row) in now.items():
        number, told = known.get(episode, (attempts[-1].attempt, -1))
        if row.severity > told:
            found.say(number, [_finding(name, row, episode[2], about.get(row.metric, {}), last)])
    return found


def is_waiting(state: RunState) -> bool:
    """Whether a check has told something that is not over."""
    return any(open_episodes(answers, DETECTOR[0]) for answers in state.answers.values())


def _open(state: RunState, attempts: Sequence[Attempt]) -> list[tuple[int, Finding]]:
    """Open episodes with their attempt, those left out that were rolled back: they may come again."""
    return [
        (each.attempt, finding)
        for each in attempts
        for finding in open_episodes(state.answers.get(each.attempt, ()), DETECTOR[0]).values()
        if each.valid_until is None or finding.onset_step < each.valid_until
    ]


def _finding(check: str, row: Row, episode: str, about: Mapping[str, Any], last: float) -> Finding:
    evidence: dict[str, Any] = {"check": check, "why": row.why, "title": row.title, "row": row.rest}
    if row.value is not None:
        evidence["after"] = row.value
    if about.get("samples", 0) > 1:
        cadence = (about["last_step"] - about["first_step"]) / (about["samples"] - 1)
        evidence |= {"samples": about["samples"], "cadence": cadence}
    size = next((each for each in (row.magnitude, row.value) if each is not None), 0.0)
    return Finding(
        detector=DETECTOR[0],
        version=DETECTOR[1],
        kind=row.kind,
        metric=row.metric,
        role=about.get("role", "other"),
        direction=row.direction,
        onset_step=row.step,
        detected_step=max(row.step, last if row.detected_step is None else min(row.detected_step, last)),
        magnitude=size,
        unit="",
        severity=row.severity,
        episode=episode,
        evidence=evidence,
    )
