"""Zeros where a machine died before the disk had what was written: the file stays a log, and only half a line is lost."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.errors import BadInput
from flows.sources.catalogue import open_sources

LINES: dict[str, Callable[[int], str]] = {
    "jsonl": lambda at: json.dumps({"step": at, "loss": 2.5 + at}) + "\n",
    "csv": lambda at: f"{at},{2.5 + at}\n",
    "text/key=value": lambda at: f"step={at} loss={2.5 + at}\n",
    "text/llm.c": lambda at: f"s:{at} tel:{2.5 + at}\n",
    "mllog": lambda at: f":::MLLOG {json.dumps({'key': 'loss', 'value': 2.5 + at, 'metadata': {'step_num': at}})}\n",
}


@pytest.mark.parametrize("size", [8, 4_096, 2_000_000])
@pytest.mark.parametrize("kind", LINES)
def test_a_hole_costs_the_line_it_cut(kind: str, size: int, tmp_path: Path) -> None:
    line, path = LINES[kind], tmp_path / "run.log"
    before = ("step,loss\n" if kind == "csv" else "") + "".join(map(line, range(20)))
    path.write_bytes(before.encode() + line(20)[:-3].encode())
    (source,) = open_sources(str(path))
    first = list(source.pull(None))
    path.write_bytes(path.read_bytes() + bytes(size) + "".join(map(line, range(15, 40))).encode())
    (source,) = open_sources(str(path))
    assert source.describe().format == kind
    later = list(source.pull(first[-1].cursor))
    assert not any(batch.restart for batch in later)
    rows = [row for batch in [*first, *later] for row in batch.rows.select("step", "value").rows()]
    assert rows == [(float(at), 2.5 + at) for at in [*range(20), *range(15, 40)]]


def test_zeros_between_the_bytes_are_no_hole(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_bytes("step,loss\n1,2\n".encode("utf-16-le"))
    with pytest.raises(BadInput, match="a binary file"):
        open_sources(str(tmp_path / "run.log"))
