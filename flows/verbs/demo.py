"""`watchkeeper demo`: the main job on a run that ships with the project."""

import time
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from flows.errors import BadConfig

RUN = "lr_hot_resume"


def demo(
    out: Annotated[Path, typer.Option(help="folder for the store, the charts and the page")] = Path("demo"),
    run: Annotated[str, typer.Option(help="which recorded run")] = RUN,
) -> None:
    """Pull a recorded run into a DuckDB file, judge it, show what was found, write chart and page.

    Example: watchkeeper demo --run router_collapse
    """
    from rich.console import Console

    from flows.playbook import load_playbook
    from flows.sources.catalogue import open_sources
    from flows.sources.roles import role_of
    from flows.stages.judge import judge
    from flows.stages.publish import publish
    from flows.stages.pull import pull
    from flows.store import open_store
    from flows.verbs.report import show

    log = recorded(run)
    out.mkdir(parents=True, exist_ok=True)
    database = out / "watchkeeper.duckdb"
    store = open_store(database, clock=time.time)
    for source in open_sources(str(log)):
        pull(store, source, role_of, final=True)
    judge(store, run, load_playbook(), clock=time.time)
    published = publish(store, run, out)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(
        f"A recorded training of a tiny mixture of experts ({log.name}), pulled, stored and judged as a live watch would.\n"
    )
    show(published.document)
    console.print(f"\n  page   {published.page}")
    for chart in published.charts.values():
        console.print(f"  chart  {chart}")
    console.print(f"  store  {database}")
    console.print("\nAsk it something:")
    for query in QUERIES:
        console.print(f'  watchkeeper sql --store {database} "{query}"')
    console.print("\nThen your own log:\n  watchkeeper check PATH")


QUERIES = (
    "SELECT severity, onset_step, title FROM incidents ORDER BY severity DESC",
    "SELECT step, value FROM history WHERE name = 'optim/learning_rate' AND step BETWEEN 1695 AND 1705",
    "SELECT attempt, first_step, valid_until, reason FROM segments",
)


def recorded(run: str) -> Path:
    """The Parquet file of a run that ships: in the wheel under flows/recorded, in a checkout under data/runs."""
    for folder in (Path(str(files("flows"))) / "recorded", Path(str(files("flows"))).parent / "data" / "runs"):
        if (folder / f"{run}.parquet").is_file():
            return folder / f"{run}.parquet"
        known = sorted(path.stem for path in folder.glob("*.parquet"))
        if known:
            raise BadConfig(f"--run {run!r}: recorded runs are {', '.join(known)}.")
    raise BadConfig("the recorded runs are missing from this installation; reinstall watchkeeper.")
