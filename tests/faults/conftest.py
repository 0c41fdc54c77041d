from collections.abc import Callable

import polars as pl
import pytest

from flows.records import STORED_SCHEMA


@pytest.fixture(scope="session")
def rows() -> Callable[..., pl.DataFrame]:
    """Rows (step, name, value) in the shape that append takes."""
    return lambda *given: pl.DataFrame(
        [(float(step), None, name, value, 1, False) for step, name, value in given], schema=STORED_SCHEMA, orient="row"
    )
