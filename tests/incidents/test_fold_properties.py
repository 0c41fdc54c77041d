"""What must hold for any set of answers, in any order, cut anywhere."""

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from detectors.finding import Finding, Recovery
from flows.incidents import fold, may_change, remembered, transitions
from flows.incidents.incident import OWN
from flows.playbook import load_playbook
from flows.records import Event

PLAYBOOK = load_playbook()
patient = settings(deadline=None)  # a busy machine is no failure
METRICS = [("train/loss", "loss"), ("grad/norm/total", "grad_norm"), ("eval/loss", "eval_loss"), ("mfu", "mfu")]
EVENTS = [Event("batch_size", 3_000), Event("data_mix", 6_000, recorded_at=None)]
KINDS = ["spike", "level", "trend", "divergence", "nonfinite", "overfit"]


@st.composite
def findings(draw):
    metric, role = draw(st.sampled_from(METRICS))
    kind = draw(st.sampled_from(KINDS))
    onset = float(draw(st.integers(0, 8_000)))
    return Finding(
        detector=kind,
        version=1,
        kind=kind,
        metric=metric,
        role=role,
        direction=draw(st.sampled_from(["up", "down"])),
        onset_step=onset,
        detected_step=onset + draw(st.sampled_from([0, 1, 3, 40, 900])),
        magnitude=draw(st.sampled_from([0.1, float("nan"), float("inf")])),
        unit="log",
        severity=draw(st.integers(0, 4)),
        episode=draw(st.sampled_from("abc")) + str(int(onset) // 2_000),
        evidence={"cadence": 500.0 if role == "eval_loss" else 1.0, "samples": draw(st.sampled_from([50, 5_000]))},
    )


@st.composite
def own_words(draw):
    """What a user's bound or check says of the same metrics at the same steps."""
    item = draw(findings())
    limit = draw(st.sampled_from([1.0, 2.0]))
    evidence = {
        **item.evidence,
        "bound": f"above:{limit}:1",
        "side": "above",
        "limit": limit,
        "after": 3.0,
        "why": "mine",
    }
    name, evidence = draw(st.sampled_from([("bounds", evidence), ("checks", item.evidence)]))
    episode = f"above:{limit}:1@{item.onset_step:.15g}"
    return replace(item, detector=name, episode=episode, evidence=evidence)


@st.composite
def sets_of_answers(draw):
    said = draw(st.lists(st.one_of(findings(), findings(), own_words()), max_size=14))
    bounds = {(item.metric, item.episode): item for item in said if item.detector == "bounds"}  # each speaks once
    said = [item for item in said if item.detector != "bounds" or bounds[item.metric, item.episode] is item]
    lags = draw(st.lists(st.integers(0, 400), min_size=len(said), max_size=len(said)))
    ended = draw(st.lists(st.booleans(), min_size=len(said), max_size=len(said)))
    back = [
        Recovery(item.detector, item.metric, item.episode, item.detected_step + lag)
        for item, lag, over in zip(said, lags, ended, strict=True)
        if over
    ]
    return [*said, *back]


def folded(answers, horizon_step=1e9, known=()):
    return fold("run", 0, answers, EVENTS, PLAYBOOK, horizon_step=horizon_step, roles={"loss", "mfu"}, known=known)


def known_at(answer):
    return answer.step if isinstance(answer, Recovery) else answer.detected_step


@patient
@given(sets_of_answers(), st.randoms())
def test_the_order_of_the_answers_does_not_matter(answers, chance):
    shuffled = list(answers)
    chance.shuffle(shuffled)
    assert repr(folded(shuffled)) == repr(folded(answers))


@patient
@given(sets_of_answers(), st.integers(0, 9_000))
def test_a_later_fold_only_adds_to_an_earlier_one(answers, cut):
    early = folded([item for item in answers if known_at(item) <= cut], horizon_step=cut)
    late = {incident.id: incident for incident in folded(answers)}
    for incident in early:
        grown = late[incident.id]
        assert repr(grown.findings[: len(incident.findings)]) == repr(incident.findings)
        assert grown.onset_step <= incident.onset_step
        assert grown.detected_step == incident.detected_step
        assert grown.severity_history[: len(incident.severity_history)] == incident.severity_history


@patient
@given(sets_of_answers(), st.integers(0, 9_000))
def test_the_horizon_is_the_same_as_not_having_heard(answers, cut):
    heard = [item for item in answers if known_at(item) <= cut]
    assert repr(folded(answers, horizon_step=cut)) == repr(folded(heard, horizon_step=cut))


@patient
@given(sets_of_answers())
def test_no_finding_is_lost_or_doubled(answers):
    given_ = {repr(item) for item in answers if isinstance(item, Finding)}
    kept = [repr(item) for incident in folded(answers) for item in incident.findings]
    assert sorted(kept) == sorted(given_)


@patient
@given(sets_of_answers())
def test_severity_is_that_of_the_findings_unless_rules_or_events_say_less(answers):
    for incident in folded(answers):
        highest = max(item.severity for item in incident.findings)
        catastrophic = [i.severity for i in incident.findings if i.kind in ("nonfinite", "divergence")]
        assert incident.severity >= max(catastrophic, default=0)
        assert incident.severity <= max(highest, 2)
        assert incident.severity == incident.severity_history[-1][1]


@patient
@given(sets_of_answers(), st.integers(0, 9_000))
def test_transitions_are_told_once_and_end_where_the_incident_is(answers, cut):
    early, late = folded(answers, horizon_step=cut), folded(answers)
    assert transitions(early, early) == transitions(late, late) == []
    last = {t.incident.id: t.what for t in transitions(early, late)}
    for incident in late:
        assert (last.get(incident.id) == "resolved") <= (incident.status == "resolved")


def named_again():
    """A spike that is over, and long after that one of the same name and onset."""
    first = Finding(
        "spike", 1, "spike", "grad/norm/total", "grad_norm", "up", 117.0, 117.0, 0.1, "log", 0, "a0",
        {"cadence": 1.0, "samples": 50},
    )  # fmt: skip
    return [first, Recovery("spike", "grad/norm/total", "a0", 117.0), replace(first, detected_step=157.0)]


@patient
@given(sets_of_answers(), st.lists(st.integers(0, 9_000), max_size=6))
@example(named_again(), [138])
def test_slices_that_forget_what_is_closed_end_like_one_go(answers, cuts):
    final, live, known, done = {}, [], [], 0.0
    for cut in [*sorted(cuts), 1e9]:
        live += [item for item in answers if done <= known_at(item) < cut or (cut == 1e9 and known_at(item) == cut)]
        known = folded(live, horizon_step=cut, known=known)
        final |= {incident.id: incident for incident in known}
        live = remembered(live, known, cut)
        known, done = [incident for incident in known if may_change(incident, cut)], cut
    whole = folded(answers)
    assert sorted(map(repr, final.values())) == sorted(map(repr, whole))


@patient
@given(sets_of_answers())
def test_every_incident_has_a_sentence_a_pattern_and_a_suggestion_with_its_counter_evidence(answers):
    for incident in folded(answers):
        assert incident.title and "nan" not in incident.title.lower().replace("became nan", "")
        assert 0 < incident.confidence <= 1
        assert incident.suggestions and all(item.counter_evidence for item in incident.suggestions)


@patient
@given(sets_of_answers())
def test_a_users_own_word_and_what_detectors_say_change_nothing_of_each_other(answers):
    own = [item for item in answers if item.detector in OWN]
    others = [item for item in answers if item.detector not in OWN]
    assert sorted(map(repr, folded(answers))) == sorted([*map(repr, folded(own)), *map(repr, folded(others))])


@patient
@given(sets_of_answers())
def test_a_users_own_word_is_as_severe_as_it_was_asked_for(answers):
    for incident in folded([item for item in answers if item.detector in OWN]):
        assert incident.severity == max(item.severity for item in incident.findings)
        assert incident.pattern == "own_bound"
        assert len({(item.detector, item.episode.partition("@")[0]) for item in incident.findings}) == 1
