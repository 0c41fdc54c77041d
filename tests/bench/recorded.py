"""The recordings below data/ as cases."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cases import Case, Truth
from split import half_of_recording

DATA = Path(__file__).parents[2] / "data"


def truth_of(fields: Mapping[str, Any]) -> Truth:
    """A Truth from a label: lists become what the dataclass asks for. Raises TypeError for an unknown field."""
    lists = {"roles": frozenset(fields["roles"]), "patterns": tuple(fields.get("patterns", ()))}
    return Truth(**{**fields, **lists})


def recorded_cases(data: Path = DATA) -> list[Case]:
    """data/runs with the truths of first_runs.toml, then what labels.json lists in data/faults and data/ladder."""
    first = tomllib.loads((Path(__file__).parent / "first_runs.toml").read_text(encoding="utf-8"))
    out = [_case(data / "runs" / file, data, label) for file, label in sorted(first.items())]
    for labels in (data / folder / "labels.json" for folder in ("faults", "ladder")):
        if labels.exists():
            found = json.loads(labels.read_text(encoding="utf-8"))
            runs = found if isinstance(found, list) else found["runs"]
            out += [
                _case(_find(data, label["file"]), data, label) for label in sorted(runs, key=lambda r: str(r["file"]))
            ]
    return out


def _find(data: Path, file: str) -> Path:
    places = [folder / file for folder in (data / "faults", data / "ladder", data)]
    return next((path for path in places if path.exists()), places[0]).resolve()


def _case(log: Path, data: Path, label: Mapping[str, Any]) -> Case:
    file = log.relative_to(data.resolve()).as_posix()
    half = half_of_recording(file, label.get("seed"), label.get("half"))
    truths = tuple(truth_of(each) for each in label["truths"])
    name = file.removesuffix(log.suffix)
    return Case(name, "recorded", half, log, truths, tuple(label.get("events", ())), label.get("seconds_per_step"))
