"""A user's own bounds: sample by sample, whatever the slices, gaps and restarts."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors import bounds
from detectors.bounds import LEAST_BACK, Bound, carry, scan
from detectors.finding import Finding, Pending, Recovery

NAN = math.nan


def said(values, *limits, cuts=(), state=None, first=0.0):
    """Answers to the values at steps 0, 10, 20 ..., shown in slices."""
    step, value = first + 10.0 * np.arange(len(values)), np.array(values, float)
    out, now = [], state or {}
    for a, b in zip([0, *cuts], [*cuts, len(values)], strict=True):
        found, now = scan(step[a:b], value[a:b], now, limits, name="m", role="other")
        out += found
    return out, now


def told(values, *limits, **more):
    """(onset, detected) of what opens, the step of what ends."""
    answers = [a for a in said(values, *limits, **more)[0] if not isinstance(a, Pending)]
    return [(a.onset_step, a.detected_step) if isinstance(a, Finding) else a.step for a in answers]


def waits(values, *limits, **more):
    """(step, samples in a row, whether it is over) of what is pending."""
    answers = [a for a in said(values, *limits, **more)[0] if isinstance(a, Pending)]
    return [(a.step, a.seen, bool(a.over)) for a in answers]


def test_the_third_of_three_in_a_row_tells_from_the_first():
    assert told([1, 3, 3, 1, 3, 3, 3, 3], Bound("above", 2.0, 3)) == [(40.0, 60.0)]


def test_the_limit_itself_is_inside():
    assert told([2.0, 2.0], Bound("above", 2.0), Bound("below", 2.0)) == []
    assert told([math.nextafter(2.0, 3.0)], Bound("above", 2.0)) == [(0.0, 0.0)]
    assert told([math.nextafter(2.0, 1.0)], Bound("below", 2.0)) == [(0.0, 0.0)]


def test_it_ends_after_five_inside_or_as_many_as_opened_it():
    assert told([3] + [1] * 6, Bound("above", 2.0)) == [(0.0, 0.0), 50.0]
    assert told([3] * 7 + [1] * 9, Bound("above", 2.0, 7)) == [(0.0, 60.0), 130.0]
    assert told([3, 1, 1, 1, 1, 3, 1, 1, 1, 1], Bound("above", 2.0)) == [(0.0, 0.0)]


def test_nan_neither_breaks_a_row_nor_counts_in_it():
    assert told([3, NAN, 3, NAN, 3], Bound("above", 2.0, 3)) == [(0.0, 40.0)]
    assert told([3, NAN, NAN, NAN], Bound("above", 2.0, 2)) == []
    assert told([3, 1, 1, NAN, 1, 1, NAN, 1], Bound("above", 2.0)) == [(0.0, 0.0), 70.0]


def test_an_infinite_value_is_beyond():
    assert told([math.inf], Bound("above", 2.0)) == [(0.0, 0.0)]
    assert told([-math.inf], Bound("above", 2.0), Bound("below", 2.0)) == [(0.0, 0.0)]


def test_what_is_said_carries_the_word_of_the_user():
    (found,), _ = said([1, 1, 5], Bound("above", 2.0, 1, 3, "the disk fills"))
    assert (found.detector, found.kind, found.direction, found.severity) == ("bounds", "level", "up", 3)
    assert (found.magnitude, found.episode) == (3.0, "above:2.0:1@20")
    assert found.evidence == {
        "samples": 3, "samples_out": 1, "cadence": 10.0, "bound": "above:2.0:1", "side": "above", "limit": 2.0,
        "after": 5.0, "why": "the disk fills",
    }  # fmt: skip


def test_two_limits_on_one_metric_are_two_episodes():
    answers, _ = said([1, 3, 5], Bound("above", 2.0, severity=1), Bound("above", 4.0, severity=3))
    assert [(a.episode, a.severity) for a in answers] == [("above:2.0:1@10", 1), ("above:4.0:1@20", 3)]


def test_a_bound_that_is_new_begins_with_the_next_sample():
    old, new = Bound("above", 9.0), Bound("above", 2.0, 2)
    _, state = said([3, 3, 3], old)
    assert told([3, 3], old, new, state=state, first=30.0) == [(30.0, 40.0)]


def test_a_bound_that_is_gone_is_forgotten():
    _, state = said([3], Bound("above", 2.0))
    _, state = said([3], Bound("below", 0.0), state=state, first=10.0)
    assert set(state["of"]) == {"below:0.0:1"}


def test_another_severity_or_reason_is_the_same_bound():
    _, state = said([3], Bound("above", 2.0))
    assert told([3, 3], Bound("above", 2.0, 1, 4, "now it matters"), state=state, first=10.0) == []


VALUES = st.lists(st.sampled_from([NAN, 0.0, 1.0, 2.0, 3.0, math.inf, -math.inf]), max_size=60)
LIMITS = st.lists(
    st.builds(Bound, st.sampled_from(["above", "below"]), st.sampled_from([0.5, 1.0, 2.5]), st.integers(1, 7)),
    max_size=3,
    unique_by=lambda bound: bound.key,
)


@settings(deadline=None)
@given(values=VALUES, limits=LIMITS, data=st.data())
def test_any_slices_say_the_same_and_leave_the_same_state(values, limits, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=6)))
    whole, sliced = said(values, *limits), said(values, *limits, cuts=cuts)
    order = lambda pair: sorted(map(repr, pair))  # noqa: E731  # bounds take turns by slice
    assert order(sliced[0]) == order(whole[0])
    if values and limits:
        assert sliced[1] == whole[1]


@settings(deadline=None)
@given(values=VALUES, limits=LIMITS)
def test_samples_that_are_nan_change_nothing_but_the_steps_that_are_told(values, limits):
    def numbered(given):
        answers, _ = said(given, *limits)
        return sorted((a.detector, a.episode.partition("@")[0], isinstance(a, Finding)) for a in answers)

    assert numbered(values) == numbered([v for v in values if not math.isnan(v)])


@settings(deadline=None)
@given(values=VALUES, side=st.sampled_from(["above", "below"]), limit=st.sampled_from([0.5, 1.0]), n=st.integers(1, 7))
def test_it_says_what_counting_sample_by_sample_says(values, side, limit, n):
    out = inside = 0
    since, is_open, expected = 0.0, False, []
    for index, value in enumerate(values):
        if math.isnan(value):
            continue
        if value > limit if side == "above" else value < limit:
            since = since if out else 10.0 * index
            out, inside = out + 1, 0
            if out == n and not is_open:
                is_open = True
                expected.append((since, 10.0 * index))
        else:
            out, inside = 0, inside + 1
            if is_open and inside == max(n, LEAST_BACK):
                is_open = False
                expected.append(10.0 * index)
    assert told(values, Bound(side, limit, n)) == expected


def test_a_restart_keeps_what_was_open_before_the_samples_that_are_shown_again():
    bound = Bound("above", 2.0)
    _, state = said([1, 3, 3, 3, 3], bound)
    assert told([3] + [1] * 5, bound, state=carry(state, 30.0), first=30.0) == [80.0]
    # it began in what is shown again: shown again it opens again, unless the new attempt forked before it
    assert told([3, 3], bound, state=carry(state, 10.0), first=10.0) == [(10.0, 10.0)]
    assert carry({}, 0.0) == {"of": {}}


def test_the_docstring_tells_what_every_detector_tells():
    assert bounds.DETECTOR == ("bounds", 1)
    for promise in ("Sees:", "Silent:", "Fooled by:", "False alarms:", "Units:"):
        assert promise in bounds.__doc__


def test_a_recovery_names_the_episode_that_it_ends():
    answers, _ = said([3] + [1] * 5, Bound("above", 2.0))
    assert answers[1] == Recovery("bounds", "m", "above:2.0:1@0", 50.0)


TWENTY = Bound("above", 2.0, 20)


def test_a_row_is_pending_from_a_quarter_of_what_was_asked_for_until_it_breaks_or_opens():
    assert waits([3] * 4, TWENTY) == []
    assert waits([3] * 5, TWENTY) == [(40.0, 5, False)]
    assert waits([3] * 12 + [1], TWENTY) == [(40.0, 5, False), (110.0, 12, False), (120.0, 12, True)]
    assert waits([3] * 25 + [1] * 30 + [3] * 2, TWENTY) == [(40.0, 5, False), (180.0, 19, False)]
    assert told([3] * 25, TWENTY) == [(0.0, 190.0)]


def test_of_few_samples_none_is_pending():
    assert [Bound("above", 2.0, n).shown for n in (1, 8, 9, 12, 30)] == [1, 8, 3, 3, 8]
    assert waits([3] * 7 + [1], Bound("above", 2.0, 8)) == []


def test_what_is_missing_leaves_a_row_pending_as_it_is():
    assert waits([3] * 6 + [NAN] * 9, TWENTY) == [(40.0, 5, False), (50.0, 6, False)]
    _, state = said([3] * 6, TWENTY)
    assert waits([NAN] * 9, TWENTY, state=state, first=60.0) == []
    assert waits([3], TWENTY, state=state, first=600.0) == [(600.0, 7, False)]


def test_what_is_pending_says_what_it_may_become():
    (found,) = [a for a in said([1] + [3] * 5, Bound("below", 4.0, 20, 3))[0] if isinstance(a, Pending)][:1]
    assert (found.episode, found.onset_step, found.about, found.unit, found.wanted, found.severity) == (
        "below:4.0:20@0", 0.0, "below 4", "samples", 20, 3,
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(out=st.lists(st.integers(1, 30), min_size=1, max_size=6), data=st.data())
def test_slices_say_where_a_row_began_to_be_pending_and_where_it_broke_alike(out, data):
    values = [v for n in out for v in [3.0] * n + [1.0] * 3]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=5)))

    def turns(cuts):
        """The first word and the last one of each row; how far it has come in between is told pass by pass."""
        told: dict[str, list] = {}
        for a in (a for a in said(values, TWENTY, cuts=cuts)[0] if isinstance(a, Pending)):
            told.setdefault(a.episode, []).append((a.step, a.seen, a.over))
        return {episode: (rows[0], [row for row in rows if row[2]]) for episode, rows in told.items()}

    assert turns(cuts) == turns([])
