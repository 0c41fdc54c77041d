"""Files that are broken or meant to hurt: one clear line, or rows; never a traceback, never much memory.

Large ones are read in a process of their own, which reports its outcome and its peak memory.
"""

import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.errors import BadInput
from flows.sources.catalogue import open_sources

MAX_RESIDENT_MB = 500
READER = """
import json, sys
from flows.errors import BadInput
from flows.sources.catalogue import open_sources
try:
    rows, notes = 0, {}
    for source in open_sources(sys.argv[1]):
        for batch in source.pull(None):
            rows += len(batch.rows)
            for what, count in batch.notes.items():
                notes[what] = notes.get(what, 0) + count
    answer = {"rows": rows, "notes": notes}
except BadInput as error:
    answer = {"error": str(error)}
with open("/proc/self/status") as status:  # ru_maxrss would count the parent's memory before exec too
    answer["mb"] = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
print(json.dumps(answer))
"""


def read(path: Path) -> dict:
    folder = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(folder), "POLARS_MAX_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", READER, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["mb"] < MAX_RESIDENT_MB
    return answer


def repeat(path: Path, head: bytes, body: bytes, times: int, tail: bytes = b"") -> None:
    with path.open("wb") as file:
        file.write(head)
        for _ in range(times):
            file.write(body)
        file.write(tail)


def long_json_line(path: Path) -> None:
    repeat(path, b'{"step": 1, "note": "', b"x" * (1 << 20), 100, b'"}\n')


def long_later_line(path: Path) -> None:
    repeat(path, b'{"step": 1, "loss": 1.0}\n', b"x" * (1 << 20), 100)


def long_csv_header(path: Path) -> None:
    repeat(path, b"step,", b"x" * (1 << 20), 100)


def many_names_in_a_line(path: Path) -> None:
    path.write_text(json.dumps({"step": 1, **{f"m{at}": 1 for at in range(500_000)}}) + "\n")


def many_names_over_lines(path: Path) -> None:
    path.write_text("".join(f'{{"step": {at}, "loss/{at}": 1.0}}\n' for at in range(150_000)))


def many_columns(path: Path) -> None:
    path.write_text("step," + ",".join(f"m{at}" for at in range(500_000)) + "\n")


def many_names_in_a_long_table(path: Path) -> None:
    path.write_text("step,name,value\n" + "".join(f"{at},m{at},1\n" for at in range(150_000)))


def many_names_in_parquet(path: Path) -> None:
    pl.DataFrame({"step": range(150_000)}).with_columns(name=pl.format("m{}", "step"), value=1.0).write_parquet(path)


def gzip_bomb(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(b'{"step": 1, "loss": 1.0}\n')
        for _ in range(32):
            file.write(b'{"step": 1, "loss": 1.0}\n' * 50_000)


def gzip_line_bomb(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range(30):
            file.write(b"0" * (1 << 20))


def zstd_bomb(path: Path) -> None:
    with path.open("wb") as file, pa.CompressedOutputStream(file, "zstd") as stream:
        for _ in range(32):
            stream.write(b'{"step": 1, "loss": 1.0}\n' * 50_000)


def parquet_bomb(path: Path) -> None:
    table = pa.table({f"m{at}": pa.nulls(1_000_000).cast("double") for at in range(60)})
    with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
        for _ in range(12):
            writer.write_table(table)


def binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 100)


def empty(path: Path) -> None:
    path.touch()


def blank(path: Path) -> None:
    repeat(path, b"", b"\n" * (1 << 20), 50)


def utf_16(path: Path) -> None:
    path.write_text("step,loss\n1,2\n", encoding="utf-16")


def latin_1_header(path: Path) -> None:
    path.write_bytes("step,Verlust gemäß\n1,2\n".encode("latin-1"))


def texts_only(path: Path) -> None:
    path.write_text("".join(json.dumps({"step": at, "loss": "2.5"}) + "\n" for at in range(10)))


def texts_only_table(path: Path) -> None:
    path.write_text("step,comment\n1,good\n2,bad\n")


def no_header(path: Path) -> None:
    path.write_text("1,2.5\n2,2.4\n")


def prose(path: Path) -> None:
    path.write_text("Once upon a time, there was a run.\nIt went well, mostly.\n" * 50)


def deep_json(path: Path) -> None:
    path.write_text('{"a":' * 200_000 + "1" + "}" * 200_000 + "\n")


def deep_history(path: Path) -> None:
    path.write_text('{"log_history": [' + '{"a":' * 200_000 + "1" + "}" * 200_000 + "]}")


def broken_history(path: Path) -> None:
    path.write_text('{"log_history": [{"step": 1, "loss": 2.0}, {"step": 2, "loss": }, {"step": 3, "loss": 1.0}]}')


def empty_history(path: Path) -> None:
    path.write_text('{"log_history": [], "max_steps": 5}')


def huge_history(path: Path) -> None:
    repeat(path, b'{"log_history": [', b'{"step":1,"loss":1},' * 10_000, 700, b'{"step":1,"loss":1}]}')


def cut_parquet(path: Path) -> None:
    pl.DataFrame({"step": range(1000), "loss": 1.0}).write_parquet(path)
    path.write_bytes(path.read_bytes()[:-20])


def garbled_parquet(path: Path) -> None:
    pl.DataFrame({"step": range(1000), "loss": 1.0}).write_parquet(path)
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * 400 + content[404:])


