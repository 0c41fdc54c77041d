"""Which runs look like one that was restarted, and which only look alike."""

import numpy as np
import pytest

from flows.records import Kin
from flows.sources.relaunches import Seen, propose, stem


def seen(run, first, last, *, every=1, began=None, whole=True, **kin):
    steps = np.arange(first, last + 1, every, dtype=float)
    ended = None if began is None else began + len(steps)
    return Seen(f"{run}.jsonl", run, steps, whole, began, ended, Kin(**kin))


def told(proposal):
    return [(part.seen.run, part.reason, part.parent, part.last) for part in proposal.parts]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hero", "hero"), ("hero-r2", "hero"), ("hero_resume3", "hero"), ("hero-restart-2", "hero"), ("hero.2", "hero"),
        ("hero-12-resumed", "hero"), ("hero 1a2b3c4d", "hero"), ("Hero-Retry", "Hero"), ("hero-lr2", "hero-lr2"),
        ("resume", "resume"), ("version_3", "version"), ("a-rerun", "a-rerun"), ("moe-d512", "moe-d512"),
    ],
)  # fmt: skip
def test_the_stem_of_a_name(name, expected):
    assert stem(name) == expected


def test_restarts_in_whatever_order_they_were_named():
    runs = [seen("hero-r3", 141, 300), seen("hero", 1, 100), seen("hero-r2", 81, 150), seen("other", 1, 90)]
    (found,) = propose(runs)
    assert found.name == "hero"
    assert found.why == "they are called alike (hero)"
    assert told(found) == [
        ("hero", "start", "", 80.0),
        ("hero-r2", "restart", "", 140.0),
        ("hero-r3", "restart", "", None),
    ]


def test_one_that_goes_on_directly_behind_hides_nothing():
    (found,) = propose([seen("hero", 0, 990, every=10), seen("hero-r2", 1000, 2000, every=10)])
    assert told(found) == [("hero", "start", "", None), ("hero-r2", "restart", "", None)]
    assert propose([seen("hero", 0, 990, every=10), seen("hero-r2", 1020, 2000, every=10)]) == []


def test_members_of_a_sweep_are_apart():
    assert propose([seen("sweep-1", 0, 100), seen("sweep-2", 0, 120)]) == []
    assert propose([seen("sweep-1", 0, 100, began=10.0), seen("sweep-2", 0, 120, began=500.0)]) == []
    # two branches of one checkpoint that ran side by side
    branches = [seen("b-1", 0, 100, began=0.0), seen("b-2", 80, 200, began=200.0), seen("b-3", 80, 200, began=250.0)]
    (found,) = propose(branches)
    assert [part.seen.run for part in found.parts] == ["b-1", "b-2"]


def test_nothing_is_guessed_where_a_run_fits_two_others():
    assert propose([seen("a-1", 0, 100), seen("a-2", 10, 30), seen("a-3", 50, 120)])[0].parts[2].parent == "a-1.jsonl"
    two = [seen("a-1", 0, 100, began=0.0), seen("a-2", 0, 100, began=200.0), seen("a-3", 50, 120, began=400.0)]
    assert propose(two) == []
    assert propose([seen("a-1", 0, 100), seen("a-2", 50, 70), seen("a-3", 50, 120)]) == []


def test_the_clock_tells_the_order_of_two_that_begin_at_one_step():
    runs = [seen("a", 0, 100, began=0.0), seen("a-r3", 80, 150, began=900.0), seen("a-r2", 80, 90, began=500.0)]
    (found,) = propose(runs)
    assert told(found) == [
        ("a", "start", "", 79.0),
        ("a-r2", "restart", "", None),
        ("a-r3", "restart", "a.jsonl", None),
    ]


def test_a_group_of_the_tracker_and_a_fork():
    (found,) = propose([seen("x", 0, 50, group="g"), seen("y", 40, 90, group="g")])
    assert (found.name, found.why) == ("x", "the tracker has them in one group (g)")
    runs = [
        seen("hero", 0, 100, id="i1"),
        seen("nccl", 60, 80, id="i2", parent="i1"),
        seen("mix", 70, 200, id="i3", parent="i1"),
    ]
    (found,) = propose(runs)
    assert told(found) == [
        ("hero", "start", "", 59.0),
        ("nccl", "fork", "", None),
        ("mix", "fork", "hero.jsonl", None),
    ]


def test_names_that_tell_the_step_at_which_they_begin():
    runs = [seen("hero-12d8b6f0", 0, 54_262), seen("hero-ep-step54k", 54_000, 60_000), seen("hero-wd", 10, 90)]
    (found,) = propose(runs)
    assert found.name == "hero-12d8b6f0"
    assert len(found.parts) == 2  # hero-wd is one of its own
    assert told(found)[0] == ("hero-12d8b6f0", "start", "", 53_999.0)
    assert propose([runs[0], seen("hero-ep-step54k", 20_000, 60_000)]) == []


def test_of_a_log_that_was_not_read_to_its_end_the_end_is_no_bound():
    (found,) = propose([seen("a", 0, 10, whole=False), seen("a-r2", 5_000, 6_000)])
    assert told(found) == [("a", "start", "", None), ("a-r2", "restart", "", None)]


def test_without_rows_there_is_nothing_to_say():
    assert propose([seen("a", 0, 10), seen("a-r2", 5, 4)]) == []
    assert propose([]) == []
