"""The pages of the operating record: the board of all runs, the page of one, the page of one incident. HTML as text.

Everything that comes in may be published already (flows/record/veil.py); nothing here decides what may.
"""

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, TypedDict

from flows.messages.document import IncidentDoc, MetricDoc, RunDoc, severity_number
from flows.messages.facts import URGENCY
from flows.messages.plain import number, step
from flows.record.board import Row
from flows.record.frame import document
from flows.record.incident import article
from flows.record.outcome import decision, outcome
from flows.record.pictures import Picture
from flows.record.tables import table, text
from flows.record.timeline import Line
from flows.record.verdict import ranked, verdict, worst

STATES = {"open": "open", "not checked": "not checked", "partly": "checked in part", "past": "over", "fine": "fine"}
KINDS = {
    "attempt": "start", "abandoned": "abandoned", "event": "event", "incident": "incident", "resolved": "over",
    "people": "people",
}  # fmt: skip


class RunPage(TypedDict):
    """What a page of a run is made from; `folder` is where it lies, `pages` the file of each incident by id."""

    run: RunDoc
    folder: str
    pages: Mapping[str, str]
    board: Sequence[Row]
    reading: Sequence[tuple[str, str, int]]
    timeline: Sequence[Line]
    expectations: Sequence[Mapping[str, Any]]
    links: Sequence[tuple[str, str]]
    fresh: str
    samples: str
    caveats: Sequence[str]


def home(title: str, runs: Sequence[RunPage]) -> str:
    """The first page: each run with its verdict, the worst first."""
    cards = "\n".join(_card(each) for each in sorted(runs, key=_urgency)) or "<p>No run may be published.</p>"
    going = sum(severity_number(_grave(each)) >= 2 for each in runs)
    told = f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}; "
    told += f"{going} with something open that needs somebody." if going else "nothing open needs anybody."
    main = f'<h1>{text(title)}</h1><p class="quiet">{told}</p>\n{cards}\n{_legend()}'
    foot = '<p>An operating record by watchkeeper; <a href="record.json">the same as JSON</a>. It works offline.</p>'
    return document(title, main, footer=foot, skip="To the runs")


def run_page(title: str, page: RunPage) -> str:
    """One run: verdict, board, incidents, timeline, expectations, and how to check all this oneself."""
    run = page["run"]
    told = [i for i in ranked(run["incidents"]) if severity_number(i["severity"]) >= 1]
    noted = len(run["incidents"]) - len(told)
    parts = [
        f"<h1>{text(run['run'], 120)}</h1>",
        f'<p class="verdict {_grave(page)}">{text(verdict(run))}</p>',
        f'<p class="quiet">{_about(page)}</p>',
        _links(page["links"]),
        f"<h2>Incidents ({len(told)})</h2>{_incidents(page, told)}",
        f'<p class="quiet">And {noted} annotations (S0) that need nobody; they are in the JSON.</p>' if noted else "",
        f"<h2>Health checks</h2>{_board(page)}",
        f"<h2>What happened</h2>{_timeline(page)}",
        _expectations(page["expectations"]),
        _reproduce(page),
        _metrics(run["metrics"]),
    ]
    header = _crumbs([("../index.html", title)], run["run"])
    foot = '<p>Made by watchkeeper. <a href="run.json">This page as JSON.</a></p>'
    return document(
        run["run"], "\n".join(part for part in parts if part), header=header, footer=foot, skip="To the run"
    )


