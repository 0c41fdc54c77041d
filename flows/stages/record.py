"""The operating record: pages, JSON and samples of every run that may be published, in a folder of static files."""

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl

from flows.messages.document import IncidentDoc
from flows.record.charts import MOST_PANELS
from flows.record.curves import Curve, band_before, known_until, onset_of, standing, window, within
from flows.record.markers import markers
from flows.record.verdict import ranked
from flows.record.views import RunPage, home, incident_page, run_page
from flows.stages.document import curves_of
from flows.stages.folder import SCHEMA, Folder, Written, as_json, digest
from flows.stages.gather import Gathered, Terms, gather
from flows.stages.ladder import on_record
from flows.store import Store

MOST_PICTURES = 200  # of a run, the open and grave ones first: the others have their words and numbers


def write_record(store: Store, out: Path, terms: Terms) -> Written:
    """Bring the record in `out` up to date. Raises BadConfig for a folder of something else, OSError."""
    folder = Folder(out)
    pages: list[RunPage] = []
    for each in published(store, terms):
        _put_run(store, each, terms, folder)
        pages.append(each.page)
    whole = {"schema": SCHEMA, "title": terms.title, "runs": [_summary(page) for page in pages]}
    folder.put("record.json", whole, lambda: as_json(whole))
    folder.put(
        "index.html", [terms.title, [_source(page) for page in pages]], lambda: home(terms.title, pages).encode()
    )
    return folder.finish()


def published(store: Store, terms: Terms) -> Iterator[Gathered]:
    """The runs that may be published, by name."""
    for run in store.runs()["run"]:
        if terms.policy.takes(run):
            yield gather(store, run, terms)


def _put_run(store: Store, each: Gathered, terms: Terms, folder: Folder) -> None:
    page, place = each.page, each.page["folder"]
    _put_incidents(store, each, terms, folder)
    folder.now.runs[place] = [each.batch, each.replaced]
    folder.put(f"{place}/index.html", [terms.title, _source(page)], lambda: run_page(terms.title, page).encode())
    whole = {"schema": SCHEMA, **_source(page)}
    folder.put(f"{place}/run.json", whole, lambda: as_json(whole))
    if terms.samples:
        names = sorted(m["name"] for m in page["run"]["metrics"])
        source = [each.batch, page["run"]["samples"], names]
        folder.put(f"{place}/{page['samples']}", source, lambda: _samples(store, each, names))


def _put_incidents(store: Store, each: Gathered, terms: Terms, folder: Folder) -> None:
    page, metrics, fresh = each.page, store.metrics(each.run), _fresh(store, each, folder)
    ladder = on_record(store, each.run)
    public = {i["id"]: i for i in page["run"]["incidents"] if i["id"] in each.told}
    by_onset = sorted(public, key=lambda i: (public[i]["onset_step"], i))
    drawn = {i["id"] for i in ranked(list(public.values()))[:MOST_PICTURES]}
    files = ["", *(page["pages"][identity] for identity in by_onset), ""]
    for at, identity in enumerate(by_onset):
        incident, beside = public[identity], (files[at], files[at + 2])
        path = f"{page['folder']}/{files[at + 1]}"
        known = folder.until(path)
        told = [terms.title, page["run"]["run"], incident, beside, identity in drawn, _units(incident, metrics)]
        # samples are read again only where something that the page shows was stored since
        if known < fresh and folder.keep(path, _words(told, each, ladder, known)):
            continue
        every = curves_of(store, each.run, each.told[identity], metrics, ladder) if identity in drawn else []
        curves = [curve for curve in every if each.veil.metric(curve.name)]

        def render(
            incident: IncidentDoc = incident, curves: list[Curve] = curves, beside: tuple[str, str] = beside
        ) -> bytes:
            from flows.record.pictures import draw

            picture = draw(incident, curves, each.events, each.attempts) if curves else None
            return incident_page(terms.title, page["run"], incident, picture, beside).encode()

        folder.put(path, [told, _seen(each, incident, curves)], render)
        until = _until(incident, curves)
        folder.settle(path, _words(told, each, ladder, until), until)


