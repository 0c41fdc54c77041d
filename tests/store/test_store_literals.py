import math
import subprocess
import sys
from datetime import datetime

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.store.literals import literal, written_out

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**62), 2**62), st.floats(), st.text(), st.text("'\"$?-; \\a\0"),
    st.datetimes(datetime(1, 1, 1), datetime(9999, 1, 1)),
)  # fmt: skip
PARSER = duckdb.connect()


@given(value=VALUES)
def test_every_value_comes_back_as_it_was(value):
    (row,) = PARSER.execute(written_out("SELECT $x AS \"$x\", '$x''?' AS y -- $x ?", {"x": value})).fetchall()
    assert row[1] == "$x'?"
    assert row[0] == value or (isinstance(value, float) and math.isnan(value) and math.isnan(row[0]))
    assert type(row[0]) is type(value)


def test_places_and_values_must_be_as_many():
    assert written_out("a = ? AND b = ?", [1, "x"]) == "a = (1) AND b = 'x'"
    with pytest.raises(ValueError, match="more values than places"):
        written_out("a = ?", [1, 2])
    with pytest.raises(KeyError):
        written_out("a = $b", {"c": 1})


def test_what_no_column_holds_is_refused():
    with pytest.raises(TypeError, match="no literal for a set"):
        literal({1})


def test_a_list_of_names_is_written_out():
    assert literal(["a'b", "c"]) == "['a''b', 'c']"


def test_a_store_in_use_loads_no_pandas():
    code = (
        "import sys\nfrom flows.store import open_store\n"
        "store = open_store(':memory:', clock=lambda: 0.0)\n"
        "store.runs()\nstore.incidents('x')\nstore.query('FROM runs')\n"
        "print('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
