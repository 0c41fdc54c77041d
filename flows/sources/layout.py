"""What the header of a table says: which column is the step, the time, a metric; wide, long or a W&B web export."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from flows.sources.contract import ROW_NUMBER
from flows.sources.stepkey import choose_step_key
from flows.sources.timestamps import TIME_KEYS

NAME_COLUMNS = ("name", "metric", "key", "tag", "variable")
_BOUND = re.compile(r"__(MIN|MAX)$")


@dataclass(frozen=True)
class Layout:
    """Positions of the columns. Wide: `metrics` are (position, name). Long: `name` and `value` are positions."""

    step: int | None
    step_key: str
    time: int | None
    metrics: tuple[tuple[int, str], ...] = ()
    name: int | None = None
    value: int | None = None


def layouts_of(header: Sequence[str], wanted: str | None = None) -> dict[str, Layout]:
    """Layout of each run in the table, by run name; "" where the table does not name its run."""
    export = _export(header)
    if export:
        return export
    key = choose_step_key(header, wanted)
    step = None if key is None else header.index(key)
    lower = [name.strip().lower() for name in header]
    time = next((lower.index(name) for name in TIME_KEYS if name in lower), None)
    name = next((lower.index(column) for column in NAME_COLUMNS if column in lower), None)
    value = lower.index("value") if "value" in lower else None
    if name is not None and value is not None:
        return {"": Layout(step, key or ROW_NUMBER, time, name=name, value=value)}
    taken = {step}
    metrics = tuple((at, column) for at, column in enumerate(_unique(header)) if at not in taken and column)
    return {"": Layout(step, key or ROW_NUMBER, time, metrics)}


def _export(header: Sequence[str]) -> dict[str, Layout]:
    """A chart downloaded from the W&B site: `Step`, then `run - metric` with its `__MIN` and `__MAX` a run."""
    rest = [name for name in header[1:] if not _BOUND.search(name)]
    bounds = {name for name in header if _BOUND.search(name)}
    if not rest or not bounds or not all(" - " in name for name in header[1:]):
        return {}
    columns: dict[str, list[tuple[int, str]]] = {}
    for at, name in enumerate(header):
        run, dash, metric = name.rpartition(" - ")
        if at and dash and name not in bounds and metric != "_step":
            columns.setdefault(run, []).append((at, metric))
    return {run: Layout(0, header[0], None, tuple(metrics)) for run, metrics in columns.items()}


def _unique(header: Sequence[str]) -> list[str]:
    """Names without blanks around them; the second of two equal ones gets a number."""
    seen: dict[str, int] = {}
    names = []
    for raw in header:
        name = raw.strip()
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 or not name else f"{name} ({seen[name]})")
    return names
