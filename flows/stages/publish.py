"""Publish: the page of a run and the PNG charts of its incidents, from the store into a folder.

The same store gives the same bytes. Each file appears whole or not at all (written beside, then renamed).
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.messages.document import IncidentDoc, RunDoc, severity_number
from flows.record.places import folder_name
from flows.record.verdict import ranked
from flows.stages.document import curves_of, incidents_of, run_document
from flows.stages.ladder import on_record
from flows.store import Store

if TYPE_CHECKING:
    from flows.record.pictures import Picture

MOST_CHARTS = 12


@dataclass(frozen=True)
class Published:
    """Where the files are; `charts` by incident id."""

    page: Path
    charts: Mapping[str, Path]
    document: RunDoc


def publish(store: Store, run: str, out: Path, *, note: str = "", most_charts: int = MOST_CHARTS) -> Published:
    """Write <out>/<run>/index.html and a PNG for each of the `most_charts` gravest incidents (from S1 up).

    Raises LookupError for an unknown run, OSError where the folder cannot be written.
    """
    from flows.record.charts import png
    from flows.record.page import page

    document = run_document(store, run)
    folder = out / folder_name(run)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = drawings(store, document, most_charts, on_record(store, run))
    charts = {name: folder / f"{folder_name(name)}.png" for name in drawn}
    for name, (_, chart) in drawn.items():
        write_whole(charts[name], png(chart))
    pictures = {(run, name): picture for name, (picture, _) in drawn.items()}
    write_whole(folder / "index.html", page([document], pictures, note).encode())
    return Published(folder / "index.html", charts, document)


def write_page(store: Store, documents: Sequence[RunDoc], path: Path, ladder: Sequence[Mapping[str, Any]] = ()) -> None:
    """One page of several runs, with the pictures of their gravest incidents inside. Raises OSError.

    `ladder` are the expectations that they were held to.
    """
    from flows.record.page import page

    pictures = {
        (each["run"], name): picture
        for each in documents
        for name, (picture, _) in drawings(store, each, MOST_CHARTS, ladder).items()
    }
    write_whole(path, page(documents, pictures).encode())


def drawings(
    store: Store, document: RunDoc, most: int, ladder: Sequence[Mapping[str, Any]]
) -> dict[str, tuple["Picture", dict[str, Any]]]:
    """By incident id: the picture for a page and the chart it is drawn from."""
    from flows.record.charts import incident_chart
    from flows.record.pictures import draw

    run = document["run"]
    events, attempts, metrics = store.events(run), store.attempts(run), store.metrics(run)
    out: dict[str, tuple[Picture, dict[str, Any]]] = {}
    for incident in charted(document, most):
        curves = curves_of(store, run, incident, metrics, ladder)
        if curves:
            drawn = draw(incident, curves, events, attempts)
            out[incident["id"]] = (drawn, incident_chart(incident, curves, events, attempts))
    return out


def charted(document: RunDoc, most: int = MOST_CHARTS) -> list[IncidentDoc]:
    """The incidents that get a chart: the open and grave ones first."""
    return [i for i in ranked(document.get("incidents", [])) if severity_number(i["severity"]) >= 1][:most]


def chart_of(store: Store) -> Callable[[Mapping[str, Any]], bytes | None]:
    """The `chart` of the notify stage: the PNG of a delivery's incident, None where there is nothing to draw."""

    def chart(row: Mapping[str, Any]) -> bytes | None:
        from flows.record.charts import incident_chart, png

        run = row["run"]
        incident = next((i for i in incidents_of(store, run) if i["id"] == row["incident_id"]), None)
        curves = curves_of(store, run, incident, store.metrics(run), on_record(store, run)) if incident else []
        if incident is None or not curves:
            return None
        return png(incident_chart(incident, curves, store.events(run), store.attempts(run)))

    return chart


def write_whole(path: Path, content: bytes) -> None:
    """A file that appears whole or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    beside.write_bytes(content)
    beside.replace(path)
