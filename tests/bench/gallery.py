"""A chart of every pattern that the proving ground shows, to be looked at: for a phone, for a desk, and in grey.

    python tests/bench/gallery.py FOLDER [WORD ...]

Recorded, injected (the largest amplitude) and published incidents whose names hold one of the words are judged as in
detection.py. Of each first cause, or kind where there is none, the gravest incident is drawn: PATTERN-400.png and
PATTERN-1200.png as a page shows it to a phone and to a desk, PATTERN-message.png as a message carries it.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / "scenarios"), str(Path(__file__).parents[2])]

import plan as plans
from systems.watchkeeper import judged

from flows.messages.document import IncidentDoc, severity_number
from flows.record.charts import incident_chart, png
from flows.record.pictures import NARROW, WIDE
from flows.stages.document import curves_of, incidents_of
from flows.store import Store


def chosen(words: Sequence[str]) -> Iterator[plans.Plan]:
    """The recordings, the largest of each injected fault, and the scenarios, by the words of their names."""
    largest = {plan.name: plan for plan in sorted(plans.injected(2), key=lambda each: each.amplitude)}
    for plan in [*plans.recorded(), *largest.values(), *plans.scenario(1)]:
        if not words or any(word in plan.title for word in words):
            yield plan


def pattern_of(incident: IncidentDoc) -> str:
    """The first cause, or the kind of what moved."""
    ranked = incident.get("hypotheses", [])
    return ranked[0]["pattern"] if ranked else f"kind-{incident['findings'][0]['kind']}"


def draw(store: Store, run: str, incident: IncidentDoc, stem: Path) -> bool:
    """The pictures of one incident; False where it has no samples."""
    curves = curves_of(store, run, incident, store.metrics(run))
    if not curves:
        return False
    about = incident, curves, store.events(run), store.attempts(run)
    Path(f"{stem}-400.png").write_bytes(png(incident_chart(*about, width=NARROW, titled=False)))
    Path(f"{stem}-1200.png").write_bytes(png(incident_chart(*about, width=WIDE, titled=False), scale=1.3))
    Path(f"{stem}-message.png").write_bytes(png(incident_chart(*about)))
    return True


def main() -> None:
    """Judge, draw, and print a line a picture."""
    out, seen = Path(sys.argv[1]), dict[str, int]()
    out.mkdir(parents=True, exist_ok=True)
    for plan in chosen(sys.argv[2:]):
        with tempfile.TemporaryDirectory() as folder:
            store, run = judged(plans.make(plan, Path(folder)))
            for incident in incidents_of(store, run):
                name, grave = pattern_of(incident), severity_number(incident["severity"])
                if grave > seen.get(name, 0) and draw(store, run, incident, out / name):
                    seen[name] = grave
                    print(name, incident["severity"], plan.title, incident["title"], sep=" | ", flush=True)


if __name__ == "__main__":
    main()