def garbled_footer(path: Path) -> None:
    pl.DataFrame({"step": range(1000), "loss": 1.0}).write_parquet(path)
    content = path.read_bytes()
    path.write_bytes(content[:-300] + b"\xff" * 292 + content[-8:])


def lying_footer(path: Path) -> None:
    path.write_bytes(b"PAR1" + b"\0" * 100 + b"\xff\xff\xff\x7f" + b"PAR1")


def parquet_of_texts(path: Path) -> None:
    pl.DataFrame({"step": [1, 2], "note": ["a", "b"]}).write_parquet(path)


def zip_file(path: Path) -> None:
    path.write_bytes(b"PK\x03\x04" + b"\0" * 50)


def config(path: Path) -> None:
    path.write_text(json.dumps({"config": {"lr": 0.1}, "summary": {"loss": 1.0}}) + "\n")


LARGE: list[tuple[Callable[[Path], None], str]] = [
    (long_json_line, "line 1: the line is longer than 8 MB"),
    (long_later_line, "line 2: the line is longer than 8 MB"),
    (long_csv_header, "longer than 8 MB"),
    (many_names_in_a_line, "more than 100,000 different metric names"),
    (many_names_over_lines, "more than 100,000 different metric names"),
    (many_columns, "500,001 columns, more than 100,000"),
    (many_names_in_a_long_table, "more than 100,000 different metric names"),
    (many_names_in_parquet, "more than 100,000 different metric names"),
    (gzip_bomb, "more than 200-fold"),
    (gzip_line_bomb, "more than 200-fold"),
    (zstd_bomb, "more than 200-fold"),
    (parquet_bomb, "compressed bomb"),
    (blank, "nothing but blank lines"),
    (deep_json, "line 1: no JSON object"),
    (huge_history, "more than 128 MB"),
    (lying_footer, "its footer claims"),
]
SMALL: list[tuple[Callable[[Path], None], str]] = [
    (binary, "a binary file"),
    (empty, "an empty file"),
    (utf_16, "UTF-16"),
    (latin_1_header, "line 1: not UTF-8"),
    (texts_only, "text value (10)"),
    (texts_only_table, "text cell (2)"),
    (no_header, "column names are numbers"),
    (prose, "no number to watch"),
    (deep_history, "nested too deep"),
    (broken_history, "line 1: broken JSON"),
    (empty_history, "log_history is empty"),
    (cut_parquet, "without its end"),
    (garbled_parquet, "broken Parquet"),
    (garbled_footer, "broken Parquet"),
    (parquet_of_texts, "no column of numbers beside the step (there is step, note)"),
    (zip_file, "a ZIP archive"),
    (config, "no metrics of a run"),
]


def one_clear_line(error: str, path: Path) -> bool:
    return error.startswith(str(path)) and "; " in error and "\n" not in error and len(error) < 600


@pytest.mark.parametrize(("write", "told"), LARGE, ids=[write.__name__ for write, _ in LARGE])
def test_a_large_one_is_refused_in_little_memory(write: Callable[[Path], None], told: str, tmp_path: Path) -> None:
    write(tmp_path / "run.log")
    error = read(tmp_path / "run.log")["error"]
    assert told in error
    assert one_clear_line(error, tmp_path / "run.log")


