"""`watchkeeper check`: read runs, judge them as a live watch would have, say what was found."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.errors import BadConfig, BadInput
from flows.incidents.incident import plain
from flows.messages.document import RunDoc

if TYPE_CHECKING:
    from flows.sources.contract import Source
    from flows.sources.grammar import UserPattern
    from flows.stages.pull import Progress

SCHEMA = "watchkeeper.check/1"  # see check.schema.json beside this file
LONG_SECONDS = 2.0  # before a pull is worth counting


def check(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="training logs: files, folders or addresses")],
    as_json: Annotated[bool, typer.Option("--json", help="print the document watchkeeper.check/1")] = False,
    fail_on: Annotated[str, typer.Option(help="lowest severity that gives exit status 1: S0 to S4")] = "S2",
    html: Annotated[Path | None, typer.Option(help="write a page with charts to this file")] = None,
    step_key: Annotated[str | None, typer.Option(help="the column that is the step")] = None,
    plan: Annotated[Path | None, typer.Option(help="a TOML file that says what the run is meant to do")] = None,
    reference: Annotated[
        str | None, typer.Option(help="another run (file or address) to compare with, step by step")
    ] = None,
    ladder: Annotated[
        Path | None, typer.Option(help="what smaller runs predict: a file of `watchkeeper ladder fit --out`")
    ] = None,
    store: Annotated[Path | None, typer.Option(help="keep what was read and found in this DuckDB file")] = None,
    pattern: Annotated[
        list[str] | None,
        typer.Option(help="a regular expression for lines of a console log: (?P<step>..) and a named group a metric"),
    ] = None,
) -> None:
    """Judge training logs and say what changed.

    Exit status: 0 nothing at or above --fail-on, 1 something is, 2 the input or an argument was bad.

    Example: watchkeeper check trainer_state.json --fail-on S3
    """
    limit = severity(fail_on)
    for target in (html, store):
        if target is not None and not target.absolute().parent.is_dir():
            raise BadConfig(f"{target}: its folder does not exist; make it first.")
    if html is not None and html.exists() and not _is_page(html):
        raise BadConfig(f"--html {html}: this file is no HTML page and would be lost; give another name.")
    runs = run_checks(
        paths,
        step_key=step_key,
        store=store,
        html=html,
        patterns=pattern or [],
        plan=plan,
        reference=reference,
        ladder=ladder,
    )
    if as_json:
        print(json.dumps(plain({"schema": SCHEMA, "runs": runs}), allow_nan=False, ensure_ascii=False))  # noqa: T201
    else:
        from flows.verbs.report import show

        for each in runs:
            show(each)
    raise typer.Exit(int(any(worst(each) >= limit for each in runs)))


def _is_page(path: Path) -> bool:
    """Whether a file may be written over: a page that was written before."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(15).lower() == b"<!doctype html>"


def worst(run: RunDoc) -> int:
    """The highest severity that any incident of the run ever had; -1 without incidents."""
    return max((severity(e["severity"]) for i in run["incidents"] for e in i["severity_history"]), default=-1)


def severity(text: str) -> int:
    """0..4 of S0..S4. Raises BadConfig for anything else."""
    if len(text) == 2 and text[0] in "sS" and text[1] in "01234":
        return int(text[1])
    raise BadConfig(f"--fail-on {text!r}: severities are S0, S1, S2, S3 and S4.")


