"""`watchkeeper report`: the operating record as a static site that may be published."""

import time
from pathlib import Path
from typing import Annotated

import typer

from flows.config import FILE, Config, load_config
from flows.errors import BadConfig
from flows.sections import RecordSection
from flows.verbs.place import store_path
from flows.verbs.watch import ConfigOption


def report(
    out: Annotated[
        Path | None, typer.Option(help="the folder of the site (record.out of the configuration, else ./record)")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="list what would leave the house, and write nothing")
    ] = False,
    run: Annotated[list[str] | None, typer.Option(help="only these runs (shell patterns)")] = None,
    store: Annotated[Path | None, typer.Option(envvar="WATCHKEEPER_STORE", help="the DuckDB file")] = None,
    config: ConfigOption = None,
) -> None:
    """Write the operating record: health checks, incidents with charts, what happened, JSON and samples.

    Only what [record] of the configuration allows is published; people, notes, sources and the configuration stay
    private unless it says otherwise. Pages that have not changed are left as they are.

    Example: watchkeeper report --out record
    """
    from flows.stages.preview import preview
    from flows.stages.record import write_record
    from flows.store import open_store
    from flows.wiring import terms_of

    section, path = _section(config, store)
    if run:
        section = section.model_copy(update={"runs": tuple(run)})
    kept = open_store(str(path), clock=time.time, must_exist=True)
    if dry_run:
        print("\n".join(preview(kept, terms_of(section))))  # noqa: T201
        return
    folder = out or section.out or Path("record")
    try:
        done = write_record(kept, folder, terms_of(section))
    except OSError as error:
        raise BadConfig(f"--out {folder}: cannot be written ({error.strerror}); give another folder.") from error
    removed = f", {len(done.removed)} removed" if done.removed else ""
    print(f"{folder / 'index.html'}: {len(done.written)} files written, {len(done.kept)} unchanged{removed}")  # noqa: T201


def _section(config: Path | None, store: Path | None) -> tuple[RecordSection, Path]:
    """The section and the store; without a configuration the defaults publish by the allow-list alone."""
    if config is None and not Path(FILE).is_file():
        return RecordSection(), store_path(store)
    loaded: Config = load_config(config)
    return loaded.record, store if store is not None else Path(loaded.store.url)
