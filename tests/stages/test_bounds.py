"""A user's own bounds through pull, judge and store: slices, restarts, and a configuration that changes."""

from itertools import pairwise

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.bounds import Bound
from flows.incidents.people import standing, unsettled
from flows.playbook import load_playbook
from flows.records import SAMPLE_SCHEMA, Description
from flows.sources.roles import role_of
from flows.stages.announce import announcer
from flows.stages.attempts import Tracker, assign
from flows.stages.bounds import Watched, bounds_of
from flows.stages.document import pending
from flows.stages.judge import judge
from flows.stages.runstate import RunState
from flows.store import open_store

WATCHED = [
    Watched(Bound("above", 2.5, 3, 3, "the budget says so"), role="loss"),
    Watched(Bound("below", 10.0, 1, 2), metric="disk/*"),
    Watched(Bound("above", 4.0), metric="params/norm/leaf[0]"),
]


def log(*lines):
    """Rows (step, name, value) in source order."""
    return pl.DataFrame([(float(s), None, n, float(v)) for s, n, v in lines], schema=SAMPLE_SCHEMA, orient="row")


class Run:
    """A run that grows pass by pass under the bounds of each pass."""

    def __init__(self):
        self.store = open_store(":memory:", clock=lambda: 1e9)
        self.store.register_run(Description("r", "made", "test", "step"))
        self.tracker = Tracker()

    def goes_on(self, frame, watched=WATCHED, final=False, announce=None):
        rows = assign(frame, self.tracker, final=final)
        self.store.append("r", rows, self.tracker.attempts, "c", self.tracker.dump(), {}, role_of)
        changes = judge(
            self.store, "r", load_playbook, clock=lambda: 1e9, watched=watched, announce=announce
        ).transitions
        return [(each.what, each.incident.severity, each.step) for each in changes]

    def own(self):
        """(attempt, metric, onset, detected, severity) of what bounds said."""
        keys = ("attempt", "metric", "onset_step", "detected_step", "severity")
        return [tuple(row[key] for key in keys) for row in self.store.findings("r") if row["detector"] == "bounds"]

    def words(self):
        rows = [row for row in self.store.incidents("r") if row["pattern"] == "own_bound"]
        return [(row["attempt"], row["status"], row["resolved_step"]) for row in rows]

    def not_checked(self):
        rows = self.store.coverage("r").filter(pl.col("check_name") == "bounds")
        return [(row["reason"], row["count"]) for row in rows.iter_rows(named=True)]


def test_roles_names_leaves_and_metrics_without_a_role_are_judged_alike():
    run = Run()
    frame = log(
        *[(s, "train/loss", 3.0) for s in range(4)],
        *[(s, "disk/free", 9.0 if s == 2 else 50.0) for s in range(4)],
        *[(s, "params/norm/leaf[0]", 5.0) for s in range(1)],
        *[(s, "params/norm/leaf0", 5.0) for s in range(1)],
        *[(s, "params/norm/leaf1", 5.0) for s in range(1)],
    )
    run.goes_on(frame, final=True)
    found = [(metric, onset, detected, severity) for _, metric, onset, detected, severity in run.own()]
    assert found == [
        ("params/norm/leaf0", 0.0, 0.0, 2),  # the pattern's class of characters
        ("params/norm/leaf[0]", 0.0, 0.0, 2),  # the very name
        ("disk/free", 2.0, 2.0, 2),
        ("train/loss", 0.0, 2.0, 3),
    ]
    assert run.not_checked() == [("checked", 3)]


def test_of_two_equal_bounds_the_more_severe_one_counts():
    twice = [Watched(Bound("above", 2.0, 1, s), metric="m*") for s in (1, 4, 2)]
    assert bounds_of(twice, "m", "other") == [Bound("above", 2.0, 1, 4)]


def test_a_bound_that_no_metric_has_is_not_checked_until_one_comes_or_it_goes():
    run = Run()
    run.goes_on(log((0, "train/loss", 1.0)))
    assert run.not_checked() == [("no such metric: disk/* below 10, params/norm/leaf[0] above 4", 3)]
    run.goes_on(log((1, "train/loss", 1.0)), WATCHED[:1])
    assert run.not_checked() == [("checked", 1)]
    run.goes_on(log((2, "train/loss", 1.0)), [])
    assert run.not_checked() == [("checked", 0)]


def losses(values, first=0):
    return log(*[(first + k, "train/loss", v) for k, v in enumerate(values)])


def test_a_new_bound_on_an_old_run_begins_with_the_next_sample():
    run = Run()
    run.goes_on(losses([3.0] * 300), [])
    assert run.goes_on(losses([3.0] * 2, 300)) == []
    assert run.goes_on(losses([3.0], 302)) == [("opened", 3, 302.0)]
    assert run.own() == [(0, "train/loss", 300.0, 302.0, 3)]


