"""`watchkeeper demo`: the main job on a run that ships with the project."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(help="folder for the store, the chart and the page")] = Path("demo"),
) -> None:
    """Pull a recorded run into a DuckDB file, judge it, show what was found, write chart and page."""
    raise NotImplementedError(out)
