"""From answers to incidents, and from two pictures of the incidents to what changed between them."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from detectors.apart import tell_apart
from detectors.cause import confidence
from detectors.finding import Finding, NotChecked, Recovery
from detectors.pattern import Pattern
from flows.incidents.causes import UNKNOWN, hypotheses, lasting, suggestions
from flows.incidents.filling import fill, priced
from flows.incidents.grouping import Group, group
from flows.incidents.incident import (
    Episode,
    Incident,
    Transition,
    canonical,
    episode_of,
    identity_of,
    incident_id,
    own_word,
    stable_id,
)
from flows.incidents.reach import SETTLED, closes, is_slow
from flows.incidents.severity import KnownEvent, StepOf, history, known_events
from flows.incidents.states import COOLING, FIRING, cooling
from flows.incidents.title import leading, title
from flows.records import Event

HYPOTHESES = 3  # how many an incident carries


@dataclass(frozen=True)
class _Context:
    run: str
    attempt: int
    events: Sequence[KnownEvent]
    patterns: Sequence[Pattern]
    roles: Collection[str]
    names: Collection[str]
    valid_until: float | None
    horizon_step: float


def fold(
    run: str,
    attempt: int,
    answers: Iterable[Finding | Recovery | NotChecked],
    events: Sequence[Event],
    playbook: Sequence[Pattern],
    *,
    horizon_step: float,
    roles: Collection[str] = (),
    names: Collection[str] = (),
    known: Sequence[Incident] = (),
    step_of: StepOf | None = None,
    valid_until: float | None = None,
) -> list[Incident]:
    """The incidents of one attempt, in order of their first finding; a function of the set of answers.

    Answers and events that were not known by `horizon_step` are left out. `roles` and `names` are those of metrics with
    at least one sample (so that "flat" and "not logged" differ). `known` gives incidents of earlier folds: one that
    shares findings with them keeps its id. `step_of` turns an event's `recorded_at` into the step from which it counts.
    Incidents that began at or after `valid_until` (the step at which a later attempt begins) were rolled back and are
    resolved.
    """
    told = [item for item in answers if not isinstance(item, NotChecked)]
    told = [item for item in told if (item.step if isinstance(item, Recovery) else item.detected_step) <= horizon_step]
    groups = _groups(told)
    context = _Context(
        run, attempt, known_events(events, horizon_step, step_of), playbook, roles, names, valid_until, horizon_step
    )
    names = _ids(groups, [item for item in known if item.attempt == attempt], run, attempt)
    return [_incident(name, item, context) for name, item in zip(names, groups, strict=True)]


def _groups(told: Sequence[Finding | Recovery]) -> list[Group]:
    """What detectors say has common origins; each bound or check of a user stands apart, so that none hides another."""
    words: dict[str, list[Finding | Recovery]] = {}
    for answer in told:
        words.setdefault(own_word(answer), []).append(answer)
    return sorted((item for part in words.values() for item in group(part)), key=lambda item: canonical(item.anchor))


def _ids(groups: Sequence[Group], known: Sequence[Incident], run: str, attempt: int) -> list[str]:
    """Ids of the groups: a known one where most findings are shared, else a hash of the first finding."""
    home = {identity_of(finding): index for index, item in enumerate(groups) for finding in item.findings}
    taken: dict[int, str] = {}
    for incident in sorted(known, key=lambda item: (item.detected_step, item.id)):
        shared = [home[key] for finding in incident.findings if (key := identity_of(finding)) in home]
        for index in sorted(set(shared), key=lambda index: (-shared.count(index), index)):
            if index not in taken:
                taken[index] = incident.id
                break
    used = set(taken.values())
    for index, item in enumerate(groups):
        if index not in taken:
            first = item.anchor
            name = incident_id(run, attempt, episode_of(first), first.onset_step, first.detected_step)
            taken[index] = name if name not in used else stable_id(name)  # its finding had another home before
            used.add(taken[index])
    return [taken[index] for index in range(len(groups))]


def _incident(name: str, item: Group, context: _Context) -> Incident:
    findings = tuple(item.findings)
    onset = onset_of(findings)
    rolled_back = context.valid_until is not None and onset >= context.valid_until and item.resolved_step is None
    resolved = findings[-1].detected_step if rolled_back else item.resolved_step
    quiet = _over(findings, resolved, context)
    cools = quiet is not None and quiet > context.horizon_step
    if cools:
        quiet, resolved = resolved, None
    levels = history(findings, context.events, context.patterns)
    lasted = lasting(findings, item.recovered, findings[-1].detected_step if rolled_back else context.horizon_step)
    table = {pattern.name: pattern for pattern in context.patterns}
    ranked = hypotheses(lasted, levels[-1][1], context.events, context.patterns, context.roles, context.names)
    return Incident(
        id=name,
        run=context.run,
        attempt=context.attempt,
        severity=levels[-1][1],
        status="open" if resolved is None else "resolved",
        title=title(findings, resolved, rolled_back),
        pattern=ranked[0].pattern if ranked else UNKNOWN,
        confidence=confidence(ranked),
        onset_step=onset,
        detected_step=findings[0].detected_step,
        resolved_step=resolved,
        severity_history=levels,
        findings=findings,
        hypotheses=tuple(fill(tell_apart(ranked[:HYPOTHESES], table), leading(findings), context.run)),
        suggestions=priced(suggestions(ranked, table), findings, levels[-1][1]),
        cooling=cools,
        quiet_step=quiet,
    )


def _over(findings: Sequence[Finding], resolved: float | None, context: _Context) -> float | None:
    """The step at which a recovery has lasted. An attempt that a later one cut off has no more samples to wait for."""
    if resolved is None or context.valid_until is not None:
        return resolved
    return resolved + cooling(findings)


def onset_of(findings: Sequence[Finding]) -> float:
    """The first step of any of them. A wider spread begins with its block of samples: if what is known to the sample
    began inside that block, the block is wide because of it, and its beginning says nothing. So it is with a trend in
    whose window the metric took a step."""
    exact = [item for item in findings if item.kind != "variance"]

    def only_its_window(item: Finding) -> bool:
        if not is_slow(item):
            return False
        steps = [each for each in exact if each.metric == item.metric and each.kind in SETTLED]
        others = exact if item.kind == "variance" else steps
        return any(item.onset_step <= each.onset_step <= item.detected_step for each in others)

    kept = [item for item in findings if not only_its_window(item)]
    # a drift that is told after something sharp has no say: its onset is an estimate over a long window
    sharp = min((item.detected_step for item in kept if not is_slow(item)), default=math.inf)
    return min(item.onset_step for item in kept if not is_slow(item) or item.detected_step <= sharp)


def may_change(incident: Incident, horizon_step: float) -> bool:
    """May answers after `horizon_step` (the step that every metric has passed) still join this incident?

    A judge folds the answers of these incidents and the new ones; the others are closed for good.
    """
    if incident.resolved_step is None:
        return True
    return horizon_step <= closes(incident.findings, incident.resolved_step)


def remembered(
    answers: Iterable[Finding | Recovery], incidents: Sequence[Incident], horizon_step: float
) -> list[Finding | Recovery]:
    """The answers a judge must fold again later: those of incidents that may still change after `horizon_step`."""
    live = [item for item in incidents if may_change(item, horizon_step)]
    findings = {identity_of(finding) for item in live for finding in item.findings}
    since: dict[Episode, float] = {}
    for item in live:
        for finding in item.findings:
            episode = episode_of(finding)
            since[episode] = min(finding.detected_step, since.get(episode, finding.detected_step))
    return [
        answer
        for answer in answers
        if (isinstance(answer, Finding) and identity_of(answer) in findings)
        or (isinstance(answer, Recovery) and answer.step >= since.get(episode_of(answer), float("inf")))
    ]


def transitions(before: Sequence[Incident], after: Sequence[Incident]) -> list[Transition]:
    """What changed, in order of steps. An incident made only of findings told before is not announced again."""
    old = {item.id: item for item in before}
    told = {(item.attempt, *episode) for item in before for episode in item.episodes()}
    out: list[Transition] = []
    for item in after:
        was = old.get(item.id)
        if was is not None:
            out += _changes(was, item)
        elif any((item.attempt, *episode) not in told for episode in item.episodes()):
            out.append(Transition(item, "opened", item.detected_step))
            out += _ended(item)
    return sorted(out, key=lambda item: item.step)  # stable: the order of one incident's changes stays


def _changes(was: Incident, now: Incident) -> list[Transition]:
    out: list[Transition] = []
    known = {identity_of(item) for item in was.findings}
    fresh = [item.detected_step for item in now.findings if identity_of(item) not in known]
    again = bool(fresh) and was.resolved_step is not None and now.resolved_step != was.resolved_step
    if again:
        out.append(Transition(now, "reopened", min(fresh)))
    elif was.cooling and now.state == FIRING:
        out.append(Transition(now, FIRING, min(fresh, default=now.findings[-1].detected_step)))
    if now.severity != was.severity:
        what = "escalated" if now.severity > was.severity else "lowered"
        out.append(Transition(now, what, now.severity_history[-1][0]))
    return out + (_ended(now) if again or (was.status == "open" and now.state != was.state) else [])


def _ended(item: Incident) -> list[Transition]:
    """That it cools, or that it is over: at the step at which that was known."""
    if item.state == FIRING:
        return []
    steps = (item.quiet_step, item.resolved_step, item.findings[-1].detected_step)
    what = COOLING if item.state == COOLING else "resolved"
    return [Transition(item, what, next(step for step in steps if step is not None))]


def superseded(before: Sequence[Incident], after: Sequence[Incident]) -> list[Incident]:
    """Known incidents whose findings a late answer has joined to another one: closed forms of them, to be saved.

    Only incidents of which `after` holds an episode under another id count; those that are merely out of sight do not.
    """
    ids = {item.id for item in after}
    homes = {(item.attempt, *episode): item.id for item in after for episode in item.episodes()}
    closed = []
    for item in before:
        new = sorted({home for episode in item.episodes() if (home := homes.get((item.attempt, *episode)))})
        if item.id not in ids and new:
            step = max(finding.detected_step for finding in item.findings)
            closed.append(
                replace(
                    item,
                    status="resolved",
                    resolved_step=item.resolved_step or step,
                    title=f"{item.title} (now part of {new[0]})",
                )
            )
    return closed
