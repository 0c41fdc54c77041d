"""The lines of a message: what is known about one incident, each in one sentence. Steps are the source's own."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flows.messages.document import FindingDoc, IncidentDoc, OperationDoc
from flows.messages.plain import magnitude, number, plain, step
from flows.records import Event

URGENCY = {
    "S4": "page: decide now",
    "S3": "page: look at it now",
    "S2": "investigate this shift",
    "S1": "note, goes to the digest",
    "S0": "annotation, explained",
}


@dataclass(frozen=True)
class Context:
    """What stands around an incident. Everything may be empty; what is empty is said to be unknown, not left out.

    `metrics` maps every metric that was judged to its role, `not_checked` is (check, reason), `decide_by_step` the
    last step at which the cheapest way back is still open, `reference` a sentence on smaller or sibling runs,
    `similar` one on past incidents, `last_step` the newest step that was read.
    """

    events: Sequence[Event] = ()
    metrics: Mapping[str, str] = field(default_factory=dict)
    not_checked: Sequence[tuple[str, str]] = ()
    last_step: float | None = None
    decide_by_step: float | None = None
    reference: str = ""
    similar: str = ""
    owner: str = ""
    tokens_per_step: float | None = None


def by_hand(incident: IncidentDoc) -> str:
    """Who resolved it and why; "" for one that ended by itself, or was opened again since."""
    turning = [each for each in incident.get("operations", []) if each["what"] in ("resolve", "opened", "reopened")]
    if not turning or turning[-1]["what"] != "resolve":
        return ""
    done = turning[-1]
    why = f": {plain(done['why'], 160)}" if done["why"] else ""
    return f"by {plain(done['who'], 60)} at step {step(done['step'])}{why}"


def acknowledged_by(incident: IncidentDoc) -> str:
    """Who acknowledged it last, if anybody has since it was opened."""
    since = [each for each in incident.get("operations", []) if each["what"] in ("ack", "opened", "reopened")]
    return since[-1]["who"] if since and since[-1]["what"] == "ack" else ""


def operation(done: OperationDoc) -> str:
    """One line of an incident's log in words."""
    until = [plain(done["until"] or "", 30)] if done.get("until") else []
    until += [f"step {step(done['until_step'])}"] if done.get("until_step") is not None else []
    told = [done["what"], *([f"until {' or '.join(until)}"] if until else [])]
    told += [f"at step {step(done['step'])}"] if done.get("step") is not None else []
    told += [str(done["severity"])] if done.get("severity") else []
    told += ["nobody told"] if done.get("silent") else []
    line = f"{plain(done['at'], 30)} {plain(done['who'], 60)}: {', '.join(told)}"
    return line + (f": {plain(done['why'], 300)}" if done.get("why") else "")


def explained(incident: IncidentDoc, events: Sequence[Event], most: int = 3) -> str:
    """The events near the onset with their offset in steps, or that there is none."""
    onset, detected = incident["onset_step"], incident["detected_step"]
    reach = max(detected - onset, abs(onset) * 0.01, 1.0)
    near = sorted((e for e in events if _touches(e, onset - reach, detected)), key=lambda e: abs(e.step - onset))
    if not near:
        return f"no event on record between step {step(onset - reach)} and {step(detected)}"
    told = [f"{e.kind} at step {step(e.step)} ({_offset(e.step - onset)}){_note(e)}" for e in near[:most]]
    return "; ".join(told) + (f"; and {len(near) - most} more" if len(near) > most else "")


def _touches(event: Event, first: float, last: float) -> bool:
    end = event.step if event.end_step is None else event.end_step
    return event.kind != "checkpoint" and event.step <= last and end >= first


def _offset(steps: float) -> str:
    return "at the onset" if steps == 0 else f"{step(abs(steps))} steps {'before' if steps < 0 else 'after'} the onset"


def _note(event: Event) -> str:
    return f": {plain(event.note, 80)}" if event.note else ""


def moved(findings: Sequence[FindingDoc], most: int = 4) -> str:
    """Each metric that moved once, in order of onset, with its lead over the first."""
    first: dict[str, FindingDoc] = {}
    for finding in sorted(findings, key=lambda f: (f["onset_step"], f["detected_step"], f["metric"])):
        first.setdefault(finding["metric"], finding)
    start = min((f["onset_step"] for f in first.values()), default=0.0)
    told = [
        f"{plain(name, 60) or 'the run'} {movement(f, f['onset_step'] - start)}"
        for name, f in list(first.items())[:most]
    ]
    return ", then ".join(told) + (f", and {len(first) - most} more metrics" if len(first) > most else "")


def movement(finding: FindingDoc, lead: float = 0.0) -> str:
    """Kind, direction and size of one finding, and its lag behind the first in steps."""
    value, towards = finding.get("magnitude", float("nan")), finding.get("direction", "")
    if isinstance(value, int | float) and towards in ("up", "down"):
        value = abs(value) if towards == "up" else -abs(value)
    size = magnitude(value, finding.get("unit", ""))
    arrow = {"up": "↑", "down": "↓"}.get(towards, "")
    after = f" (+{step(lead)} steps)" if lead else ""
    share = finding.get("evidence", {}).get("growth_share")
    if isinstance(share, int | float):
        return f"carries {number(100 * min(share, 1.0), 3)} % of the rise of the squared norm{after}"
    return " ".join(part for part in (finding["kind"], arrow, size + after) if part)


