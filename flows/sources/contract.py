"""What every source gives, and the limits that keep a hostile or broken file from hurting the watch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from flows.errors import BadInput
from flows.records import Batch, Description

MAX_BATCH_ROWS = 1_000_000
MAX_METRICS = 100_000  # distinct names of one run; a 48-layer MoE with per-leaf norms has about 4,000
MAX_NAME_CHARS = 1_000
MAX_LINE_BYTES = 8 << 20  # parsed JSON takes up to 25 times its text, and a pass must stay below 500 MB
MAX_DOCUMENT_BYTES = 128 << 20  # a JSON document has to be held whole
SYSTEM = "system/"  # begins the names of a machine's metrics: without a step, they stand at the last one before them
ROW_NUMBER = "row number"  # the step key of a source that has no step column
NO_STEP_NOTE = "no step column: the row number is the step"


class Source(Protocol):
    """A run that can be read from its beginning or from where an earlier pull stopped.

    `pull` yields rows (SAMPLE_SCHEMA) in the order in which the run wrote them, at most about MAX_BATCH_ROWS a batch,
    and never drops, reorders, fills or numbers attempts. `cursor` is opaque JSON text, None for the beginning; one
    that no longer fits the source (a replaced or truncated file) makes the first batch say `restart` and begin anew.
    Raises BadInput where the source cannot be read as a run, SourceUnavailable where it may be readable later.
    """

    def describe(self) -> Description: ...

    def pull(self, cursor: str | None) -> Iterator[Batch]: ...


def refuse(path: Path | str, what: str, mend: str, line: int | None = None) -> BadInput:
    """One line for the user: where, what is wrong, how to mend it."""
    place = f"{path}: line {line}" if line is not None else f"{path}"
    return BadInput(" ".join(f"{place}: {what}; {mend}".split()))
