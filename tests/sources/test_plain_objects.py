"""Lines of JSON that are read in columns give what line by line gives, to the bit."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.errors import BadInput
from flows.sources.catalogue import open_sources

ODD = [
    "null", "true", "NaN", "-Infinity", "1e400", "1e-400", "1E+05", "-0", "-0.0", "-0e0", "01", "1.", ".5", "+1", "1e5",
    "123456789012345678901234567890", "9007199254740993", '"1.5"', "[1]", '{"a": 1}', "1 2", "", "18446744073709551616",
]  # fmt: skip
NUMBERS = st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.integers(-(10**20), 10**20).map(str)
VALUES = NUMBERS | st.sampled_from(ODD)


def read(path: Path) -> tuple[str, dict[str, int], str | None]:
    try:
        (source,) = open_sources(str(path))
    except BadInput as error:  # no line of it is an object
        return str(error), {}, None
    batches = list(source.pull(None))
    notes = {what: count for batch in batches for what, count in batch.notes.items()}
    return repr([row for batch in batches for row in batch.rows.iter_rows()]), notes, batches[-1].cursor


def both_ways(path: Path, lines: list[str], end: str = "\n") -> None:
    path.write_bytes("".join(line + end for line in lines).encode())
    with pytest.MonkeyPatch.context() as patch:
        found = read(path)
        patch.setattr("flows.sources.plain_objects._FEWEST", 1 << 60)
        assert found == read(path)


@settings(max_examples=100, deadline=None)
@given(
    column=st.lists(VALUES, min_size=1, max_size=3),
    end=st.sampled_from(["\n", "\r\n", " \n"]),
    time=st.sampled_from(["", '"timestamp": 1750000000.125, ', '"_timestamp": 1750000000123, ', '"time": 12.5, ']),
    key=st.sampled_from(["loss", "layer_1/norm", "e-1", "été", "a\\/b", 'a\\"b', "step 2"]),
)
def test_any_value_is_read_alike(column: list[str], end: str, time: str, key: str, tmp_path_factory: Any) -> None:
    values = [column[at % len(column)] for at in range(40)]
    lines = [f'{{"step": {at}, {time}"x": 0.25, "{key}": {value}}}' for at, value in enumerate(values)]
    both_ways(tmp_path_factory.mktemp("objects") / "run.jsonl", lines, end)


@pytest.mark.parametrize(
    "odd",
    [
        '{"step": 5, "m2": 1.0, "m1": 2.0}', '{"step": 5, "m1": 1.0, "m1": 2.0}', '{"step": 5, "m1": 1.0}', "", "  ", "text",
        '{"step": 5, "m1": 1.0, "m2": 2.0', '{"step": 1e300, "m1": 1.0, "m2": 2.0}', '{"step": null, "m1": 1.0, "m2": 2.0}',
        '{"step": 5, "m1": 1.0, "m2": 2.0}{"step": 5, "m1": 1.0, "m2": 2.0}', '{"m1": 1.0, "step": 5, "m2": 2.0}',
        '{"step": 5, "m1": 1.0, "m2": 2.0, "m3": 3.0}', '{"step": 5, "m1": 1.0, "m3": 2.0}', '{"step": 5, "m 1": 1, "m2": 2}',
        '{"step": 5, "m1": 1.0, "m2": 2.0},', '{"step": 5, "m1": 1.0 "m2": 2.0}', '{"step": 5, "m1": "1", "m2": 2.0}',
    ],
)  # fmt: skip
def test_one_odd_line_is_read_alike(odd: str, tmp_path: Path) -> None:
    lines = [f'{{"step": {at}, "m1": {at / 7}, "m2": {at / 3}}}' for at in range(40)]
    both_ways(tmp_path / "run.jsonl", [*lines[:20], odd, *lines[20:]])


def test_plain_lines_are_not_read_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps({"step": at, "a1": at / 7, "a2": at}) + "\n" for at in range(40)))
    (source,) = open_sources(str(path))
    monkeypatch.setattr("flows.sources.jsonl._add_object", None)
    (batch,) = source.pull(None)
    assert batch.rows["name"].to_list() == ["a1", "a2"] * 40
    assert batch.rows["value"].to_list() == [value for at in range(40) for value in (at / 7, at)]
    assert batch.rows["step"].to_list() == [float(at) for at in range(40) for _ in range(2)]
