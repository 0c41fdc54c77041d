"""One fault, one incident: how many incidents a fault makes, which cause stands first, and whether the title is true.

    python tests/bench/one_incident.py [--placements 2] [--family injected] [--out FILE]

Every case is judged as in detection.py. An incident answers a truth when a finding of its roles was detected in the
truth's window and it is loud enough for it (as in match.py). A fault counts as split when several incidents answer it, or
when another one of S2 or more begins in its window that the same run does not have without the fault. Faults that nothing
answers are counted apart: the lowest rungs are below the noise. Titles are held against findings and samples (titles.py).
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / "scenarios"), str(Path(__file__).parents[2])]

import plan as plans
import titles
from cases import INVESTIGATE, Case, Truth
from inject import FAULTS
from match import EARLY
from plan import Plan
from systems.watchkeeper import judged

from flows.messages.document import IncidentDoc, severity_number
from flows.stages.document import incidents_of
from flows.store import Store


@dataclass(frozen=True)
class Outcome:
    """What became of one fault: `count` incidents answer it (0: missed); `right` is None where no cause was asked for."""

    case: str
    family: str
    half: str
    fault: str
    amplitude: float | None
    top_rung: bool
    count: int
    right: bool | None = None
    told: tuple[str, ...] = ()  # severity, onset, pattern and title of each
    wrong_titles: tuple[str, ...] = field(default=())


def outcomes(plan: Plan, folder: Path) -> list[Outcome]:
    """Judge one case; an outcome for each of its real truths."""
    case = plans.make(plan, folder)
    store, run = judged(case)
    incidents = incidents_of(store, run)
    samples = _samples(store, run, incidents)
    own = _without_fault(plan) if plan.family == "injected" else frozenset()
    homes = {truth: _homes(truth, incidents, own) for truth in case.truths}
    out = []
    for truth in (t for t in case.truths if not t.benign):
        mine = homes[truth]
        ids = {i["id"] for part in homes.values() for i in part}
        extra = [i for i in incidents if mine and i["id"] not in ids and _stray(i, truth) and _key(i) not in own]
        first = min(mine, key=lambda i: (-_worst(i), i["detected_step"]), default=None)
        causes = {cause for other, those in homes.items() if first in those for cause in other.patterns}
        right = first["pattern"] in causes if first is not None and truth.patterns else None
        every = [*mine, *extra]
        wrong = tuple(f"{i['title']}: {fault}" for i in every for fault in titles.faults(i, samples))
        top = truth.amplitude is None or truth.fault not in FAULTS or truth.amplitude == FAULTS[truth.fault].ladder[-1]
        told = tuple(f"{i['severity']}/{_worst(i)} {i['onset_step']:g} {i['pattern']} | {i['title']}" for i in every)
        out.append(
            Outcome(
                case.name, case.family, case.half, truth.fault, truth.amplitude, top, len(every), right, told, wrong
            )
        )
    return out


def _homes(truth: Truth, incidents: Sequence[IncidentDoc], own: frozenset[tuple[str, str, float]]) -> list[IncidentDoc]:
    """The incidents that tell of a truth. Where one begins with it, those that were there before it, or that the run has
    without the fault, are not of its making."""
    every = [i for i in incidents if answers(i, truth)]
    mine = [i for i in every if _key(i) not in own and i["onset_step"] >= truth.onset - EARLY]
    return mine or every


def answers(incident: IncidentDoc, truth: Truth) -> bool:
    """Does the incident tell of this truth, loudly enough for it?"""
    least = min(truth.severity, INVESTIGATE)
    if _worst(incident) < least:
        return False
    if truth.kind == "rewind":  # a line, which stands in the incident of what made the run go back, if that is one
        return any(
            f["kind"] == "rewind" and truth.onset - EARLY <= f["onset_step"] <= truth.end for f in incident["findings"]
        )
    return any(
        finding["role"] in truth.roles
        and truth.onset - EARLY <= finding["detected_step"] <= truth.end
        and (finding["severity"] > 0 or finding["kind"] == truth.kind)
        for finding in incident["findings"]
    )


def _stray(incident: IncidentDoc, truth: Truth) -> bool:
    return _worst(incident) >= INVESTIGATE and truth.onset - EARLY <= incident["onset_step"] <= truth.end


def _worst(incident: IncidentDoc) -> int:
    return max(severity_number(each["severity"]) for each in incident["severity_history"])


def _key(incident: IncidentDoc) -> tuple[str, str, float]:
    first = incident["findings"][0]
    return first["detector"], first["metric"], first["onset_step"]


def _samples(store: Store, run: str, incidents: Sequence[IncidentDoc]) -> Mapping[str, titles.Line]:
    names = sorted({f["metric"] for i in incidents for f in i["findings"] if f["metric"]})
    frame = store.samples(run, names, float("-inf"), float("inf")) if names else None
    if frame is None:
        return {}
    return {
        str(name): (part["step"].to_numpy(), part["value"].to_numpy())
        for (name,), part in frame.group_by("name", maintain_order=True)
    }


def _without_fault(plan: Plan) -> frozenset[tuple[str, str, float]]:
    assert plan.of is not None
    return _healthy(plan.of)


@lru_cache(maxsize=64)
def _healthy(of: Case) -> frozenset[tuple[str, str, float]]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        case = plans.make(Plan("injected", of.half, "spike", 1, 0.0, of), Path(folder))
        store, run = judged(case)
        return frozenset(_key(i) for i in incidents_of(store, run))


def summary(done: Sequence[Outcome]) -> list[str]:
    """The figures, a line each."""
    lines = []
    for label, part in [
        ("all", done),
        ("largest amplitude", [o for o in done if o.top_rung]),
        *((half, [o for o in done if o.half == half]) for half in ("tuning", "held_out")),
        *((family, [o for o in done if o.family == family]) for family in ("recorded", "injected", "scenario")),
    ]:
        if not part:
            continue
        found = [o for o in part if o.count]
        one = sum(o.count == 1 for o in part)
        asked = [o for o in found if o.right is not None]
        right = sum(bool(o.right) for o in asked)
        titled = [o for o in found if o.wrong_titles]
        lines.append(
            f"{label}: {len(part)} faults, found {len(found)}; exactly one incident {one} = {_share(one, len(part))} of all, "
            f"{_share(one, len(found))} of the found; right cause first {right} of {len(asked)} = {_share(right, len(asked))}; "
            f"faults with an untrue title {len(titled)}"
        )
    return lines


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"


def main(argv: Sequence[str] | None = None) -> list[Outcome]:
    """Measure and print; --out keeps every outcome as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--placements", type=int, default=2, help="of each fault and amplitude, both halves together")
    parser.add_argument("--family", action="append", choices=("recorded", "injected", "scenario"))
    parser.add_argument("--fault", action="append", default=[], choices=FAULTS)
    parser.add_argument("--half", choices=("tuning", "held_out"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(argv)
    wanted = given.family or ("recorded", "scenario", "injected")
    todo = plans.recorded() if "recorded" in wanted else []
    todo += plans.scenario(2) if "scenario" in wanted else []
    todo += plans.injected(given.placements, (), given.fault) if "injected" in wanted else []
    done: list[Outcome] = []
    begun = time.monotonic()
    for each in todo:
        if given.half in (None, each.half):
            with tempfile.TemporaryDirectory(prefix="bench-") as folder:
                done += outcomes(each, Path(folder))
    for line in summary(done):
        print(line)
    print(f"{len(done)} faults in {time.monotonic() - begun:.0f} s")
    if given.out:
        given.out.write_text(json.dumps([asdict(o) for o in done], indent=1) + "\n", encoding="utf-8")
    return done


if __name__ == "__main__":
    main()
