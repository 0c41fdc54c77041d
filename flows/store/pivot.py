"""One column a metric: the SELECT that turns long samples into a wide table."""

from collections.abc import Sequence

from flows.store.literals import literal


def wide(run: str, names: Sequence[str], first: float | None = None, last: float | None = None) -> str:
    """SQL whose answer has `step` and one column for each of `names`, of the run as it stands, by step.

    A step at which a metric was not logged is NULL. DuckDB's own PIVOT would need the names anyway, and reads less well.
    """
    columns = ",\n       ".join(
        ["step", *(f"any_value(value) FILTER (name = {literal(name)}) AS {quoted(name)}" for name in names)]
    )
    where = [f"run = {literal(run)}", f"name IN ({', '.join(map(literal, names))})"]
    where += [f"step >= {literal(float(first))}"] if first is not None else []
    where += [f"step <= {literal(float(last))}"] if last is not None else []
    return f"SELECT {columns}\nFROM history\nWHERE {' AND '.join(where)}\nGROUP BY step\nORDER BY step"


def quoted(name: str) -> str:
    """A name as an identifier of SQL."""
    return '"' + name.replace('"', '""').replace("\0", "") + '"'
