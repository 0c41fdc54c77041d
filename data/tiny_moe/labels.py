"""Says what is true of every recording, from its recipe and from what can be measured in it.

    python data/tiny_moe/labels.py

Writes labels.json (read by the benchmark), and beside each recording a card with a chart. Needs the project itself.
"""

import json
import tomllib
from pathlib import Path
from typing import Any

import polars as pl
from cards import card, chart
from effects import TIMES, Effect, effects, history
from recipes import END, FAULTS, LADDER, Recipe

from flows.sources.roles import role_of

DATA = Path(__file__).resolve().parent.parent
TRUTHS: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).parent / "truths.toml").read_text())


def truths(name: str, recipe: Recipe, found: list[Effect]) -> list[dict[str, Any]]:
    """What happened in a run, in the fields of the benchmark's Truth; nothing for a healthy one."""
    kind = name.rsplit("-", 1)[0]
    if kind not in TRUTHS:
        return []
    told = TRUTHS[kind]
    steps = [int(event["step"]) for event in recipe.events] or [told.get("starts", recipe.onset)]
    last = max(launch.stop for launch in recipe.launches) - 1
    moved = {role_of(each.metric).role for each in found}
    out = []
    for number, onset in enumerate(steps):
        until = steps[number + 1] - 1 if number + 1 < len(steps) else last
        lasts = told.get("lasts", 0)
        seen = [e.visible for e in found if role_of(e.metric).role in told["roles"] and onset <= e.visible <= until]
        out.append(
            {
                "fault": kind,
                "kind": told["kind"],
                "roles": sorted(set(told["roles"]) | moved | {"other"}),
                "onset": onset,
                "visible": min(seen, default=onset),
                # What lasted for a while may be spoken of for as long again.
                "end": min(until, onset + 2 * lasts) if lasts else until,
                "severity": told["severity"],
                "patterns": told["patterns"],
                "benign": not recipe.fault,
            }
        )
    return out


def label(name: str, recipe: Recipe, found: list[Effect]) -> dict[str, Any]:
    """The entry of one recording in labels.json."""
    return {
        "file": f"{name}.parquet",
        "half": "tuning" if recipe.seed % 2 else "held_out",
        "fault": recipe.fault,
        "twin": f"{recipe.twin}.parquet" if recipe.twin else None,
        "benign": not recipe.fault,
        # A step takes 20 ms here: rules in minutes are judged as if it took the 17 s of the hero run.
        "seconds_per_step": 17.0,
        "events": [dict(event) | {"recorded_at_step": 0} for event in recipe.events],
        "truths": truths(name, recipe, found),
    }


def measured(name: str, recipe: Recipe, folder: Path) -> list[Effect]:
    """The effects in a recording; none in a healthy one, where there is nothing to measure against."""
    if not recipe.twin:
        return []
    run = history(folder / f"{name}.parquet")
    same_batches = all(launch.batch == 8 for launch in recipe.launches)
    twin = history(folder / f"{recipe.twin}.parquet") if same_batches else None
    found = effects(run, twin, recipe.onset, int(run["global_step"].max()))  # type: ignore[arg-type]
    return found if recipe.fault in ("slow_down", "") else [each for each in found if each.metric not in TIMES]


def main() -> None:
    """All recordings that are there."""
    for folder, recipes in ((DATA / "faults", FAULTS), (DATA / "ladder", LADDER)):
        runs = []
        for name, recipe in recipes.items():
            if not (folder / f"{name}.parquet").is_file():
                continue
            found = measured(name, recipe, folder)
            runs.append(label(name, recipe, found))
            twin = folder / f"{recipe.twin}.parquet" if recipe.twin else None
            columns = pl.read_parquet_schema(folder / f"{name}.parquet")
            picture = chart(folder / f"{name}.parquet", twin, runs[-1]["truths"], found)
            (folder / f"{name}.png").write_bytes(picture)
            (folder / f"{name}.md").write_text(card(name, recipe, found, runs[-1], TIMES[0] in columns))
        document = {
            "about": "Fields of a truth as in tests/bench/cases.py. Odd seeds are for tuning, even ones are held out.",
            "licence": "Apache-2.0",
            "steps": END,
            "runs": runs,
        }
        (folder / "labels.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