def stayed(incident: IncidentDoc, metrics: Mapping[str, str], most: int = 5) -> str:
    """Whole-run quantities that were judged and did not move: half of the diagnosis."""
    touched = {f.get("role") for f in incident.get("findings", [])}
    quiet = sorted({role for role in metrics.values() if role not in touched and role not in ("other", "")})
    if not metrics:
        return "unknown, only the metrics above were judged"
    return ", ".join(quiet[:most]) + (f" and {len(quiet) - most} more" if len(quiet) > most else "") or "nothing else"


def hypotheses(incident: IncidentDoc, most: int = 3) -> str:
    """Ranked patterns with their score, what speaks against the first, and the one thing that tells it from the next."""
    ranked = sorted(incident.get("hypotheses", []), key=lambda h: (-h.get("score", 0.0), h.get("pattern", "")))
    if not ranked:
        return "no pattern of the playbook fits"
    told = " / ".join(f"{plain(h['pattern'], 40)} {number(h.get('score', 0.0), 2)}" for h in ranked[:most])
    against = ranked[0].get("contradicted", [])
    told += f"; against the first: {plain('; '.join(map(str, against)), 100)}" if against else ""
    apart = next((each["apart"] for each in ranked if each.get("apart")), None)
    return told + (f"; told apart: {plain(apart['by'], 160)}" if apart else "")


def again(steps: Sequence[float]) -> str:
    """When to look again: "look again at steps 5,300, 5,425 and 6,275"."""
    *most, last = map(step, steps)
    return f"look again at steps {', '.join(most)} and {last}" if most else f"look again at step {last}"


def option(incident: IncidentDoc, index: int = 0) -> str:
    """One suggestion with its cost, whether it can be undone, and what speaks against it."""
    offered = incident.get("suggestions", [])
    if index >= len(offered):
        return "nothing in the playbook for this; wait and watch"
    one = offered[index]
    against = "; ".join(map(str, one.get("counter_evidence", []))) or "nothing known"
    undo = "reversible" if one.get("reversible") else "not reversible"
    cost = f"{one['cost']}, " if one.get("cost") else ""
    price = f"{plain(cost, 80)}{' ' if cost else ''}{undo}"
    when = f"; {again(one['again'])}" if one.get("again") else ""
    return f"{plain(one.get('do', ''), 160)} ({price}){when}; against: {plain(against, 140)}"


def rollback(incident: IncidentDoc, events: Sequence[Event], tokens_per_step: float | None = None) -> str:
    """The newest complete checkpoint before the first precursor, what going back there costs, and what data to skip."""
    findings = incident.get("findings", [])
    first = min([f["onset_step"] for f in findings] + [incident["onset_step"]])
    last = max([f["detected_step"] for f in findings] + [incident["detected_step"]])
    skip = f"skip the data of steps {step(first)} to {step(last)}"
    kept = [
        e.step for e in events if e.kind == "checkpoint" and e.step < first and e.detail.get("complete") is not False
    ]
    if not kept:
        return f"no checkpoint before the onset is on record (watchkeeper events add checkpoint --step N); {skip}"
    newest = max(kept)
    tokens = f" (about {_many((last - newest) * tokens_per_step)} tokens)" if tokens_per_step else ""
    return f"checkpoint {step(newest)} is the newest before the onset; {step(last - newest)} steps lost{tokens}; {skip}"


def _many(value: float) -> str:
    """ "888 million", "2.15 billion"."""
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{number(value / size, 3)} {word}"
    return f"{value:,.0f}"


def limits(incident: IncidentDoc, context: Context) -> str:
    """Confidence, who says so, what was not checked, and how fresh the data is."""
    names = sorted({plain(f["detector"], 40) for f in incident.get("findings", []) if f.get("detector")})
    told = [f"confidence {number(incident['confidence'], 2)}"] if incident.get("confidence") is not None else []
    told += [f"by {', '.join(names[:4])}"] if names else []
    if context.not_checked:
        count = len(context.not_checked)
        rest = f" and {count - 1} more" if count > 1 else ""
        told.append(f"not checked: {plain(context.not_checked[0][0], 40)}{rest}")
    told += [f"data up to step {step(context.last_step)}"] if context.last_step is not None else []
    return "; ".join(told)


def evidence_query(run: str, incident: IncidentDoc) -> str:
    """The shell command that shows the samples around the onset."""
    findings = incident.get("findings", [])
    name = next((f["metric"] for f in findings if f["metric"]), "")
    onset, detected = incident["onset_step"], incident["detected_step"]
    reach = max(detected - onset, 20.0)
    names = f" AND name = {_sql(name)}" if name else ""
    query = (
        f"SELECT step, name, value FROM history WHERE run = {_sql(run)}{names}"
        f" AND step BETWEEN {onset - reach:.10g} AND {detected + reach:.10g} ORDER BY step"
    )
    # double quotes read better, but only where the shell would change nothing inside them
    quoted = shlex.quote(query) if set(query) & set('"$`\\!') else f'"{query}"'
    return f"watchkeeper sql {quoted}"


def replay_command(run: str, incident: IncidentDoc) -> str:
    """The shell command that shows what a live watch had known around the incident."""
    first, last = incident["detected_step"], max(f["detected_step"] for f in incident["findings"])
    name = plain(run)
    quoted = shlex.quote(name) if not name.startswith("-") else f"-- {shlex.quote(name)}"
    return f"watchkeeper replay --from {first:.10g} --to {max(first, last):.10g} --min-severity S0 {quoted}"


def _sql(text: str) -> str:
    """A text literal of SQL."""
    return "'" + plain(text).replace("'", "''") + "'"
