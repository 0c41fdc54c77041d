"""`watchkeeper sql`: one SELECT over the store, read-only, with no way out of it."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.errors import BadConfig, WatchkeeperError
from flows.verbs.place import store_path

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

MOST_SHOWN = 500  # rows of a table
NARROWEST = 12  # characters that a column needs to be read


def sql(
    query: Annotated[str | None, typer.Argument(help="one SELECT or EXPLAIN; without it a shell")] = None,
    store: Annotated[Path | None, typer.Option(envvar="WATCHKEEPER_STORE", help="the DuckDB file")] = None,
    output: Annotated[str, typer.Option("--format", help="table, csv, json or parquet (to standard output)")] = "table",
    rows: Annotated[int, typer.Option(min=1, help="most rows of an answer")] = 100_000,
    timeout: Annotated[float, typer.Option(min=0.1, help="most seconds of a query")] = 30.0,
) -> None:
    """Ask the store in SQL, read-only: runs, segments, metrics, samples, history, latest, events, incidents, findings,
    deliveries, expectations, coverage.

    Example: watchkeeper sql "SELECT name, step, value FROM latest WHERE role = 'loss'"
    """
    from flows.store import Limits, open_store

    if output not in FORMATS:
        raise BadConfig(f"--format {output!r}: formats are {', '.join(FORMATS)}.")
    kept = open_store(str(store_path(store)), clock=time.time, must_exist=True)
    limits = Limits(seconds=timeout, rows=rows)

    def ask(text: str) -> None:
        answer = kept.query(text, limits=limits)
        FORMATS[output](answer.rows)
        if answer.note:
            print(f"watchkeeper: {answer.note}", file=sys.stderr)  # noqa: T201

    if query is not None:
        ask(query)
    else:
        _shell(ask)


def _shell(ask: Callable[[str], None]) -> None:
    """Read statements up to a semicolon until the input ends; a refused one does not end the shell."""
    asks = sys.stdin.isatty()
    pending = ""
    while True:
        try:
            line = input(("   ...> " if pending else "sql> ") if asks else "")
        except EOFError:
            break
        pending = f"{pending}\n{line}".strip()
        if not pending or pending in ("exit", "quit", ".quit", ".exit"):
            if pending:
                return
            continue
        if not pending.endswith(";"):
            continue
        _try(ask, pending)
        pending = ""
    if pending:
        _try(ask, pending)


def _try(ask: Callable[[str], None], text: str) -> None:
    try:
        ask(text)
    except WatchkeeperError as error:
        print(f"watchkeeper: {error}", file=sys.stderr)  # noqa: T201


def _table(frame: "pl.DataFrame") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    shown = frame.head(MOST_SHOWN)
    if len(frame.columns) * NARROWEST > console.width:
        _records(console, shown)
        _count(console, frame)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, dtype in frame.schema.items():
        table.add_column(name, justify="right" if dtype.is_numeric() else "left", overflow="fold")
    for row in shown.iter_rows():
        table.add_row(*map(_cell, row))
    console.print(table)
    _count(console, frame)


def _cell(cell: object) -> str:
    return "" if cell is None else f"{cell:.10g}" if isinstance(cell, float) else str(cell)


def _records(console: "Console", frame: "pl.DataFrame") -> None:
    """Where the terminal is too narrow for the columns: one column a line."""
    wide = max(map(len, frame.columns), default=0)
    for row in frame.iter_rows(named=True):
        for name, cell in row.items():
            console.print(f"{name:<{wide}}  {_cell(cell)}", soft_wrap=True)
        console.print()


def _count(console: "Console", frame: "pl.DataFrame") -> None:
    rest = f"; the first {MOST_SHOWN} are shown, --format csv gives all" if len(frame) > MOST_SHOWN else ""
    console.print(f"({len(frame):,} rows{rest})", style="dim")


def _csv(frame: "pl.DataFrame") -> None:
    sys.stdout.write(frame.write_csv())


def _json(frame: "pl.DataFrame") -> None:
    import json

    from flows.incidents.incident import plain

    for row in frame.iter_rows(named=True):
        print(json.dumps(plain(row), ensure_ascii=False))  # noqa: T201


def _parquet(frame: "pl.DataFrame") -> None:
    if sys.stdout.isatty():
        raise BadConfig(
            "--format parquet writes bytes: send them to a file, as in `... --format parquet > answer.parquet`."
        )
    frame.write_parquet(sys.stdout.buffer)


FORMATS: dict[str, Callable[["pl.DataFrame"], None]] = {
    "table": _table,
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
}
