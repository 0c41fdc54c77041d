"""CSV and TSV: wide and sparse, long (step, name, value), and charts downloaded from the W&B site."""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flows.errors import BadInput
from flows.records import Batch, Description
from flows.sources.cells import CellRows
from flows.sources.contract import MAX_METRICS, refuse
from flows.sources.cursor import decode
from flows.sources.layout import Layout, layouts_of
from flows.sources.lines import Place, place_of, read_lines, still_there
from flows.sources.rows import FLUSH_ROWS, Rows
from flows.sources.streams import head

DELIMITERS = ",\t;|"
_TRIED_ROWS = 64
_PLAIN_ROWS = 8


@dataclass(frozen=True)
class Header:
    """The first line that is not blank: its cells, what separates them, and how many lines end with it."""

    cells: tuple[str, ...]
    delimiter: str
    lines: int


@dataclass(frozen=True)
class Table:
    """One run of a delimited file. `column_run` names it among the runs of a W&B export, "" elsewhere."""

    path: Path
    run: str
    source: str
    wanted: str | None = None
    column_run: str = ""

    def describe(self) -> Description:
        return Description(self.run, self.source, "csv", self._layout(read_header(self.path)).step_key)

    def pull(self, cursor: str | None) -> Iterator[Batch]:
        state = decode(cursor, "csv")
        header = read_header(self.path)
        layout = self._layout(header)
        start, restart = place_of(state), False
        if cursor and (state.get("step_key") != layout.step_key or not still_there(self.path, start)):
            state, start, restart = {}, Place(), True
        cells = CellRows(Rows(self.path), layout, header.delimiter, len(header.cells), state)
        skip, place = header.lines if start.offset == 0 else 0, start
        for piece in read_lines(self.path, start):
            if not piece.whole and not cells.is_complete(piece.lines[-1]):
                break  # its last number may have more digits to come
            if not piece.whole or not cells.add_text(_behind(piece.text, skip)):
                cells.add(piece.lines[skip:])
            skip, place = 0, piece.place
            if len(cells.rows) >= FLUSH_ROWS:
                yield _batch(cells, place, restart)
                restart = False
        if restart or place != start:
            yield _batch(cells, place, restart)

    def _layout(self, header: Header) -> Layout:
        layouts = layouts_of(header.cells, self.wanted)
        layout = layouts.get(self.column_run)
        if layout is None:
            what = f"the columns of run {self.column_run!r} are gone from it"
            raise refuse(self.path, what, f"it has {', '.join(map(repr, list(layouts)[:5]))}")
        if self.wanted is not None and layout.step_key != self.wanted:
            columns = ", ".join(header.cells[:12])
            raise refuse(self.path, f"no column {self.wanted!r}", f"name one of these with --step-key: {columns}")
        return layout


def read_header(path: Path) -> Header:
    """The header of a delimited file. Raises BadInput where the file does not begin with one."""
    text = head(path)
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    at = next((number for number, line in enumerate(lines[:-1]) if line.strip()), None)
    if at is None:
        raise refuse(path, "no whole line yet", "a table starts with a line of column names", 1)
    at = _below_comments(lines[:-1], at)
    try:
        line = lines[at].decode("utf-8").rstrip("\r").removeprefix("#").lstrip(" ")
    except UnicodeDecodeError:
        raise refuse(path, "not UTF-8 text", "convert it, for example with iconv", at + 1) from None
    delimiter, cells = _split(line)
    problem = _header_problem(cells)
    if problem:
        raise refuse(path, problem, "begin the table with a line of column names such as step,loss,grad_norm", at + 1)
    return Header(tuple(cells), delimiter, at + 1)


def _below_comments(lines: Sequence[bytes], at: int) -> int:
    """The line of column names at or below line `at`: comments stand above it, or it is one itself with rows below."""
    while lines[at].lstrip().startswith(b"#"):
        below = next((k for k in range(at + 1, len(lines)) if lines[k].strip()), None)
        if below is None:
            break
        line = lines[below].decode("utf-8", "replace").strip()
        if not line.startswith("#") and _header_problem(_split(line)[1]):
            break
        at = below
    return at


def _split(line: str) -> tuple[str, list[str]]:
    """What separates the cells of a line of column names, and the cells."""
    return max(((mark, _cells(line, mark)) for mark in DELIMITERS), key=lambda pair: len(pair[1]))


def open_tables(path: Path, run: str, source: str, wanted: str | None) -> list[Table]:
    """The runs of a delimited file. Raises BadInput where it is none, or has rows but no number to watch."""
    header = read_header(path)
    runs = list(layouts_of(header.cells, wanted))
    names = {"": run} if runs == [""] else {name: name for name in runs}
    tables = [Table(path, names[name], source, wanted, name) for name in runs]
    for table in tables:
        table.describe()
    _require_numbers(path, header, layouts_of(header.cells, wanted))
    return tables


def _behind(text: bytes, lines: int) -> bytes:
    """What follows the first lines."""
    at = 0
    for _ in range(lines):
        at = text.find(b"\n", at) + 1
    return text[at:] if at else text


def is_plain_table(path: Path, text: bytes) -> bool:
    """Whether a text is a table beyond doubt: column names, and then a few lines with nothing but a number a cell."""
    try:
        header = read_header(path)
    except BadInput:
        return False
    lines = text.split(b"\n", header.lines + _PLAIN_ROWS)[header.lines : -1]
    rows = [line.decode("utf-8", "replace").rstrip("\r").split(header.delimiter) for line in lines]
    return len(rows) == _PLAIN_ROWS and all(
        len(row) == len(header.cells) and all(not cell or _is_number(cell) for cell in row) for row in rows
    )


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []  # a cell beyond the reader's limit: this is not what separates the columns


def _header_problem(cells: Sequence[str]) -> str:
    if len(cells) < 2:
        return "neither JSON nor a table with two or more columns"
    if len(cells) > MAX_METRICS:
        return f"{len(cells):,} columns, more than {MAX_METRICS:,}"
    if any(mark in cell for cell in cells for mark in "{}") or not all(c.isprintable() for c in cells):
        return "neither JSON nor a line of column names"
    numeric = sum(_is_number(cell) for cell in cells)
    return f"{numeric} of {len(cells)} column names are numbers" if numeric * 2 >= len(cells) else ""


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _require_numbers(path: Path, header: Header, layouts: dict[str, Layout]) -> None:
    """Refuse a text that only looks like a table: rows, but no cell that is a sample."""
    lines = head(path).removeprefix(b"\xef\xbb\xbf").split(b"\n")[header.lines : -1][:_TRIED_ROWS]
    rows = Rows(path)
    for layout in layouts.values():
        CellRows(rows, layout, header.delimiter, len(header.cells), {}).add(lines)
    if any(line.strip() for line in lines) and not len(rows):
        seen = ", ".join(f"{what} ({count})" for what, count in rows.notes.items())
        what = f"no number to watch in its first {len(lines)} rows{': ' + seen if seen else ''}"
        raise refuse(path, what, f"is {header.delimiter!r} what separates its columns?", header.lines + 1)


def _batch(cells: CellRows, place: Place, restart: bool) -> Batch:
    cursor: dict[str, Any] = {"format": "csv", **asdict(place), **cells.state()}
    rows, notes = cells.rows.take()
    return Batch(rows, json.dumps(cursor), restart, notes)
