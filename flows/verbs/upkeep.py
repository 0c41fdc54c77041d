"""`watchkeeper upkeep`: old samples thinned by rule, and the file made smaller."""

import time
from pathlib import Path
from typing import Annotated

import typer

from flows.config import FILE, load_config
from flows.verbs.place import store_path
from flows.verbs.watch import ConfigOption


def upkeep(
    compact: Annotated[
        bool, typer.Option(help="write the file anew without its holes; the watch waits meanwhile")
    ] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be thinned, and change nothing")] = False,
    store: Annotated[Path | None, typer.Option(envvar="WATCHKEEPER_STORE", help="the DuckDB file")] = None,
    config: ConfigOption = None,
) -> None:
    """Thin old samples by the retention of the configuration, then give the free room of the file back.

    Incidents and what surrounds them are never thinned. Killed at any moment nothing is lost: run it again.

    Example: watchkeeper upkeep --dry-run
    """
    from flows.stages.upkeep import rule_of, thin
    from flows.store import open_store

    loaded = load_config(config) if config is not None or Path(FILE).is_file() else None
    path = Path(loaded.store.url) if loaded is not None and store is None else store_path(store)
    kept = open_store(str(path), clock=time.time, must_exist=True)
    section = loaded.store.retention if loaded is not None else None
    if section is None:
        print("no [store.retention] in the configuration: nothing is thinned")  # noqa: T201
    elif dry_run:
        for run in kept.runs()["run"]:
            for part in kept.thinnable(run, rule_of(section, time.time())):
                ends = f"from step {part.first:,.15g} to before {part.last:,.15g}"
                print(f"{run}: attempt {part.attempt} {ends}: one sample of {section.keep_one_of} and the extremes")  # noqa: T201
    else:
        print(f"{thin(kept, section, time.time):,} samples thinned")  # noqa: T201
    if compact and not dry_run:
        before, after = kept.compact()
        print(f"{path}: {before / 1e6:,.1f} MB, now {after / 1e6:,.1f} MB")  # noqa: T201
