"""`watchkeeper incidents`: what is in the store, one line each or one in full."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.errors import BadConfig
from flows.records import Operation
from flows.verbs import mutes, people
from flows.verbs.people import StoreOption, incident_row, opened

if TYPE_CHECKING:
    from flows.incidents import Incident
    from flows.store import Store

app = typer.Typer(help="List incidents, show one, or say what is done about it.")
for verb in (
    people.ack,
    people.snooze,
    people.resolve,
    people.note,
    people.feedback,
    mutes.mute,
    mutes.unmute,
    mutes.mutes,
):
    app.command(verb.__name__)(verb)
RunOption = Annotated[str | None, typer.Option(help="only this run")]
StatusOption = Annotated[str, typer.Option(help="open, resolved, pending (no incident yet), or all")]
JsonOption = Annotated[bool, typer.Option("--json", help="one JSON object a line, with all that was said and done")]


@app.callback(invoke_without_command=True)
def incidents(
    context: typer.Context,
    run: RunOption = None,
    status: StatusOption = "open",
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """List incidents, show one, or say what is done about it. Alone it lists."""
    if context.invoked_subcommand is None:
        list_incidents(run, status, as_json, store)


@app.command("list")
def list_incidents(
    run: RunOption = None, status: StatusOption = "open", as_json: JsonOption = False, store: StoreOption = None
) -> None:
    """One line an incident, the loudest first; with who has it in hand and what is silenced.

    Example: watchkeeper incidents list --status all
    """
    from rich.table import Table

    from flows.stages.document import pending
    from flows.verbs.terminal import Terminal

    if status not in ("open", "resolved", "pending", "all"):
        raise BadConfig(f"--status {status!r}: it is open, resolved, pending or all.")
    kept = opened(store)
    rows = [row for row in kept.incidents(run) if status in (row["status"], "all")]
    waits = [] if status == "resolved" else pending(kept, run)
    if as_json:
        _print_json(kept, rows)
        return
    flags = _flags(kept, rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("id", "", "state", "run", "since step", "what", "people"):
        table.add_column(name, overflow="fold", justify="right" if name == "since step" else "left")
    for row in sorted(rows, key=lambda r: (-r["severity"], r["onset_step"])):
        table.add_row(
            row["incident_id"],
            f"S{row['severity']}",
            row["state"],
            row["run"],
            f"{row['onset_step']:,.15g}",
            row["title"],
            flags.get((row["run"], row["incident_id"]), ""),
        )
    console = Terminal(highlight=False, markup=False)
    if rows or status != "pending":
        console.print(table if rows else f"no {'' if status == 'all' else status + ' '}incidents")
    if status == "open" and waits:
        console.print(
            f"{len(waits)} pending, of which nobody is told: `watchkeeper incidents list --status pending`", style="dim"
        )
    elif status == "pending" and not waits:
        console.print("nothing is pending")
    elif status != "open":
        for name, line in waits:
            console.print(f"pending  {name}: {line}", soft_wrap=True)


@app.command("show")
def show_incident(
    incident_id: Annotated[str, typer.Argument(help="its id, or the first letters of it")], store: StoreOption = None
) -> None:
    """Everything about one incident: findings, hypotheses with their checks, suggestions.

    Example: watchkeeper incidents show 3f2a
    """
    from flows.incidents.people import of
    from flows.messages.document import operation_doc
    from flows.messages.facts import again, operation
    from flows.verbs.terminal import Terminal

    kept = opened(store)
    row = incident_row(kept, incident_id)
    console = Terminal(highlight=False, markup=False, soft_wrap=True)
    console.print(f"S{row['severity']} {row['title']}", style="bold")
    console.print(
        f"run {row['run']}, {row['state']}, onset step {row['onset_step']:,.15g}, known at {row['detected_step']:,.15g}"
    )
    console.print("\nwhat was found")
    for each in kept.findings(row["run"], row["incident_id"]):
        console.print(
            f"  S{each['severity']} {each['kind']} of {each['metric'] or 'the run'} since {each['onset_step']:,.15g}, "
            f"known at {each['detected_step']:,.15g}: {each['magnitude']:+.4g} {each['unit']}"
        )
    console.print("\nwhat it may be")
    for each in json.loads(row["hypotheses"]):
        console.print(f"  {each['pattern']} (score {each['score']:.1f})")
        for label in ("matched", "contradicted", "missing"):
            if each[label]:
                console.print(f"    {label}: {'; '.join(each[label])}", style="dim")
        if each.get("apart"):
            console.print(f"    tell apart: {each['apart']['by']}", style="dim")
        for check in each.get("checks", []):
            console.print(
                f"    check: {check['ask']}\n      {check['sql']}" if check.get("sql") else f"    check: {check['ask']}"
            )
    console.print("\nwhat to do")
    for each in json.loads(row["suggestions"]):
        console.print(
            f"  - {each['do']} ({'reversible' if each['reversible'] else 'not reversible'}; cost: {each['cost']})"
        )
        console.print(f"    why: {each['why']}", style="dim")
        if each.get("again"):
            console.print(f"    {again(each['again'])}", style="dim")
        if each.get("bound"):
            console.print(each["bound"], style="dim")
        if each["counter_evidence"]:
            console.print(f"    against: {'; '.join(each['counter_evidence'])}", style="dim")
    log = of(kept.log(row["run"]), row["incident_id"])
    if log:
        console.print("\nwhat was said and done")
        for done in log:
            console.print(f"  {operation(operation_doc(done))}")


def _print_json(kept: "Store", rows: Sequence[Mapping[str, Any]]) -> None:
    from flows.incidents.incident import to_json
    from flows.stages.document import incidents_of

    wanted = {row["incident_id"] for row in rows}
    for run in sorted({row["run"] for row in rows}):
        for each in incidents_of(kept, run):
            if each["id"] in wanted:
                print(to_json({"run": run, "operations": [], **each}))  # noqa: T201


def _flags(kept: "Store", rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """What people have said of incidents, in a few words, by run and id."""
    from flows.incidents.people import of
    from flows.stages.document import last_step
    from flows.stages.judge import stored

    out: dict[tuple[str, str], str] = {}
    for run in {row["run"] for row in rows}:
        log, step = kept.log(run), last_step(kept, run)
        muting = any(each.kind == "mute" for each in log)
        ids = {row["incident_id"] for row in rows if row["run"] == run and (muting or of(log, row["incident_id"]))}
        out |= {(run, each.id): _flag(each, log, step) for each in stored(kept, run, ids)}
    return out


def _flag(incident: "Incident", log: Sequence[Operation], step: float) -> str:
    from flows.incidents.people import lasts, of, silence, standing
    from flows.messages.plain import plain

    stands, now = standing(of(log, incident.id)), time.time()
    by = silence(incident, log, step, now)
    told = [f"ack {plain(stands.acknowledged.who, 40)}"] if stands.acknowledged else []
    told += ["snoozed"] if stands.snooze and lasts(stands.snooze, step, now) else []
    told += ["muted"] if by is not None and by.kind == "mute" else []
    return ", ".join([*told, stands.feedback] if stands.feedback else told)