def run_checks(
    paths: list[str],
    *,
    step_key: str | None,
    store: Path | None,
    html: Path | None,
    patterns: Sequence[str] = (),
    plan: Path | None = None,
    reference: str | None = None,
    ladder: Path | None = None,
) -> list[RunDoc]:
    """Pull and judge every run of the paths; an error in one of them stops all (exit status 2 has one meaning)."""
    from flows.config import load_plan
    from flows.playbook import load_playbook
    from flows.sources.catalogue import open_sources
    from flows.sources.grammar import UserPattern
    from flows.sources.roles import role_of
    from flows.stages.against import Against
    from flows.stages.beside import Reference
    from flows.stages.document import run_document
    from flows.stages.judge import judge
    from flows.stages.planned import SOURCE, plan_of, planned_events
    from flows.stages.publish import write_page
    from flows.stages.pull import pull
    from flows.store import open_store

    expected = [] if ladder is None else [_expectations(ladder)]
    section = None if plan is None else load_plan(plan)
    own = [UserPattern(f"--pattern {at}", regex) for at, regex in enumerate(patterns, start=1)]
    sources = [source for path in paths for source in open_sources(path, step_key=step_key, patterns=own)]
    kept = open_store(str(store) if store is not None else ":memory:", clock=time.time)
    other = None if reference is None else _reference(reference, sources, step_key, own)
    if other is not None:
        pull(kept, other, role_of, final=True, epochs=step_key is None)
    out: list[RunDoc] = []
    names: dict[str, str] = {}
    for source in sources:
        found = source.describe()
        if names.setdefault(found.run, found.source) != found.source:
            raise BadConfig(
                f"{found.source}: a run of the name {found.run!r} was read from {names[found.run]} already; "
                "check them one by one."
            )
        with _spinner() as progress:
            pull(kept, source, role_of, final=True, epochs=step_key is None, progress=progress)
            if section is not None:
                kept.keep_events(found.run, SOURCE, list(planned_events(section)))
            beside = other.describe().run if other is not None else found.run
            against = Against(
                None if section is None else plan_of(section),
                None if beside == found.run else Reference(beside),
                expected,
            )
            judge(kept, found.run, load_playbook, clock=time.time, against=against)
        out.append(run_document(kept, found.run))
        if not out[-1]["samples"]:
            raise BadInput(
                f"{found.source}: there is no number to judge in it; check the columns, or name the step by --step-key."
            )
    if html is not None:
        try:
            write_page(kept, out, html, expected)
        except OSError as error:
            raise BadConfig(f"--html {html}: cannot be written ({error.strerror}); give another path.") from error
    return out


def _expectations(path: Path) -> dict[str, Any]:
    """The body of a ladder's expectations. Raises BadInput."""
    from flows.stages.ladder import is_usable

    try:
        body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no JSON"
        raise BadInput(
            f"--ladder {path}: cannot be read ({reason}); `watchkeeper ladder fit --out` writes one."
        ) from None
    if not is_usable(body):
        raise BadInput(
            f"--ladder {path}: these are no expectations of this version; `watchkeeper ladder fit --out` writes them."
        )
    return body


def _reference(
    path: str, sources: "Sequence[Source]", step_key: str | None, patterns: "Sequence[UserPattern]"
) -> "Source":
    """The run to compare with: one of those that are checked, or another one, whose name is then its own."""
    from flows.sources.catalogue import open_sources

    found = open_sources(path, step_key=step_key, patterns=patterns)
    if len(found) != 1:
        names = ", ".join(each.describe().run for each in found[:12])
        raise BadInput(f"--reference {path}: it holds {len(found)} runs ({names}); give the file of one.")
    about = found[0].describe()
    checked = {each.describe().run: each.describe().source for each in sources}
    if checked.get(about.run, about.source) == about.source:
        return found[0]
    return open_sources(path, step_key=step_key, patterns=patterns, run=f"{about.run} (reference)")[0]


@contextmanager
def _spinner() -> "Iterator[Progress]":
    """A spinner on standard error where somebody looks at it; a long pull tells it how many samples there are."""
    if not sys.stderr.isatty():
        yield lambda rows: None
        return
    from rich.console import Console

    begun = time.monotonic()
    with Console(stderr=True).status("reading and judging") as status:

        def show(rows: int) -> None:
            if time.monotonic() - begun > LONG_SECONDS:
                status.update(f"reading and judging: {rows:,} samples so far")

        yield show
