"""Tables that are read in columns give what cell by cell gives, to the bit."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.errors import BadInput
from flows.sources.catalogue import open_sources

ODD = [
    "nan", "NaN", "inf", "-Infinity", "1e400", "1e-400", ".5", "5.", "+1.5", "1_000", "true", "None", "-", "0x10", "text",
    "1,5", "1e5", "1E+05", "-0.0", "00012", "1d3", "infinity", "INF", "-nan", "\u0661", "", " 1", "2 ",
]  # fmt: skip
NUMBERS = st.one_of(st.floats().map(repr), st.integers(-(10**20), 10**20).map(str), st.floats(width=32).map(str))
CELLS = NUMBERS | st.sampled_from(ODD)


def read(path: Path, step_key: str | None = None) -> tuple[str, dict[str, int], str | None]:
    (source,) = open_sources(str(path), step_key=step_key)
    batches = list(source.pull(None))
    notes = {what: count for batch in batches for what, count in batch.notes.items()}
    return repr([row for batch in batches for row in batch.rows.iter_rows()]), notes, batches[-1].cursor


def read_or_refused(path: Path) -> object:
    """What is read, or why nothing is: a comma in each cell leaves no row of a table with commas."""
    try:
        return read(path)
    except BadInput as error:
        return str(error)


def test_a_column_that_no_row_of_a_table_has_is_refused_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.csv"
    path.write_text("step,loss,x\n" + "".join(f"{at},0.5,1,5\n" for at in range(40)))
    found = read_or_refused(path)
    assert "row with too many cells (40)" in str(found)
    monkeypatch.setattr("flows.sources.plain_cells._FEWEST", 1 << 60)
    assert found == read_or_refused(path)


@settings(max_examples=150, deadline=None)
@given(
    column=st.lists(CELLS, min_size=1, max_size=3), end=st.sampled_from(["\n", "\r\n"]), separator=st.sampled_from(",\t;"),
    times=st.sampled_from([None, "1750000000.125", "1750000000", "1750000000123", "2026-01-02T03:04:05", "12.5", ""]),
)  # fmt: skip
def test_any_cell_is_read_alike(
    column: list[str], end: str, separator: str, times: str | None, tmp_path_factory: Any
) -> None:
    path = tmp_path_factory.mktemp("table") / "run.csv"
    lines = [["step", "loss", "x", *(["timestamp"] if times is not None else [])]]
    lines += [[str(at), "0.5", column[at % len(column)], *([times] if times is not None else [])] for at in range(40)]
    path.write_bytes("".join(separator.join(cells) + end for cells in lines).encode())
    with pytest.MonkeyPatch.context() as patch:
        found = read_or_refused(path)
        patch.setattr("flows.sources.plain_cells._FEWEST", 1 << 60)
        assert found == read_or_refused(path)


@pytest.mark.parametrize("odd", ["5", "5,1,2,3", "", "  ", "5,1,2,", ",1,2", "nan,1,2", "inf,1,2", '5,"1",2'])
def test_one_odd_line_is_read_alike(odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.csv"
    lines = [f"{at},{at / 7},{at / 3}" for at in range(40)]
    path.write_text("step,loss,lr\n" + "\n".join([*lines[:20], odd, *lines[20:]]) + "\n")
    found = read(path)
    monkeypatch.setattr("flows.sources.plain_cells._FEWEST", 1 << 60)
    assert found == read(path)


def test_plain_lines_are_not_read_cell_by_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.csv"
    path.write_text("step,loss,lr\n" + "".join(f"{at},{at / 7},\n" for at in range(40)))
    (source,) = open_sources(str(path))
    monkeypatch.setattr("flows.sources.cells.CellRows._add_row", None)
    (batch,) = source.pull(None)
    assert batch.rows["value"].to_list() == [at / 7 for at in range(40)]