def _fresh(store: Store, each: Gathered, folder: Folder) -> float:
    """The lowest step stored since the record was last written: infinite for none, -infinite where it may be any."""
    before = folder.before.runs.get(each.page["folder"])
    if before is None or before[1] != each.replaced:
        return -math.inf
    first = store.first_since(each.run, before[0])
    return math.inf if first is None else first


def _until(incident: IncidentDoc, curves: Sequence[Curve]) -> float:
    """The last step that is shown, where that stays so: the incident is over, and the run went on beyond it."""
    if incident.get("resolved_step") is None or not curves:
        return math.inf
    last = window(incident, curves[0])[1]
    return last if last < curves[0].step.max() else math.inf


def _words(told: Sequence[Any], each: Gathered, ladder: Sequence[Mapping[str, Any]], until: float) -> str:
    """A digest of all that a page is made from but the samples."""
    events = [asdict(event) for event in each.events if event.step <= until]
    starts = [[a.attempt, a.first_step, a.parent] for a in each.attempts if a.first_step <= until]
    # a version on record is never changed, and judges the steps behind it
    begins = [body.get("from_step") for body in ladder]
    return digest([told, events, starts, [at for at in begins if at is None or at < until]])


def _units(incident: IncidentDoc, metrics: pl.DataFrame) -> list[tuple[str, str]]:
    names = {finding["metric"] for finding in incident.get("findings", [])}
    return list(metrics.filter(pl.col("name").is_in(names)).select("name", "unit").iter_rows())


def _seen(each: Gathered, incident: IncidentDoc, curves: Sequence[Curve]) -> list[Any]:
    """What a picture shows beside its incident, and nothing else: what comes later in the run changes no old page."""
    if not curves:
        return []
    first, last = span = window(incident, curves[0])
    shown = curves[:MOST_PANELS]
    marks = markers(incident, each.events, each.attempts, span, known_until(shown))
    seen: list[Any] = [span, [asdict(mark) for mark in marks]]
    for curve in shown:
        stands = standing(curve, each.attempts)
        band = band_before(curve.step[stands], curve.value[stands], onset_of(incident, curve.name), last)
        inside = (curve.step >= first) & (curve.step <= last)
        drawn = [_of(column[inside]) for column in (curve.step, curve.value, curve.attempt, stands)]
        ranges = None if band is None else [_of(edge) for edge in (band.step, band.low, band.high)]
        bands = [[p.blocks, *map(_of, (p.step, p.low, p.centre, p.high))] for p in within(curve.ladder, span)]
        seen.append([curve.name, curve.unit, drawn, ranges, bands])
    return seen


def _of(values: Any) -> str:
    return sha256(values.tobytes()).hexdigest()


def _samples(store: Store, each: Gathered, names: list[str]) -> bytes:
    rows = store.as_logged(each.run)
    rows = rows.filter(rows["name"].is_in(names))
    file = io.BytesIO()
    rows.write_parquet(file, compression="zstd")
    return file.getvalue()


def _source(page: RunPage) -> dict[str, Any]:
    """The run's page as JSON."""
    rest = {key: page[key] for key in ("reading", "expectations", "links", "fresh", "samples", "caveats")}
    lists = {"board": [asdict(row) for row in page["board"]], "timeline": [asdict(line) for line in page["timeline"]]}
    return {**page["run"], **lists, **rest, "pages": dict(page["pages"])}


def _summary(page: RunPage) -> dict[str, Any]:
    run = page["run"]
    going = [i for i in run["incidents"] if i["status"] != "resolved"]
    states = [row.state for row in page["board"]]
    return {
        "run": run["run"], "folder": page["folder"], "last_step": run["last_step"], "samples": run["samples"],
        "incidents": len(run["incidents"]),
        "open": [{"id": i["id"], "severity": i["severity"], "title": i["title"]} for i in going],
        "checks": {state: states.count(state) for state in sorted(set(states))},
    }  # fmt: skip