def test_a_bound_that_is_taken_away_ends_its_incident_with_a_note_even_without_new_samples():
    run = Run()
    run.goes_on(losses([3.0] * 5))
    assert run.goes_on(losses([]), []) == [("resolved", 3, 4.0)]
    (incident,) = run.store.incidents("r")
    assert incident["title"] == "train/loss is above 2.5 (3) since step 0: the budget says so; no longer asked for"
    assert run.goes_on(losses([3.0] * 5, 5), []) == []
    assert run.goes_on(losses([3.0] * 3, 10)) == [("reopened", 3, 12.0)]
    assert not run.store.incidents("r")[0]["title"].endswith("asked for")


def test_a_bound_comes_and_goes_on_a_metric_that_is_screened_with_many_others():
    run = Run()
    few = [Watched(Bound("above", 4.0), metric="params/norm/leaf1")]

    def leaves(first):
        return log(*[(s, f"params/norm/leaf{k}", 5.0) for s in range(first, first + 40) for k in range(3)])

    run.goes_on(leaves(0), [])
    assert run.goes_on(leaves(40), few) == [("opened", 2, 40.0)]
    assert run.goes_on(leaves(80), few) == []
    assert run.goes_on(leaves(120), []) == [("resolved", 2, 159.0)]
    assert run.goes_on(leaves(160), []) == []


def test_a_bound_that_goes_from_a_metric_of_a_core_role_leaves_no_claim_that_it_stopped():
    run = Run()
    memory = [Watched(Bound("above", 9.0), role="memory")]

    def lines(first):
        return log(*[(s, n, 5.0) for s in range(first, first + 100) for n in ("train/loss", "peak_memory")])

    for first in (0, 100, 200):
        run.goes_on(lines(first), memory if first < 200 else [])
    assert [row["detector"] for row in run.store.findings("r") if row["metric"] == "peak_memory"] == []


def test_another_severity_is_the_same_bound_and_tells_nothing_again():
    run = Run()
    run.goes_on(losses([3.0] * 5))
    louder = [Watched(Bound("above", 2.5, 3, 4), role="loss")]
    assert run.goes_on(losses([3.0] * 5, 5), louder) == []


def test_what_goes_on_over_a_restart_is_one_incident_that_ends_in_the_new_attempt():
    run = Run()
    run.goes_on(losses([1.0] * 50 + [3.0] * 50))
    assert run.goes_on(losses([3.0] * 20, 80)) == [("opened", 0, 99.0), ("resolved", 0, 99.0)]  # the rewind
    run.goes_on(losses([1.0] * 30, 100))
    assert run.words() == [(0, "resolved", 104.0)]
    assert run.own() == [(0, "train/loss", 50.0, 52.0, 3)]


def test_what_was_rolled_back_is_told_again_when_it_comes_again():
    run = Run()
    run.goes_on(losses([1.0] * 50 + [3.0] * 50))
    run.goes_on(losses([1.0] * 20 + [3.0] * 50, 40), final=True)
    assert run.words() == [(0, "resolved", 52.0), (1, "open", None)]
    assert run.own() == [(0, "train/loss", 50.0, 52.0, 3), (1, "train/loss", 60.0, 62.0, 3)]


def test_a_row_of_samples_goes_on_over_the_fork():
    run = Run()
    run.goes_on(losses([1.0] * 48 + [3.0] * 2 + [1.0] * 10))
    run.goes_on(losses([3.0] * 5, 50), final=True)
    assert run.own() == [(1, "train/loss", 48.0, 50.0, 3)]


def a_run(seed):
    rng = np.random.default_rng(seed)
    order = [*range(700), *range(550, 900)] if seed % 2 else list(range(900))
    rows = []
    for position, step in enumerate(order):
        wave = 2.2 + 0.5 * np.sin(position / 40) + 0.1 * rng.standard_normal()
        rows.append((step, "train/loss", np.nan if rng.random() < 0.05 else wave))
        if step % 7 == 0:
            rows.append((step, "disk/free", rng.choice([5.0, 50.0])))
    return log(*rows)


def judged(frames):
    run = Run()
    for number, frame in enumerate(frames):
        run.goes_on(frame, final=number == len(frames) - 1)
    rows = [{k: v for k, v in row.items() if k != "incident_id"} for row in run.store.findings("r")]
    return sorted(map(repr, rows)), sorted(map(repr, run.store.incidents("r")))


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 3), data=st.data())
def test_slices_give_the_same_findings_and_incidents_to_the_bit(seed, data):
    frame = a_run(seed)
    cuts = sorted(data.draw(st.lists(st.integers(1, len(frame) - 1), max_size=5)))
    parts = [frame[a:b] for a, b in zip([0, *cuts], [*cuts, len(frame)], strict=True)]
    assert judged(parts) == judged([frame])


def test_the_made_run_breaks_its_bounds_more_than_once():
    findings, _ = judged([a_run(1)])
    assert sum("'bounds'" in row and "train/loss" in row for row in findings) > 2


LONG = [Watched(Bound("above", 2.0, 20, 3), metric="m")]