def incident_page(
    title: str, run: RunDoc, incident: IncidentDoc, picture: Picture | None, neighbours: tuple[str, str]
) -> str:
    """One incident: sentence, chart, what to do, why, evidence; what people decided, and what came of it."""
    bare = article(run["run"], {**incident, "operations": []}, picture)
    body = re.sub(r"<(/?)h([34])", lambda m: f"<{m[1]}h{int(m[2]) - 2}", bare)
    said = f"<h2>Decision</h2>{decision(incident)}<h2>Outcome</h2>{outcome(incident)}"
    body = (
        body.replace("<h2>Evidence</h2>", f"{said}<h2>Evidence</h2>", 1) if "<h2>Evidence</h2>" in body else body + said
    )
    before, after = neighbours
    ways = [f'<a href="{escape(before)}">Earlier incident</a>'] if before else []
    ways += [f'<a href="{escape(after)}">Later incident</a>'] if after else []
    nav = f'<nav aria-label="Other incidents"><p>{" · ".join(ways)}</p></nav>' if ways else ""
    header = _crumbs(
        [("../index.html", title), ("index.html", run["run"])],
        f"{incident['severity']} at {step(incident['onset_step'])}",
    )
    foot = '<p>Made by watchkeeper. The samples are on the <a href="index.html">page of the run</a>.</p>'
    return document(
        f"{incident['severity']} {incident['title']}", body + nav, header=header, footer=foot, skip="To the incident"
    )


def _crumbs(way: Sequence[tuple[str, str]], here: str) -> str:
    links = " / ".join(f'<a href="{escape(href)}">{text(name, 60)}</a>' for href, name in way)
    return f'<header><nav aria-label="Where you are">{links} / <span aria-current="page">{text(here, 60)}</span></nav></header>'


def _grave(page: RunPage) -> str:
    return worst([i for i in page["run"]["incidents"] if i.get("status") != "resolved"])


def _urgency(page: RunPage) -> tuple[int, str]:
    return -severity_number(_grave(page)), page["run"]["run"]


def _card(page: RunPage) -> str:
    run, grave = page["run"], _grave(page)
    counts = {state: sum(row.state == state for row in page["board"]) for state in STATES}
    checks = ", ".join(f"{count} {STATES[state]}" for state, count in counts.items() if count) or "none yet"
    return (
        f'<article class="incident {grave}"><h2><a href="{escape(page["folder"])}/index.html">{text(run["run"], 120)}</a></h2>'
        f'<p class="verdict {grave}">{text(verdict(run))}</p>'
        f'<p class="quiet">Health checks: {checks}. {_about(page)}</p></article>'
    )


def _about(page: RunPage) -> str:
    run = page["run"]
    told = f"Steps {step(run['first_step'])} to {step(run['last_step'])}, "
    told += f"{run['samples']:,} samples of {len(run['metrics'])} metrics"
    return told + (f"; newest rows {text(page['fresh'])}." if page["fresh"] else ".")


def _links(links: Sequence[tuple[str, str]]) -> str:
    if not links:
        return ""
    shown = " · ".join(f'<a href="{escape(url)}" rel="noreferrer">{text(label, 40)}</a>' for label, url in links)
    return f'<nav aria-label="Where this run is described"><p>{shown}</p></nav>'


def _legend() -> str:
    rows = "".join(f"<li><b>{name}</b> {text(meaning)}</li>" for name, meaning in reversed(URGENCY.items()))
    return f"<details><summary>What S0 to S4 mean</summary><ul>{rows}</ul></details>"


def _board(page: RunPage) -> str:
    quantities = [row for row in page["board"] if row.quantity]
    detectors = [row for row in page["board"] if not row.quantity]
    told = _checks(page, quantities, "What is watched")
    told += f"<h3>How it is watched</h3>{_checks(page, detectors, 'How it is watched')}" if detectors else ""
    if page["reading"]:
        said = "".join(
            f"<li>{text(what, 40)}: {text(why, 300)}{f' ({count:,})' if count else ''}</li>"
            for what, why, count in page["reading"]
        )
        told += f"<details><summary>Noted while reading and judging ({len(page['reading'])})</summary><ul>{said}</ul></details>"
    return told or "<p>Nothing was judged yet.</p>"


def _checks(page: RunPage, board: Sequence[Row], caption: str) -> str:
    rows = []
    for row in board:
        because = f"Not checked, because {text('; '.join(row.why), 400)}." if row.why else ""
        links = ", ".join(_to(page, i) for i in row.incidents[:4])
        more = f" and {len(row.incidents) - 4} more" if len(row.incidents) > 4 else ""
        count = f"{row.metrics} {'metric' if row.metrics == 1 else 'metrics'}" if row.metrics else ""
        name = f'<b>{text(row.about, 60)}</b> <span class="quiet">{text(row.check, 40)}</span>'
        state = _badge(row.state, row.severity if row.state in ("open", "past") else "")
        quiet = f'<span class="quiet">{count}</span>' if count else ""
        rows.append([name, state, " · ".join(part for part in (links + more, because, quiet) if part)])
    return table([caption, "State", "Incidents, and what was not checked"], rows, caption)


