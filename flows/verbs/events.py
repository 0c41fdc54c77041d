"""`watchkeeper events`: what was planned or done, so that it explains what the metrics do."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from flows.errors import BadConfig
from flows.verbs.place import store_path

app = typer.Typer(no_args_is_help=True, help="List what was planned or done, or add to it.")
StoreOption = Annotated[Path | None, typer.Option(envvar="WATCHKEEPER_STORE", help="the DuckDB file")]
RunOption = Annotated[str | None, typer.Option(help="the run; may be left out where the store has one only")]


@app.command("list")
def list_events(
    run: Annotated[str | None, typer.Option(help="only this run")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object a line")] = False,
    store: StoreOption = None,
) -> None:
    """The events on record, by step.

    Example: watchkeeper events list --run big-moe
    """
    from flows.store import open_store

    kept = open_store(str(store_path(store)), clock=time.time, must_exist=True)
    names = [run] if run is not None else list(kept.runs()["run"])
    for name in names:
        for each in kept.events(name):
            row = {"run": name, **vars(each)}
            steps = f"{each.step:,.15g}" + ("" if each.end_step is None else f" to {each.end_step:,.15g}")
            print(json.dumps(row, default=str) if as_json else f"{name}  {steps}  {each.kind}  {each.note}")  # noqa: T201


# what patterns of the playbook know as an explanation
KINDS = (
    "data_mix", "batch_size", "sequence_length", "lr_schedule", "lr_decay", "warmup", "deploy", "restart", "rollback",
    "checkpoint", "eval",
)  # fmt: skip


@app.command("add")
def add_event(
    kind: Annotated[str, typer.Argument(help=f"{', '.join(KINDS)}; another word is kept and explains nothing")],
    step: Annotated[float, typer.Option(help="where it begins, in the run's own steps")],
    run: RunOption = None,
    end_step: Annotated[float | None, typer.Option(help="where it ends")] = None,
    note: Annotated[str, typer.Option(help="what was done, and why")] = "",
    store: StoreOption = None,
) -> None:
    """Put an event on record. It counts from now on; the same event again changes nothing.

    What was done about an incident (rollback, lr_schedule, restart, ...) is judged later: whether it helped stands in the
    incident, is told, and ranks what is suggested next time. Of a rollback --step is the step it went back to.

    Example: watchkeeper events add data_mix --step 12000 --note "phase 2 mixture"
    """
    from flows.records import Event
    from flows.store import open_store

    if end_step is not None and end_step < step:
        raise BadConfig(f"--end-step {end_step:g} lies before --step {step:g}.")
    kept = open_store(str(store_path(store)), clock=time.time, must_exist=True)
    names = list(kept.runs()["run"])
    if run is None and len(names) != 1:
        raise BadConfig(f"--run is needed: the store has {', '.join(names) or 'no runs yet'}.")
    name = run if run is not None else names[0]
    kept.add_event(name, Event(kind, step, end_step, note, recorded_at=time.time()))
    print(f"{name}: {kind} at step {step:,.15g}")  # noqa: T201
