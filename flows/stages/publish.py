"""Publish: the page of a run and the PNG charts of its incidents, from the store into a folder.

The same store gives the same bytes. Each file appears whole or not at all (written beside, then renamed).
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from flows.messages.document import IncidentDoc, RunDoc, severity_number
from flows.record.verdict import ranked
from flows.stages.document import curves_of, incidents_of, run_document
from flows.store import Store

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
    from flows.record.charts import incident_chart, png
    from flows.record.page import page
    from flows.record.pictures import Picture, draw

    document = run_document(store, run)
    events, attempts = store.events(run), store.attempts(run)
    folder = out / folder_name(run)
    folder.mkdir(parents=True, exist_ok=True)
    pictures: dict[tuple[str, str], Picture] = {}
    charts: dict[str, Path] = {}
    for incident in charted(document, most_charts):
        curves = curves_of(store, run, incident)
        if curves:
            pictures[run, incident["id"]] = draw(incident, curves, events, attempts)
            charts[incident["id"]] = folder / f"{folder_name(incident['id'])}.png"
            _write(charts[incident["id"]], png(incident_chart(incident, curves, events, attempts)))
    _write(folder / "index.html", page([document], pictures, note).encode())
    return Published(folder / "index.html", charts, document)


def charted(document: RunDoc, most: int = MOST_CHARTS) -> list[IncidentDoc]:
    """The incidents that get a chart: the open and grave ones first."""
    return [i for i in ranked(document.get("incidents", [])) if severity_number(i["severity"]) >= 1][:most]


def chart_of(store: Store) -> Callable[[Mapping[str, Any]], bytes | None]:
    """The `chart` of the notify stage: the PNG of a delivery's incident, None where there is nothing to draw."""

    def chart(row: Mapping[str, Any]) -> bytes | None:
        from flows.record.charts import incident_chart, png

        run = row["run"]
        incident = next((i for i in incidents_of(store, run) if i["id"] == row["incident_id"]), None)
        curves = curves_of(store, run, incident) if incident else []
        if incident is None or not curves:
            return None
        return png(incident_chart(incident, curves, store.events(run), store.attempts(run)))

    return chart


def folder_name(run: str) -> str:
    """A name that is safe in any file system; what had to be changed keeps its difference by a hash."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", run).strip(".-")[:80]
    return safe if safe == run else f"{safe or 'run'}-{sha256(run.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _write(path: Path, content: bytes) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    beside.write_bytes(content)
    beside.replace(path)
