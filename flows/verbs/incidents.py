"""`watchkeeper incidents`: what is in the store, one line each or one in full."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from flows.errors import BadConfig
from flows.verbs.place import store_path

app = typer.Typer(no_args_is_help=True, help="List incidents, or show one.")
StoreOption = Annotated[Path | None, typer.Option(envvar="WATCHKEEPER_STORE", help="the DuckDB file")]


@app.command("list")
def list_incidents(
    run: Annotated[str | None, typer.Option(help="only this run")] = None,
    status: Annotated[str, typer.Option(help="open, resolved or all")] = "open",
    store: StoreOption = None,
) -> None:
    """One line an incident, the loudest first.

    Example: watchkeeper incidents list --status all
    """
    from rich.console import Console
    from rich.table import Table

    from flows.store import open_store

    if status not in ("open", "resolved", "all"):
        raise BadConfig(f"--status {status!r}: it is open, resolved or all.")
    rows = open_store(str(store_path(store)), clock=time.time, must_exist=True).incidents(run)
    rows = [row for row in rows if status in (row["status"], "all")]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("id", "", "status", "run", "since step", "what"):
        table.add_column(name, overflow="fold", justify="right" if name == "since step" else "left")
    for row in sorted(rows, key=lambda r: (-r["severity"], r["onset_step"])):
        table.add_row(
            row["incident_id"],
            f"S{row['severity']}",
            row["status"],
            row["run"],
            f"{row['onset_step']:,.15g}",
            row["title"],
        )
    console = Console(highlight=False, markup=False)
    console.print(table if rows else f"no {'' if status == 'all' else status + ' '}incidents")


@app.command("show")
def show_incident(
    incident_id: Annotated[str, typer.Argument(help="its id, or the first letters of it")], store: StoreOption = None
) -> None:
    """Everything about one incident: findings, hypotheses with their checks, suggestions.

    Example: watchkeeper incidents show 3f2a
    """
    from rich.console import Console

    from flows.messages.facts import again
    from flows.store import open_store

    kept = open_store(str(store_path(store)), clock=time.time, must_exist=True)
    rows = [row for row in kept.incidents() if row["incident_id"].startswith(incident_id)]
    if len(rows) != 1:
        what = "no incident has" if not rows else f"{len(rows)} incidents have"
        raise BadConfig(
            f"{incident_id!r}: {what} an id that begins so. `watchkeeper incidents list --status all` shows them."
        )
    row = rows[0]
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f"S{row['severity']} {row['title']}", style="bold")
    console.print(
        f"run {row['run']}, {row['status']}, onset step {row['onset_step']:,.15g}, known at {row['detected_step']:,.15g}"
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
