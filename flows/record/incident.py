"""One incident on a page: the sentence, the chart, what to do, why, and the evidence."""

from collections.abc import Sequence
from html import escape

from flows.messages import facts
from flows.messages.document import FindingDoc, HypothesisDoc, IncidentDoc, OperationDoc, SuggestionDoc
from flows.messages.plain import number, step
from flows.record.pictures import Picture
from flows.record.tables import table, text

MOST_FINDINGS = 60
_HIDDEN = {"parameters", "samples", "cadence"}


def article(run: str, incident: IncidentDoc, picture: Picture | None) -> str:
    """The article of one incident; without a picture the words stand alone."""
    grave, mark = incident["severity"], f"i-{text(incident['id'], 60)}"
    end = incident.get("resolved_step")
    when = f"Began at step {step(incident['onset_step'])}, seen at step {step(incident['detected_step'])}, "
    when += f"resolved at step {step(end)}." if end is not None else f"{text(incident.get('status', 'open'), 20)}."
    parts = [
        f'<article class="incident {text(grave)}" aria-labelledby="{mark}">',
        f'<span class="badge">{text(grave)} {text(facts.URGENCY[grave].split(":")[0])}</span>',
        f'<h3 id="{mark}">{text(incident["title"], 300)}</h3><p class="quiet">{when}</p>',
        _figure(picture),
        _suggestions(incident.get("suggestions", [])),
        _hypotheses(incident.get("hypotheses", [])),
        _evidence(incident.get("findings", [])),
        _operations(incident.get("operations", [])),
        f"<h4>Look yourself</h4><pre>{text(facts.evidence_query(run, incident))}</pre>",
        f"<pre>{text(facts.replay_command(run, incident))}</pre>" if incident.get("findings") else "",
        f'<p class="quiet">Incident {text(incident["id"], 60)}{_confidence(incident)}</p></article>',
    ]
    return "\n".join(part for part in parts if part)


def _figure(picture: Picture | None) -> str:
    if picture is None:
        return ""
    narrow, wide = f'<div class="narrow">{picture.narrow}</div>', f'<div class="wide">{picture.wide}</div>'
    return f"<figure>{narrow}{wide}</figure>"


def _suggestions(offered: Sequence[SuggestionDoc]) -> str:
    if not offered:
        return ""
    return f"<h4>What to do</h4><ol>{''.join(_suggestion(one) for one in offered)}</ol>"


def _suggestion(one: SuggestionDoc) -> str:
    undo = "can be undone" if one.get("reversible") else "cannot be undone"
    lines = [f"<b>{text(one.get('do', ''), 300)}</b> {text(one.get('why', ''), 400)}"]
    lines.append(f'<span class="quiet">Cost: {text(one.get("cost") or "unknown", 160)}; {undo}.</span>')
    if one.get("again"):
        lines.append(f'<span class="quiet">{facts.again(one["again"]).capitalize()}.</span>')
    if one.get("bound"):
        lines.append(f"<pre>{escape(one['bound'])}</pre>")
    if one.get("evidence"):
        lines.append(f'<span class="quiet">For: {text("; ".join(map(str, one["evidence"])), 400)}</span>')
    against = "; ".join(map(str, one.get("counter_evidence", []))) or "nothing known"
    lines.append(f'<span class="quiet">Against: {text(against, 400)}</span>')
    return f"<li>{'<br>'.join(lines)}</li>"


def _hypotheses(ranked: Sequence[HypothesisDoc]) -> str:
    if not ranked:
        return ""
    return f"<h4>What it may be</h4><ol>{''.join(_hypothesis(each) for each in ranked[:4])}</ol>"


def _hypothesis(each: HypothesisDoc) -> str:
    name = text(each.get("title") or each.get("pattern", ""), 120)
    lines = [f"<b>{name}</b> (score {number(each.get('score', 0.0), 2)})"]
    reasons = (("For", each.get("matched")), ("Against", each.get("contradicted")), ("Not logged", each.get("missing")))
    lines += [f'<span class="quiet">{label}: {_joined(said)}</span>' for label, said in reasons if said]
    if apart := each.get("apart"):
        lines.append(f'<span class="quiet">Tell apart: {text(apart["by"], 300)}</span>')
    return f"<li>{'<br>'.join(lines)}</li>"


def _joined(said: Sequence[object] | None) -> str:
    return text("; ".join(map(str, said or [])) or "none", 300)


def _evidence(findings: Sequence[FindingDoc]) -> str:
    rows = [
        [
            text(f["metric"] or "the run", 120),
            text(facts.movement(f)),
            step(f["onset_step"]),
            step(f["detected_step"]),
            text(f.get("detector", ""), 40),
            _numbers(f),
        ]
        for f in findings[:MOST_FINDINGS]
    ]
    if not rows:
        return ""
    left = len(findings) - len(rows)
    more = f'<p class="quiet">and {left} more findings</p>' if left > 0 else ""
    head = ["Metric", "What moved", "Began", "Seen", "Detector", "Numbers"]
    return "<h4>Evidence</h4>" + table(head, rows, "Evidence", numbers=(2, 3)) + more


def _operations(log: Sequence[OperationDoc]) -> str:
    if not log:
        return ""
    lines = "".join(f"<li>{text(facts.operation(each), 500)}</li>" for each in log)
    return f"<h4>What was said and done</h4><ul>{lines}</ul>"


def _numbers(finding: FindingDoc) -> str:
    every = sorted(finding.get("evidence", {}).items())
    known = [(key, value) for key, value in every if key not in _HIDDEN and not isinstance(value, dict | list)]
    return ", ".join(f"{text(key, 40)} {text(value, 40)}" for key, value in known[:8])


def _confidence(incident: IncidentDoc) -> str:
    value = incident.get("confidence")
    return f"; confidence {number(value, 2)}" if value is not None else ""
