"""`watchkeeper replay`: what a live watch would have said, when. Nothing is sent, nothing is stored."""

import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.errors import BadConfig, BadInput
from flows.verbs.place import store_path

if TYPE_CHECKING:
    from flows.incidents.budget import Budget, Reached
    from flows.messages.document import IncidentDoc
    from flows.stages.replay import Difference, Replayed


def replay(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="runs of the store; shell patterns, quoted")],
    first: Annotated[float | None, typer.Option("--from", help="only what was said from this step on")] = None,
    last: Annotated[float | None, typer.Option("--to", help="as if the run had come to this step")] = None,
    budget: Annotated[str | None, typer.Option(help='"2 pages a week", "1 page per 10,000 steps"')] = None,
    diff: Annotated[bool, typer.Option("--diff", help="what this version says otherwise than was said then")] = False,
    least: Annotated[str, typer.Option("--min-severity", help="list what reached this: S0 to S4")] = "S2",
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object a run")] = False,
    store: Annotated[Path | None, typer.Option(envvar="WATCHKEEPER_STORE", help="the DuckDB file")] = None,
) -> None:
    """What a live watch would have said of stored runs, and when. Never sends anything.

    With --budget exit status 1 says that the runs would have broken it.

    Example: watchkeeper replay "hero*" --budget "2 pages a week"
    """
    from flows.incidents.budget import budget_of
    from flows.messages.document import SEVERITIES
    from flows.stages import replay as stage
    from flows.store import open_store

    if least not in SEVERITIES:
        raise BadConfig(f"--min-severity {least!r}: severities are {', '.join(SEVERITIES)}.")
    try:
        agreed = budget_of(budget) if budget is not None else None
    except ValueError as error:
        raise BadConfig(f"--budget: {error}.") from None
    kept = open_store(str(store_path(store)), clock=time.time, must_exist=True)
    done = [
        stage.replay(kept, name, math.inf if last is None else last) for name in _names(runs, list(kept.runs()["run"]))
    ]
    since = -math.inf if first is None else first
    changed = {each.run: stage.differences(kept, each) for each in done} if diff else {}
    for each in done:
        if as_json:
            _as_json(each, since, changed.get(each.run))
        else:
            _show(each, since, least, changed.get(each.run))
    if agreed is not None:
        said = [turn for each in done for turn in stage.reached(each, since)]
        kept_to = _judge_budget(agreed, said, done, quiet=as_json)
        raise typer.Exit(int(not kept_to))


def _names(asked: list[str], known: list[str]) -> list[str]:
    from fnmatch import fnmatchcase

    found = [name for name in known if any(name == one or fnmatchcase(name, one) for one in asked)]
    missing = [one for one in asked if not any(name == one or fnmatchcase(name, one) for name in known)]
    if missing:
        raise BadInput(f"no run {missing[0]!r} in the store; it has {', '.join(known) or 'no runs yet'}.")
    return found


def _show(found: "Replayed", since: float, least: str, changed: "list[Difference] | None") -> None:
    from flows.messages.plain import plain, step

    print(f"{plain(found.run, 120)}: steps {step(found.first_step)} to {step(found.last_step)}{_length(found)}")  # noqa: T201
    if changed is not None:
        for each in changed:
            if max(each.old, each.new) >= least:
                was, now = each.old or "nothing", each.new or "nothing"
                title = plain(each.incident["title"], 200)
                print(f"  {each.what}: {was} then, {now} now: {title} ({each.versions})")  # noqa: T201
        if not any(max(each.old, each.new) >= least for each in changed):
            print(f"  nothing of {least} or above is said otherwise")  # noqa: T201
        return
    lines = [line for each in found.incidents for line in _turns(each, since, least)]
    for _, line in sorted(lines):
        print(line)  # noqa: T201
    if not lines:
        print(f"  nothing of {least} or above")  # noqa: T201


def _length(found: "Replayed") -> str:
    from flows.incidents.written import duration

    return f", {duration(found.seconds)} of log" if math.isfinite(found.seconds) else ", the log has no times"


def _turns(incident: "IncidentDoc", since: float, least: str) -> list[tuple[float, str]]:
    """Each time that an incident reached a severity, and its end."""
    from flows.messages.plain import plain, step

    out, loudest = [], ""
    for turn in incident["severity_history"]:
        word = "opened" if not loudest else "worse" if turn["severity"] > loudest else "less"
        loudest = max(loudest, turn["severity"])
        if turn["step"] >= since and turn["severity"] >= least:
            told = f"{incident['pattern']}: {plain(incident['title'], 200)}"
            out.append((turn["step"], f"  step {step(turn['step'])}  {turn['severity']} {word}  {told}"))
    end = incident.get("resolved_step")
    if end is not None and end >= since and loudest >= least:
        out.append((end, f"  step {step(end)}  over  {incident['pattern']} from step {step(incident['onset_step'])}"))
    return out


def _as_json(found: "Replayed", since: float, changed: "list[Difference] | None") -> None:
    from flows.incidents.incident import plain

    document: dict[str, Any] = {
        "run": found.run, "first_step": found.first_step, "last_step": found.last_step,
        "seconds": found.seconds if math.isfinite(found.seconds) else None,
        "incidents": [each for each in found.incidents if each["severity_history"][-1]["step"] >= since],
    }  # fmt: skip
    if changed is not None:
        document["differences"] = [
            {"what": e.what, "old": e.old, "new": e.new, "title": e.incident["title"], "versions": e.versions}
            for e in changed
        ]
    print(json.dumps(plain(document), allow_nan=False, ensure_ascii=False))  # noqa: T201


def _judge_budget(agreed: "Budget", said: "list[Reached]", done: "list[Replayed]", *, quiet: bool) -> bool:
    """Say whether the runs keep the budget, and at which severity they would. Raises BadInput without times."""
    from flows.incidents.budget import allowed, counts, quietest

    steps = sum(each.last_step - each.first_step for each in done)
    seconds = sum(each.seconds for each in done)
    if agreed.unit != "steps" and not math.isfinite(seconds):
        raise BadInput(
            '--budget: a log without times has no weeks; give it in steps, such as "1 page per 10,000 steps".'
        )
    length = steps if agreed.unit == "steps" else seconds
    many = counts(said)
    spans = max(length / agreed.span, 1e-12)
    good = many[agreed.level] <= allowed(agreed, length)
    if quiet:
        return good
    unit = f"{agreed.span:,.0f} steps" if agreed.unit == "steps" else agreed.unit
    print(f"budget: {agreed}; {spans:.2g} x {unit} were replayed")  # noqa: T201
    for level, count in many.items():
        print(f"  S{level} or above: {count}, {count / spans:.3g} per {unit}")  # noqa: T201
    least = quietest(said, agreed, length)
    if good:
        print("  kept")  # noqa: T201
    elif least is None:
        print("  broken, even with S4 only: mute a cause or metric, or tell the watch what is planned")  # noqa: T201
    else:
        print(f'  broken; kept with min_severity = "S{least}" on the channel')  # noqa: T201
    return good
