"""One self-contained HTML page: the verdict in one line, then the incidents with charts, then what was not checked.

It loads nothing, runs nothing (the policy in its head forbids scripts and every request), and reads from 320 px on.
"""

from collections.abc import Mapping, Sequence

from flows.messages.document import IncidentDoc, RunDoc, severity_number
from flows.messages.plain import plain, step
from flows.record.frame import document
from flows.record.incident import article
from flows.record.pictures import Picture
from flows.record.tables import table, text
from flows.record.verdict import ranked, verdict, worst

MOST_METRICS_OPEN = 30


def page(runs: Sequence[RunDoc], pictures: Mapping[tuple[str, str], Picture], note: str = "") -> str:
    """The page of one or more runs; `pictures` by (run, incident id), `note` a line for the foot (when, by whom)."""
    title = plain(runs[0]["run"], 80) if len(runs) == 1 else f"{len(runs)} runs"
    body = "\n".join(_run(run, pictures, "" if len(runs) == 1 else f"-{index}") for index, run in enumerate(runs))
    head = "" if len(runs) == 1 else f"<header><h1>{text(title)}</h1>{_contents(runs)}</header>"
    foot = f"<p>{text(note)}</p>" if note else ""
    foot += "<p>Made by watchkeeper. All of it stands in this file; it loads nothing.</p>"
    return document(title, body, header=head, footer=foot)


def _contents(runs: Sequence[RunDoc]) -> str:
    rows = [
        f'<li><a href="#run-{index}">{text(run["run"], 80)}</a>: {text(verdict(run))}</li>'
        for index, run in enumerate(runs)
    ]
    return f'<nav aria-label="Runs"><ul>{"".join(rows)}</ul></nav>'


def _run(run: RunDoc, pictures: Mapping[tuple[str, str], Picture], mark: str) -> str:
    incidents = ranked(run.get("incidents", []))
    level = "h2" if mark else "h1"
    told = [i for i in incidents if severity_number(i["severity"]) >= 1]
    noted = [i for i in incidents if severity_number(i["severity"]) < 1]
    grave = worst([i for i in incidents if i.get("status") != "resolved"])
    parts = [
        f'<section aria-labelledby="run{mark}"><{level} id="run{mark}">{text(run["run"], 120)}</{level}>',
        f'<p class="verdict {grave}">{text(verdict(run))}</p>',
        f'<p class="quiet">{_about(run)}</p>',
        _incidents(run, told, pictures),
        _noted(run, noted, pictures),
        _not_checked(run),
        _metrics(run),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _about(run: RunDoc) -> str:
    count = len(run.get("metrics", []))
    told = f"Read from {text(run.get('source', ''), 160)} ({text(run.get('format', ''), 40)}, steps from "
    told += f"{text(run.get('step_key', 'step'), 60)}): {run.get('samples', 0):,} samples of {count} metrics, "
    return told + f"steps {step(run.get('first_step'))} to {step(run.get('last_step'))}."


def _incidents(run: RunDoc, told: Sequence[IncidentDoc], pictures: Mapping[tuple[str, str], Picture]) -> str:
    if not told:
        return "<h2>Incidents</h2><p>None.</p>"
    left = sum((run["run"], i["id"]) not in pictures for i in told)
    note = f'<p class="quiet">{left} without a chart; <code>watchkeeper incidents show ID</code> has the numbers.</p>'
    articles = "\n".join(article(run["run"], i, pictures.get((run["run"], i["id"]))) for i in told)
    return f"<h2>Incidents ({len(told)})</h2>\n{note if left and pictures else ''}{articles}"


def _noted(run: RunDoc, noted: Sequence[IncidentDoc], pictures: Mapping[tuple[str, str], Picture]) -> str:
    if not noted:
        return ""
    articles = "\n".join(article(run["run"], i, pictures.get((run["run"], i["id"]))) for i in noted)
    return f"<details><summary>Annotations that need nobody ({len(noted)})</summary>\n{articles}</details>"


def _not_checked(run: RunDoc) -> str:
    missing = run.get("not_checked", [])
    if not missing:
        return "<h2>Not checked</h2><p>Every check that watchkeeper has was made.</p>"
    rows = [[text(entry.get("check", ""), 80), text(entry.get("reason", ""), 200)] for entry in missing]
    return f"<h2>Not checked ({len(rows)})</h2>" + table(["Check", "Why not"], rows, "What was not checked")


def _metrics(run: RunDoc) -> str:
    metrics = run.get("metrics", [])
    rows = [
        [
            text(metric["name"], 120),
            text(metric.get("role", ""), 40),
            f"{metric.get('samples', 0):,}",
            text(metric.get("last_value")),
            text(metric.get("unit", ""), 20),
        ]
        for metric in metrics
    ]
    body = table(["Metric", "What it is", "Samples", "Last value", "Unit"], rows, "Metrics", numbers=(2, 3))
    shown = " open" if len(rows) <= MOST_METRICS_OPEN else ""
    return f"<h2>Metrics</h2><details{shown}><summary>{len(rows)} metrics were read</summary>{body}</details>"
