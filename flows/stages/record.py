"""The operating record as a folder of static files: pages, JSON, samples. What has not changed is neither drawn nor written.

What each file was made from stands as a digest in `.record.json` of the folder; a file that is no longer wanted (its run
may not be published any more) is removed, and nothing that the record did not write is touched.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.errors import BadConfig
from flows.incidents.incident import plain
from flows.record.views import RunPage, home, incident_page, run_page
from flows.stages.document import curves_of
from flows.stages.gather import Gathered, Terms, gather
from flows.stages.publish import write_whole
from flows.store import Store

if TYPE_CHECKING:
    from flows.record.curves import Curve

SCHEMA = "watchkeeper.record/1"
MANIFEST = ".record.json"
MOST_PICTURES = 200  # of a run: the others have their words and numbers


@dataclass
class Written:
    """Files by what became of them, as paths inside the folder."""

    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


def write_record(store: Store, out: Path, terms: Terms) -> Written:
    """Bring the record in `out` up to date. Raises BadConfig for a folder of something else, OSError."""
    before = _manifest(out)
    done = Written()
    made: dict[str, str] = {}

    def put(path: str, source: Any, render: Callable[[], bytes]) -> None:
        """Write a file, unless it is there and was made from the same."""
        made[path] = _digest(source)
        if before.get(path) == made[path] and (out / path).is_file():
            done.kept.append(path)
            return
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        write_whole(out / path, render())
        done.written.append(path)

    pages: list[RunPage] = []
    for each in published(store, terms):
        _put_run(store, each, terms, put)
        pages.append(each.page)
    whole = {"schema": SCHEMA, "title": terms.title, "runs": [_summary(page) for page in pages]}
    put("record.json", whole, lambda: _json(whole))
    put("index.html", [terms.title, [_source(page) for page in pages]], lambda: home(terms.title, pages).encode())
    for path in sorted(before.keys() - made.keys()):
        if (out / path).resolve().is_relative_to(out.resolve()):
            (out / path).unlink(missing_ok=True)
            done.removed.append(path)
    for folder in {(out / path).parent for path in done.removed} - {out}:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    write_whole(out / MANIFEST, _json({"schema": SCHEMA, "files": made}))
    return done


def published(store: Store, terms: Terms) -> Iterator[Gathered]:
    """The runs that may be published, by name."""
    for run in store.runs()["run"]:
        if terms.policy.takes(run):
            yield gather(store, run, terms)


def _put_run(store: Store, each: Gathered, terms: Terms, put: Callable[[str, Any, Callable[[], bytes]], None]) -> None:
    page, folder = each.page, each.page["folder"]
    by_onset = sorted(each.told, key=lambda i: (each.told[i]["onset_step"], i))
    public = {i["id"]: i for i in page["run"]["incidents"]}
    for at, identity in enumerate(by_onset):
        curves = [c for c in curves_of(store, each.run, each.told[identity]) if each.veil.metric(c.name)]
        around = (by_onset[at - 1 : at] if at else []), by_onset[at + 1 : at + 2]
        beside = tuple(page["pages"][ids[0]] if ids else "" for ids in around)
        source = [
            terms.title,
            page["run"]["run"],
            public[identity],
            beside,
            at < MOST_PICTURES,
            *_drawn_from(each, curves),
        ]

        def render(
            identity: str = identity, curves: "list[Curve]" = curves, beside: Any = beside, at: int = at
        ) -> bytes:
            from flows.record.pictures import draw

            picture = (
                draw(public[identity], curves, each.events, each.attempts) if curves and at < MOST_PICTURES else None
            )
            return incident_page(terms.title, page["run"], public[identity], picture, beside).encode()

        put(f"{folder}/{page['pages'][identity]}", source, render)
    put(f"{folder}/index.html", [terms.title, _source(page)], lambda: run_page(terms.title, page).encode())
    whole = {"schema": SCHEMA, **_source(page)}
    put(f"{folder}/run.json", whole, lambda: _json(whole))
    if terms.samples:
        names = sorted(m["name"] for m in page["run"]["metrics"])
        put(
            f"{folder}/{page['samples']}",
            [each.batch, page["run"]["samples"], names],
            lambda: _samples(store, each, names),
        )


def _drawn_from(each: Gathered, curves: "list[Curve]") -> list[Any]:
    """What a picture shows beside its incident: samples, and the events and attempts among them."""
    if not curves:
        return []
    first, last = min(float(c.step.min()) for c in curves), max(float(c.step.max()) for c in curves)
    numbers = {int(n) for c in curves for n in set(c.attempt.tolist())}
    return [
        [[c.name, c.unit, _of(c.step), _of(c.value), _of(c.attempt)] for c in curves],
        [asdict(e) for e in each.events if first <= e.step <= last],
        [asdict(a) for a in each.attempts if a.attempt in numbers or first <= a.first_step <= last],
    ]


def _of(values: Any) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()


def _samples(store: Store, each: Gathered, names: list[str]) -> bytes:
    import io

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


def _json(value: Any) -> bytes:
    return (json.dumps(plain(value), ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode("utf-8", "replace")


def _digest(source: Any) -> str:
    return hashlib.sha256(_renderers().encode() + json.dumps(plain(source), sort_keys=True).encode()).hexdigest()[:24]


@cache
def _renderers() -> str:
    """A digest of the code that renders: a new version draws everything anew."""
    total = hashlib.sha256()
    for package in ("flows.record", "flows.messages"):
        for file in sorted(resources.files(package).iterdir(), key=lambda f: f.name):
            if file.name.endswith(".py"):
                total.update(file.read_bytes())
    return total.hexdigest()


def _manifest(out: Path) -> dict[str, str]:
    """What the folder holds of an earlier record. Raises BadConfig for a folder with other things in it."""
    file = out / MANIFEST
    if not out.exists() or (out.is_dir() and not file.exists() and not any(out.iterdir())):
        out.mkdir(parents=True, exist_ok=True)
        return {}
    if not file.is_file():
        raise BadConfig(f"--out {out}: this folder holds something else; give an empty or a new one.")
    try:
        return {str(path): str(made) for path, made in json.loads(file.read_text(encoding="utf-8"))["files"].items()}
    except (ValueError, KeyError, AttributeError, OSError):
        raise BadConfig(f"{file}: cannot be read; give another folder, or remove this one.") from None


def preview(store: Store, terms: Terms) -> list[str]:
    """What would leave the house, and what stays: names in full, all else counted. Nothing is drawn or written."""
    lines: list[str] = []
    for each in published(store, terms):
        page, run = each.page, each.page["run"]
        lines.append(f"run {run['run']}" + (f" (here: {each.run})" if run["run"] != each.run else ""))
        steps = f"steps {run['first_step']:,.15g} to {run['last_step']:,.15g}"
        lines.append(f"  leaves  {steps}, format {run['format']}, step key {run['step_key']}")
        lines.append(f"  leaves  {len(run['metrics'])} metrics: {', '.join(m['name'] for m in run['metrics'])}")
        lines.append(f"  leaves  {len(run['incidents'])} incidents with their findings, hypotheses and suggestions")
        lines += [f"          {i['severity']} {i['title']}" for i in run["incidents"] if i["id"] in page["pages"]]
        counted = {
            "rows of coverage": each.counts["coverage"],
            "events": each.counts["events"],
            "operations": each.counts["operations"],
        }
        lines.append(
            "  leaves  "
            + ", ".join(f"{count} {what}" for what, count in counted.items())
            + f", {len(each.attempts)} attempts"
        )
        lines += [f"  leaves  the samples of these metrics: {page['samples']}"] if page["samples"] else []
        lines += [f"  leaves  a link, {label}: {url}" for label, url in page["links"]]
        stays = [f"{count} {what}" for what, count in sorted(each.veil.withheld.items())]
        lines.append(
            f"  stays   {', '.join([*stays, 'the configuration, messages and their channels, leases, cursors'])}"
        )
    return lines or ["nothing: no run of the store may be published"]