@pytest.mark.parametrize(("write", "told"), SMALL, ids=[write.__name__ for write, _ in SMALL])
def test_a_small_one_is_refused_with_one_clear_line(write: Callable[[Path], None], told: str, tmp_path: Path) -> None:
    write(tmp_path / "run.log")
    with pytest.raises(BadInput) as caught:
        for source in open_sources(str(tmp_path / "run.log")):
            list(source.pull(None))
    assert told in str(caught.value)
    assert one_clear_line(str(caught.value), tmp_path / "run.log")


def steps_that_are_none(path: Path) -> None:
    path.write_text(
        '{"step": NaN, "loss": 1}\n{"step": "x", "loss": 1}\n{"step": true, "loss": 1}\n{"step": 1e400, "loss": 1}\n'
        '{"step": -3, "loss": 1}\n{"step": "7", "loss": 1}\n'
    )


def a_deep_object_among_others(path: Path) -> None:
    deep = '{"a":' * 30 + "1" + "}" * 30
    path.write_text(f'{{"step": 1, "loss": 2.0, "x": {deep}}}\n{{"step": 2, "loss": 2.0}}\n')


def numbers_beyond_any(path: Path) -> None:
    path.write_text('{"step": 1, "loss": 1' + "0" * 400 + "}\n" + '{"step": 2, "loss": 1' + "0" * 5000 + "}\n")


def a_hundred_megabytes_of_newlines(path: Path) -> None:
    repeat(path, b'{"step": 1, "loss": 1}\n', b"\n" * (1 << 20), 100, b'{"step": 2, "loss": 1}\n')


def a_stray_quote(path: Path) -> None:
    path.write_text('step,loss\n1,2\n2,"3\n' + "".join(f"{at},1\n" for at in range(3, 60)))


def names_that_are_none(path: Path) -> None:
    path.write_text(json.dumps({"step": 1, "loss": 1, "": 2, "x" * 2000: 3, "\ud800": 4}) + "\n")


READ: list[tuple[Callable[[Path], None], int, dict[str, int]]] = [
    (steps_that_are_none, 2, {"step that is no finite number": 4}),
    (a_deep_object_among_others, 2, {"object nested too deep": 1}),
    (numbers_beyond_any, 1, {"line that is no JSON object": 1}),
    (a_hundred_megabytes_of_newlines, 2, {}),
    (a_stray_quote, 58, {"row with a quote that does not end": 1}),
    (names_that_are_none, 2, {"unusable metric name": 2}),
]


@pytest.mark.parametrize(("write", "rows", "notes"), READ, ids=[write.__name__ for write, _, _ in READ])
def test_what_is_good_in_it_is_read_and_the_rest_counted(
    write: Callable[[Path], None], rows: int, notes: dict[str, int], tmp_path: Path
) -> None:
    write(tmp_path / "run.log")
    batches = [batch for source in open_sources(str(tmp_path / "run.log")) for batch in source.pull(None)]
    counted: Counter[str] = Counter()
    for batch in batches:
        counted.update(batch.notes)
    assert (sum(len(batch.rows) for batch in batches), dict(counted)) == (rows, notes)


def test_a_long_run_is_read_in_bounded_memory(tmp_path: Path) -> None:
    line = ", ".join(f'"metric/{at}": 0.{at}1234567' for at in range(20))
    with (tmp_path / "run.jsonl").open("w") as file:
        file.writelines(f'{{"step": {step}, {line}}}\n' for step in range(100_000))
    answer = read(tmp_path / "run.jsonl")
    assert (answer["rows"], answer["notes"]) == (2_000_000, {})


def test_a_wide_parquet_file_of_one_row_group_is_read_in_bounded_memory(tmp_path: Path) -> None:
    steps = pl.DataFrame({"step": range(250_000)})
    frame = steps.with_columns(((pl.col("step") * at).sin()).alias(f"m{at}") for at in range(1, 21))
    frame.write_parquet(tmp_path / "run.parquet", row_group_size=250_000)
    assert read(tmp_path / "run.parquet")["rows"] == 5_000_000