def _badge(state: str, severity: str) -> str:
    """A state in words, its colour only beside them."""
    looks = f"{state.replace(' ', '-')} {severity}" if state == "open" else state.replace(" ", "-")
    return f'<span class="state {looks}">{f"{severity} " if severity else ""}{STATES[state]}</span>'


def _to(page: RunPage, identity: str) -> str:
    incident = next((i for i in page["run"]["incidents"] if i["id"] == identity), None)
    if incident is None or identity not in page["pages"]:
        return ""
    label = f"{incident['severity']} at step {step(incident['onset_step'])}"
    return f'<a href="{escape(page["pages"][identity])}">{text(label)}</a>'


def _incidents(page: RunPage, told: Sequence[IncidentDoc]) -> str:
    if not told:
        return "<p>None.</p>"
    rows = []
    for each in told:
        over = each.get("resolved_step")
        until = f"to {step(over)}" if over is not None else ""
        state = _badge("past" if each.get("status") == "resolved" else "open", each["severity"])
        title = f'<a href="{escape(page["pages"][each["id"]])}">{text(each["title"], 300)}</a>'
        rows.append([state, f"{step(each['onset_step'])} {until}", title])
    return table(["State", "Steps", "What"], rows, "Incidents")


def _timeline(page: RunPage) -> str:
    rows = []
    for line in page["timeline"]:
        shown = text(line.text, 400)
        if line.incident in page["pages"]:
            shown = f'<a href="{escape(page["pages"][line.incident])}">{shown}</a>'
        at = step(line.step) if line.step is not None else ""
        rows.append([at, KINDS[line.kind], shown, text(line.at.replace("T", " ").removesuffix("Z"), 20)])
    told = table(["Step", "Kind", "What", "When (UTC)"], rows, "What happened, by step", numbers=(0,))
    return told or "<p>Nothing yet.</p>"


def _expectations(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    cells = []
    for row in rows:
        came = number(row["result"], 5) if row.get("result") is not None else "not yet"
        cells.append(
            [text(row["name"], 80), text(row["version"], 40), text(row["recorded_at"], 20), _expected(row), came]
        )
    head = ["Of what", "Version", "Written down", "Expected", "Came"]
    return "<h2>Expected, and what came</h2>" + table(head, cells, "Expected, and what came", numbers=(4,))


def _expected(row: Mapping[str, Any]) -> str:
    told = number(row["expected"], 5) if row.get("expected") is not None else ""
    if row.get("low") is not None and row.get("high") is not None:
        told += f" ({number(row['low'], 5)} to {number(row['high'], 5)})"
    return text(told.strip() or "in the JSON")


def _reproduce(page: RunPage) -> str:
    if not page["samples"]:
        return "<h2>Check it yourself</h2><p>The samples of this run are not published.</p>"
    name = text(page["samples"])
    told = f'<p>The samples as they were judged are in <a href="{escape(page["samples"])}">{name}</a>. '
    told += f"<code>watchkeeper check {name}</code> finds these incidents from them.</p>"
    if page["caveats"]:
        said = "".join(f"<li>{text(each)}</li>" for each in page["caveats"])
        told += f"<p>What the samples alone do not tell, so that a check of them may differ:</p><ul>{said}</ul>"
    return f"<h2>Check it yourself</h2>{told}"


def _metrics(metrics: Sequence[MetricDoc]) -> str:
    rows = []
    for m in metrics:
        name, role, unit = text(m["name"], 120), text(m.get("role", ""), 40), text(m.get("unit", ""), 20)
        rows.append([name, role, f"{m.get('samples', 0):,}", text(m.get("last_value")), unit])
    body = table(["Metric", "What it is", "Samples", "Last value", "Unit"], rows, "Metrics", numbers=(2, 3))
    return f"<h2>Metrics</h2><details><summary>{len(rows)} metrics were read</summary>{body}</details>"
