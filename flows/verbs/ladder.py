"""`watchkeeper ladder`: what smaller runs say of a larger one, put on record before the steps that it judges."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.errors import BadConfig
from flows.verbs.people import StoreOption, WhoOption, who_is
from flows.verbs.place import store_path

if TYPE_CHECKING:
    from detectors.ladder_rungs import Rung
    from flows.config import Config
    from flows.sections import RunSection
    from flows.stages.ladder import Prediction
    from flows.store import Store

app = typer.Typer(
    no_args_is_help=True, help="What smaller runs predict: fit it, register a prediction, show it beside the result."
)
RunOption = Annotated[str | None, typer.Option(help="only this run")]


@app.command("fit")
def fit_ladder(
    run: RunOption = None,
    config: Annotated[Path | None, typer.Option(envvar="WATCHKEEPER_CONFIG", help="the configuration")] = None,
    out: Annotated[
        Path | None, typer.Option(help="write the expectations to this JSON file, for `check --ladder`")
    ] = None,
) -> None:
    """Fit the rungs of the configuration and put what follows for each run with [run.ladder] on record.

    Example: watchkeeper ladder fit --run big-moe
    """
    from flows.config import load_config
    from flows.stages.ladder import LADDER, fit
    from flows.store import open_store

    house = load_config(config)
    wanted = [each for each in house.run if each.ladder is not None and run in (None, each.label)]
    if not wanted or (out is not None and len(wanted) != 1):
        names = ", ".join(each.label for each in house.run if each.ladder is not None) or "none"
        raise BadConfig(f"{house.path}: one run with a table [run.ladder] is needed here; there are: {names}.")
    kept = open_store(house.store.url, clock=time.time)
    for section in wanted:
        assert section.ladder is not None
        body = fit(_rungs(house, section), section.ladder, house.ladder, section.plan, section.label)
        for name in _names(kept, section):
            version = kept.expect(name, LADDER, body)
            print(f"{name}: {len(body['metrics'])} metrics expected, version {version}")  # noqa: T201
        for metric, why in body["not_expected"].items():
            print(f"  not expected: {metric}: {why}")  # noqa: T201
        if out is not None:
            out.write_text(json.dumps({**body, "from_step": None}, sort_keys=True), encoding="utf-8")


def _names(store: "Store", section: "RunSection") -> list[str]:
    """The runs of an entry as the store knows them; before its first pull the name of the entry."""
    known = [row["run"] for row in store.runs().iter_rows(named=True) if row["source"] == section.source]
    return known or [section.label]


def _rungs(config: "Config", section: "RunSection") -> "list[Rung]":
    """Read every rung into memory."""
    from flows.sources.catalogue import open_sources
    from flows.sources.roles import role_of
    from flows.stages.ladder import read_rung
    from flows.stages.pull import pull
    from flows.store import open_store

    assert section.ladder is not None
    overrides = config.roles_of(section)
    out = []
    for each in config.ladder.rung:
        found = open_sources(each.source, run=each.name)
        if len(found) != 1:
            raise BadConfig(f"{config.path}: rung {each.name} holds {len(found)} runs; give the file of one.")
        memory = open_store(":memory:", clock=time.time)
        pull(memory, found[0], lambda name: role_of(name, overrides), final=True)
        out.append(read_rung(memory, found[0].describe().run, each, config.ladder, section.ladder))
    return out


@app.command("predict")
def predict(
    metric: Annotated[str, typer.Argument(help="the metric that is predicted")],
    run: Annotated[str, typer.Option(help="the run")],
    step: Annotated[float, typer.Option(help="the step for which it is predicted")],
    value: Annotated[float, typer.Option(help="the value")],
    low: Annotated[float, typer.Option(help="the lower end of its 90 % band")],
    high: Annotated[float, typer.Option(help="the upper end of its 90 % band")],
    note: Annotated[str, typer.Option(help="how it was found")] = "",
    who: WhoOption = None,
    store: StoreOption = None,
) -> None:
    """Register a prediction of your own: dated now, never changed, shown beside what came of it.

    Example: watchkeeper ladder predict eval/loss --run big-moe --step 390000 --value 1.93 --low 1.91 --high 1.95
    """
    from flows.stages.ladder import PREDICTION
    from flows.store import open_store

    if not low <= value <= high:
        raise BadConfig(f"--value {value:g} does not lie between --low {low:g} and --high {high:g}.")
    kept = open_store(str(store_path(store)), clock=time.time)
    body = {"metric": metric, "step": step, "value": value, "low": low, "high": high, "note": note, "who": who_is(who)}
    version = kept.expect(run, PREDICTION, body)
    print(f"{run}: {metric} at step {step:,.15g} predicted, version {version}")  # noqa: T201


@app.command("show")
def show(
    run: RunOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object a prediction")] = False,
    store: StoreOption = None,
) -> None:
    """What was expected, since when, from which rungs, and predictions beside results.

    Example: watchkeeper ladder show --run big-moe
    """
    from flows.stages.ladder import predictions
    from flows.store import open_store

    kept = open_store(str(store_path(store)), clock=time.time, must_exist=True)
    names = [run] if run is not None else sorted({each.run for each in kept.expectations()})
    for name in names:
        found = predictions(kept, name)
        if as_json:
            for each in found:
                print(json.dumps({"run": name, **vars(each), "inside": each.inside}))  # noqa: T201
            continue
        for line in [*_on_record(kept, name), *(_line(each) for each in found)]:
            print(f"{name}: {line}")  # noqa: T201


def _on_record(store: "Store", run: str) -> list[str]:
    """One line a ladder: when, from which rungs, from which step on it judges, and what it refused."""
    out = []
    for each in store.expectations(run):
        if "rungs" not in each.body:
            continue
        rungs = [r["name"] + (f" (ended at {r['ended']:.0%})" if r["censored"] else "") for r in each.body["rungs"]]
        begin = each.body.get("from_step")
        since = "every step" if begin is None else f"steps behind {begin:,.15g}"
        out.append(f"ladder {each.version} of {_day(each.recorded_at)} from {', '.join(rungs)} judges {since}")
        out += [
            f"  refused: {why}" for reasons in each.body["refused"].values() for why in sorted(set(reasons.values()))
        ]
    return out


def _line(each: "Prediction") -> str:
    said = f"{each.metric} at step {each.step:,.6g}: {each.value:.4g} [{each.low:.4g}, {each.high:.4g}]"
    result = (
        "no result yet"
        if each.result is None
        else f"came to {each.result:.4g}, {'inside' if each.inside else 'OUTSIDE'}"
    )
    return f"{said}, {each.source} {each.version} of {_day(each.recorded_at)}: {result}"


def _day(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"
