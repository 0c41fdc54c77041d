"""Answers of queries as people and programs read them: a table, CSV, JSON lines, Parquet; on standard output or in a file."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from flows.errors import BadConfig

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

MOST_SHOWN = 500  # rows of a table
NARROWEST = 12  # characters that a column needs to be read


ENDINGS = (".parquet", ".csv", ".json")


def write(frame: "pl.DataFrame", path: Path) -> None:
    """Put an answer into a file, whole or not at all, in the format of its ending (one of ENDINGS). Raises BadConfig."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if path.suffix.lower() == ".parquet":
            frame.write_parquet(beside)
        else:
            text = frame.write_csv() if path.suffix.lower() == ".csv" else _json_lines(frame)
            beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise BadConfig(f"--out {path}: cannot be written ({error.strerror}); give another path.") from error


def _table(frame: "pl.DataFrame") -> None:
    from rich.table import Table

    from flows.verbs.terminal import Terminal

    console = Terminal(highlight=False, markup=False)
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
    sys.stdout.write(_json_lines(frame))


def _json_lines(frame: "pl.DataFrame") -> str:
    from flows.incidents.incident import plain

    return "".join(json.dumps(plain(row), ensure_ascii=False) + "\n" for row in frame.iter_rows(named=True))


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