def waiting(run):
    """What is pending: metric, how far, since when."""
    return [(each.what.metric, each.what.seen, each.what.onset_step) for each in state_of(run).pending]


def state_of(run):
    return RunState.load(run.store.run_state("r"))


def lines(run):
    """Words of the log by incident: what, at which step, why."""
    return [(each.kind, each.incident_id, each.step, each.why) for each in run.store.log("r")]


def row(first, n, value=3.0):
    return log(*[(s, "m", value) for s in range(first, first + n)])


def test_what_is_pending_is_on_record_with_its_end_and_nobody_is_told():
    run = Run()
    assert run.goes_on(row(0, 6), LONG) == []
    assert run.goes_on(row(6, 6), LONG) == []
    assert waiting(run) == [("m", 12, 0.0)]
    assert pending(run.store) == [("r", "m above 2 for 12 of 20 samples, since step 0")]
    run.goes_on(row(12, 1, 1.0), LONG)
    assert waiting(run) == [] and run.store.incidents("r") == []
    (began, name, step, why), ended = lines(run)
    assert (began, step, why) == ("pending", 4.0, "m above 2 for 5 of 20 samples")
    assert ended == ("dropped", name, 12.0, "m above 2 for 12 of 20 samples: it is no longer beyond the limit")
    log_ = run.store.log("r")
    assert all(each.silent for each in log_) and standing(log_).state == ""
    assert unsettled(log_) == unsettled(log_[:1]) == set()


def test_what_was_pending_becomes_the_incident_of_its_id():
    run = Run()
    run.goes_on(row(0, 10), LONG)
    (waits,) = state_of(run).pending
    assert run.goes_on(row(10, 15), LONG) == [("opened", 3, 19.0)]
    assert [each["incident_id"] for each in run.store.incidents("r")] == [waits.id]
    assert waiting(run) == [] and [kind for kind, *_ in lines(run)] == ["pending"]
    at_once = Run()
    at_once.goes_on(row(0, 25), LONG, announce=announcer(at_once.store, "r", {}, clock=lambda: 1e9))
    assert [(kind, name) for kind, name, *_ in lines(at_once)] == [("pending", waits.id), ("opened", waits.id)]


def test_what_joins_an_incident_that_is_there_ends_as_part_of_it():
    run = Run()
    run.goes_on(row(0, 1_000, 1.0), LONG)
    run.goes_on(row(1_000, 30), LONG)
    run.goes_on(row(1_030, 25, 1.0), LONG)
    run.goes_on(row(1_055, 25), LONG)
    (incident,) = run.store.incidents("r")
    kinds = [(kind, why.partition(": ")[2]) for kind, *_, why in lines(run)]
    assert kinds == [("pending", ""), ("pending", ""), ("dropped", f"it is part of incident {incident['incident_id']}")]


def test_missing_samples_keep_it_and_a_bound_that_is_gone_ends_it():
    run = Run()
    run.goes_on(row(0, 12), LONG)
    run.goes_on(log(*[(s, "other", 1.0) for s in range(12, 90)]), LONG)
    run.goes_on(row(90, 1), LONG)
    assert waiting(run) == [("m", 13, 0.0)]
    run.goes_on(row(0, 0), [])
    assert waiting(run) == [] and lines(run)[-1][3] == "m above 2 for 13 of 20 samples: no longer asked for"


def test_a_restart_ends_it_and_in_the_attempt_it_is_another():
    for name, seen, since in (("m", 5, 8.0), ("train/loss", 13, 0.0)):  # one of the crowd knows nothing of before
        run, watched = Run(), [Watched(Bound("above", 2.0, 20, 3), metric=name)]
        run.goes_on(log(*[(s, name, 3.0) for s in range(12)]), watched)
        run.goes_on(log(*[(s, name, 3.0) for s in range(8, 13)]), watched, final=True)
        assert waiting(run) == [(name, seen, since)]
        (_, first, *_), (_, second, step, _), ended = lines(run)
        assert first != second and step == (12.0 if name == "m" else 8.0)
        assert ended[:3] == ("dropped", first, 11.0)
        assert ended[3].endswith("above 2 for 12 of 20 samples: the run goes on from step 8 in another attempt")


@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(1, 119), max_size=5))
def test_slices_leave_the_same_words_in_the_log(cuts):
    values = (
        [3.0] * 6 + [1.0] * 8 + [3.0] * 25 + [1.0] * 30 + [3.0] * 12 + [1.0] * 4 + [3.0] * 15 + [1.0] * 12 + [3.0] * 8
    )
    frame = log(*[(s, "m", value) for s, value in enumerate(values)])

    def judged(cuts):
        run, edges = Run(), [0, *sorted(set(cuts)), len(frame)]
        for a, b in pairwise(edges):
            run.goes_on(frame[a:b], LONG, final=b == len(frame))
        return sorted(lines(run)), waiting(run)

    assert judged(cuts) == judged([])
    assert len(judged([])[0]) == 8
