"""Which source reads a target: an address by its scheme, a folder or file by its content, never by its name."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from flows.errors import BadInput
from flows.sources.addresses import open_address, scheme_of
from flows.sources.contract import Source, refuse
from flows.sources.files import KNOWN, Reading, open_file_run
from flows.sources.grammar import UserPattern
from flows.sources.tfrecords import is_event_file
from flows.sources.trainer_state import newest, open_history


def open_sources(
    target: str,
    *,
    step_key: str | None = None,
    run: str | None = None,
    patterns: Sequence[UserPattern] = (),
    cache: Path | None = None,
) -> list[Source]:
    """The runs of a file, folder or address, in its order. `run` overrules their name (`run/name` for one of several).

    `patterns` read console logs that no pattern of ours knows, or read them otherwise. Copies of remote files are kept
    under `cache`; without it they are gone when the process ends.

    Raises BadInput, with one line that says what is wrong and how to mend it, where there is nothing to watch.
    """
    if scheme_of(target):
        as_file = partial(open_sources, patterns=patterns)
        return open_address(target, as_file, step_key=step_key, run=run, cache=cache)
    path, reading = Path(target), Reading(step_key, run, patterns)
    try:
        found = path.is_dir(), path.is_file(), path.exists()
    except (OSError, ValueError):
        raise refuse(target[:200], "no usable path", "name a file or folder") from None
    if not found[2]:
        raise refuse(target, "no such file or folder", "check the path (relative to the current folder)")
    if found[0]:
        return _in_folder(path, reading)
    if not found[1]:
        raise refuse(target, "no regular file", "write the log to a file and name that")
    return open_file_run(path, target, reading)


def _in_folder(folder: Path, reading: Reading) -> list[Source]:
    """The folder of a tracker's run, or one with a single log that can be read."""
    state = newest(folder)
    name = reading.run or folder.resolve().name
    if state is not None:
        return [open_history(folder, name, str(folder), reading.step_key)]
    if runs := _of_tracker(folder, reading):
        return runs
    found, why = _logs_in(folder, name, reading)
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        names = ", ".join(path.name for path in list(found)[:12])
        raise refuse(folder, f"a folder with {len(found)} logs", f"name one of them: {names}")
    if below := _below(folder, reading):
        return below
    seen = "; ".join(why[:3]) or "no files"
    raise refuse(folder, f"no log that can be read ({seen})", f"put one of these there: {KNOWN}")


def _of_tracker(folder: Path, reading: Reading) -> list[Source]:
    """The runs of a folder that W&B or MLflow made."""
    if any(folder.glob("*.wandb")) or any(folder.glob("*run-*/*.wandb")):
        from flows.sources.wandb_file import open_wandb

        return list(open_wandb(folder, reading.run, str(folder), reading.step_key))
    from flows.sources.mlflow_files import is_run_folder, open_run_folder

    return [open_run_folder(folder, reading.run)] if is_run_folder(folder) else []


def _logs_in(folder: Path, name: str, reading: Reading) -> tuple[dict[Path, list[Source]], list[str]]:
    """The logs among the files of a folder, and why the others are none. Event files are one log together."""
    from flows.sources.lightning import is_metrics_file

    found: dict[Path, list[Source]] = {}
    why: list[str] = []
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    for file in files[:100]:
        try:
            if not is_event_file(file):
                mine = reading.called(reading.run or (name if is_metrics_file(file) else None))
                found[file] = open_file_run(file, str(file), mine)
            elif not any(map(is_event_file, found)):
                from flows.sources.tensorboard import open_event_folder

                found[file] = list(open_event_folder(folder, reading.run, str(folder), reading.step_key))
        except BadInput as error:
            why.append(f"{file.name}: {str(error).removeprefix(f'{file}: ')}")
    return found, why


def _below(folder: Path, reading: Reading) -> list[Source]:
    """Runs in the folders of a folder that holds none itself, as trackers lay them out."""
    from flows.sources.lightning import metrics_files
    from flows.sources.tensorboard import open_event_folder
    from flows.sources.wandb_file import open_wandb

    if runs := open_wandb(folder / "wandb", reading.run, str(folder), reading.step_key):
        return list(runs)
    if events := open_event_folder(folder, reading.run, str(folder), reading.step_key):
        return list(events)
    names = {path: path.parent.name for path in metrics_files(folder)}
    if reading.run is not None:
        names = {path: f"{reading.run}/{name}" if len(names) > 1 else reading.run for path, name in names.items()}
    return [source for path, name in names.items() for source in open_file_run(path, str(path), reading.called(name))]
