"""CSV, TSV and W&B exports as people have them."""

from datetime import datetime
from pathlib import Path

import pytest

from flows.errors import BadInput
from flows.sources.catalogue import open_sources


def read(
    tmp_path: Path, text: str | bytes, step_key: str | None = None
) -> tuple[list[tuple[float, str, float]], dict[str, int]]:
    path = tmp_path / "run.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    (source,) = open_sources(str(path), step_key=step_key)
    (batch,) = source.pull(None)
    return list(batch.rows.select("step", "name", "value").iter_rows()), dict(batch.notes)


def test_an_empty_cell_was_not_logged(tmp_path: Path) -> None:
    rows, notes = read(tmp_path, "global_step,loss,eval\n1,,5\n1,4,\n2,None,null\n3,3,\n")
    assert rows == [(1, "eval", 5), (1, "loss", 4), (3, "loss", 3)]
    assert notes == {}


@pytest.mark.parametrize("separator", [",", "\t", ";", "|"])
def test_the_separator_is_found(separator: str, tmp_path: Path) -> None:
    rows, _ = read(tmp_path, "step,loss,lr\n1,2,3\n".replace(",", separator))
    assert rows == [(1, "loss", 2), (1, "lr", 3)]


def test_quotes_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    rows, notes = read(tmp_path, b'\xef\xbb\xbf"step","loss, mean","note"\r\n"1","2","said ""x"", left"\r\n')
    assert rows == [(1, "loss, mean", 2)]
    assert notes == {"text cell": 1}


def test_a_quoted_cell_may_hold_line_breaks(tmp_path: Path) -> None:
    rows, notes = read(tmp_path, 'step,note,loss\n1,"a\nb\nc",2\n2,x,1\n')
    assert rows == [(1, "loss", 2), (2, "loss", 1)]
    assert notes == {"text cell": 2}


def test_nonfinite_texts_are_values(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, "step,a,b,c,d\n1,NaN,inf,-Infinity,True\n")
    assert [str(value) for _, _, value in rows] == ["nan", "inf", "-inf", "1.0"]


def test_ragged_rows_are_counted_and_only_too_long_ones_left_out(tmp_path: Path) -> None:
    rows, notes = read(tmp_path, "step,a,b\n1,2\n2,3,4,5\n3,4,5,\n4,5,6\n")
    assert rows == [(1, "a", 2), (3, "a", 4), (3, "b", 5), (4, "a", 5), (4, "b", 6)]
    assert notes == {"row with too few cells": 1, "row with too many cells": 1}


def test_a_second_header_and_texts_are_counted(tmp_path: Path) -> None:
    rows, notes = read(tmp_path, "step,loss\n1,2\nstep,loss\n2,oops\n3,1\n")
    assert rows == [(1, "loss", 2), (3, "loss", 1)]
    assert notes == {"step that is no finite number": 1, "text cell": 1}


def test_long_tables_name_their_metric_in_a_column(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text("timestamp,step,metric,value\n2026-01-01T00:00:00Z,1,loss,2\n2026-01-01T00:00:01Z,1,lr,0.1\n")
    (batch,) = open_sources(str(path))[0].pull(None)
    assert batch.rows.rows() == [
        (1.0, datetime(2026, 1, 1), "loss", 2.0),
        (1.0, datetime(2026, 1, 1, 0, 0, 1), "lr", 0.1),
    ]


def test_a_wandb_export_of_three_runs_is_three_sources(tmp_path: Path) -> None:
    columns = [f"{run} - lm loss{end}" for run in ("a", "b - 2", "c") for end in ("", "__MIN", "__MAX")]
    text = ",".join(f'"{name}"' for name in ["Step", *columns]) + '\n"1","2","1","3","","","","4","4","4"\n'
    (tmp_path / "export.csv").write_text(text)
    sources = open_sources(str(tmp_path / "export.csv"))
    rows = [[row for batch in source.pull(None) for row in batch.rows.drop("logged_at").rows()] for source in sources]
    assert [source.describe().run for source in sources] == ["a", "b - 2", "c"]
    assert rows == [[(1.0, "lm loss", 2.0)], [], [(1.0, "lm loss", 4.0)]]
    named = open_sources(str(tmp_path / "export.csv"), run="hero")
    assert [source.describe().run for source in named] == ["hero/a", "hero/b - 2", "hero/c"]


def test_without_a_step_column_the_row_number_is_the_step(tmp_path: Path) -> None:
    rows, notes = read(tmp_path, "loss,lr\n3,1\n2,1\n")
    assert rows == [(1, "loss", 3), (1, "lr", 1), (2, "loss", 2), (2, "lr", 1)]
    assert notes == {"no step column: the row number is the step": 2}


def test_columns_of_one_name_are_kept_apart(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, "step,loss,loss\n1,2,3\n")
    assert rows == [(1, "loss", 2), (1, "loss (2)", 3)]


def test_an_unfinished_last_number_waits(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text("step,loss\n1,2\n2,1")
    (source,) = open_sources(str(path))
    (first,) = source.pull(None)
    path.write_text("step,loss\n1,2\n2,1.25\n")
    (second,) = source.pull(first.cursor)
    assert (first.rows["value"].to_list(), second.rows["value"].to_list()) == ([2], [1.25])


def test_a_chosen_step_column_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no column 'batch'.*--step-key: step, loss"):
        read(tmp_path, "step,loss\n1,2\n", step_key="batch")


@pytest.mark.parametrize(
    "above", ["# made by a script\n", "# a, b, c\n# 2026-03-01\n\n", "#\n# seed: 7, lr: 0.1\n", "# 1, 2\n"]
)
@pytest.mark.parametrize("header", ["step,loss\n", "# step,loss\n"])
def test_comments_may_stand_above_the_column_names(tmp_path: Path, above: str, header: str) -> None:
    path = tmp_path / "run.csv"
    path.write_text(above + header + "1,3.5\n2,3.25\n")
    (source,) = open_sources(str(path))
    (batch,) = source.pull(None)
    assert batch.rows.select("step", "name", "value").rows() == [(1.0, "loss", 3.5), (2.0, "loss", 3.25)]
    assert batch.notes == {}
