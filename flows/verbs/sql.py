"""`watchkeeper sql`: one SELECT over the store, read-only, with no way out of it; asked by hand, by name, or as a table."""

import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.errors import BadConfig
from flows.verbs.named import catalogue
from flows.verbs.place import store_path
from flows.verbs.tables import ENDINGS, FORMATS, write

if TYPE_CHECKING:
    from flows.store import Store


def sql(
    query: Annotated[str | None, typer.Argument(help="one SELECT or EXPLAIN; without it a shell")] = None,
    store: Annotated[Path | None, typer.Option(envvar="WATCHKEEPER_STORE", help="the DuckDB file")] = None,
    output: Annotated[str, typer.Option("--format", help="table, csv, json or parquet (to standard output)")] = "table",
    rows: Annotated[
        int | None, typer.Option(min=1, help="most rows of an answer: 100,000, and all of them with --out")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="most seconds of a query")] = 30.0,
    listed: Annotated[bool, typer.Option("--list", help="the named queries, with their parameters")] = False,
    name: Annotated[str | None, typer.Option(help="ask a named query, or one in a file that ends in .sql")] = None,
    param: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="a parameter of --name")] = None,
    pivot: Annotated[
        list[str] | None,
        typer.Option(metavar="METRIC", help="a step a row, a column a metric: name, shell pattern or role"),
    ] = None,
    run: Annotated[str | None, typer.Option(help="the run of --pivot; may be left out where there is one only")] = None,
    out: Annotated[Path | None, typer.Option(help="write the answer to FILE.parquet, FILE.csv or FILE.json")] = None,
    show: Annotated[bool, typer.Option("--show", help="print the SQL instead of asking it")] = False,
) -> None:
    """Ask the store in SQL, read-only: runs, segments, metrics, samples, history, latest, events, incidents, findings,
    deliveries, expectations, coverage.

    Example: watchkeeper sql "SELECT name, step, value FROM latest WHERE role = 'loss'"
    """
    from flows.store import Limits, open_store

    if output not in FORMATS:
        raise BadConfig(f"--format {output!r}: formats are {', '.join(FORMATS)}.")
    if out is not None and out.suffix.lower() not in ENDINGS:
        raise BadConfig(f"--out {out}: the name must end in {', '.join(ENDINGS)}; .json holds one object a line.")
    if sum(each is not None for each in (query, name, pivot)) + listed > 1:
        raise BadConfig("a query, --name, --pivot and --list exclude each other; give one of them.")
    if listed:
        print(catalogue())  # noqa: T201
        return
    if name is not None:
        query = _named(name, param or [])
        if show:
            print(query)  # noqa: T201
            return
    kept = open_store(str(store_path(store)), clock=time.time, must_exist=True)
    if pivot is not None:
        query = _wide(kept, pivot, run)
    if show:
        print(query)  # noqa: T201
        return
    limits = Limits(seconds=timeout, rows=rows if rows is not None or out is not None else 100_000)

    def ask(text: str) -> None:
        answer = kept.query(text, limits=limits)
        if out is not None:
            write(answer.rows, out)
            print(f"{out}: {len(answer.rows):,} rows", file=sys.stderr)  # noqa: T201
        else:
            FORMATS[output](answer.rows)
        if answer.note:
            print(f"watchkeeper: {answer.note}", file=sys.stderr)  # noqa: T201

    if query is not None:
        ask(query)
    else:
        from flows.verbs.shell import shell

        shell(ask, lambda: _words(kept))


def _named(name: str, given: Sequence[str]) -> str:
    from flows.store.library import filled, find

    pairs = [each.partition("=") for each in given]
    for key, sign, _ in pairs:
        if not sign:
            raise BadConfig(f"--param {key!r}: write it as KEY=VALUE.")
    return filled(find(name), {key.strip(): value for key, _, value in pairs})


def _wide(kept: "Store", wanted: Sequence[str], run: str | None) -> str:
    """The pivot of what is wanted: exact names, shell patterns or roles, in that order."""
    from flows.store import wide

    runs = list(kept.runs()["run"])
    if run is None and len(runs) != 1:
        raise BadConfig(f"--run is needed: the store has {', '.join(runs) or 'no runs yet'}.")
    run = runs[0] if run is None else run
    if run not in runs:
        raise BadConfig(f"--run {run!r}: the store has {', '.join(runs) or 'no runs yet'}.")
    known = list(kept.metrics(run).select("name", "role").iter_rows())
    names: dict[str, None] = {}
    for each in wanted:
        found = [m for m, role in known if each in (m, role)] or [m for m, _ in known if fnmatchcase(m, each)]
        if not found:
            raise BadConfig(
                f"--pivot {each!r}: run {run} has no such metric or role; `watchkeeper sql --name latest` lists them."
            )
        names |= dict.fromkeys(found)
    return wide(run, list(names))


def _words(kept: "Store") -> list[str]:
    """What the shell completes beside SQL's own words: tables, columns, runs, metrics."""
    tables = kept.query(
        "SELECT table_name AS word FROM duckdb_columns WHERE NOT internal"
        " UNION SELECT column_name FROM duckdb_columns WHERE NOT internal AND NOT ends_with(table_name, '_rows')"
    )
    names = [f"'{word}'" for run in kept.runs()["run"] for word in (run, *kept.metrics(run)["name"])]
    return [*tables.rows["word"], *dict.fromkeys(names)]
