"""A logical run of several source runs: one history, whatever was abandoned on the way."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.sources.catalogue import open_sources
from flows.sources.lineage import Chain, Segment
from flows.sources.roles import role_of
from flows.stages.pull import pull
from flows.store import open_store


def write(path: Path, steps, level: float) -> str:
    path.write_text("".join(json.dumps({"step": s, "loss": level + s / 1000, "lr": 1e-3}) + "\n" for s in steps))
    return str(path)


def segment(path: str, **rest) -> Segment:
    (source,) = open_sources(path)
    return Segment(Path(path).stem, source, **rest)


def stored(tmp_path: Path, *chains: Chain):
    """(step, value) of the loss as the run stands, and its attempts, after a pull of each chain in turn."""
    store = open_store(str(tmp_path / "store.duckdb"), clock=lambda: 1e9)
    for chain in chains:
        pull(store, chain, role_of)
    history = store.history("hero", "loss").select("step", "value").rows()
    line = [(a.source, a.first_step, a.valid_until, a.parent, a.reason) for a in store.attempts("hero")]
    return history, line


def test_segments_become_attempts_and_an_abandoned_tail_is_hidden(tmp_path):
    a = write(tmp_path / "a.jsonl", range(1, 101), 1.0)
    b = write(tmp_path / "b.jsonl", range(81, 151), 2.0)
    history, line = stored(tmp_path, Chain("hero", [segment(a), segment(b, reason="rollback")]))
    assert line == [("a", 1.0, 81.0, None, "start"), ("b", 81.0, None, 0, "rollback")]
    assert history == [(float(s), 1.0 + s / 1000) for s in range(1, 81)] + [
        (float(s), 2.0 + s / 1000) for s in range(81, 151)
    ]


def test_a_segment_that_does_not_go_back_begins_an_attempt_too(tmp_path):
    a = write(tmp_path / "a.jsonl", range(1, 101), 1.0)
    b = write(tmp_path / "b.jsonl", range(101, 151), 2.0)
    history, line = stored(tmp_path, Chain("hero", [segment(a), segment(b)]))
    assert [each[:4] for each in line] == [("a", 1.0, 101.0, None), ("b", 101.0, None, 0)]
    assert [step for step, _ in history] == [float(s) for s in range(1, 151)]


def test_what_lies_behind_the_last_valid_step_is_hidden_though_the_next_begins_later(tmp_path):
    a = write(tmp_path / "a.jsonl", range(1, 101), 1.0)
    b = write(tmp_path / "b.jsonl", range(95, 151), 2.0)
    history, _ = stored(tmp_path, Chain("hero", [segment(a, last=80), segment(b, first=120)]))
    assert [step for step, _ in history] == [*map(float, range(1, 81)), *map(float, range(120, 151))]


def test_a_fork_from_an_earlier_segment_leaves_the_one_between_out(tmp_path):
    a = write(tmp_path / "a.jsonl", range(1, 101), 1.0)
    b = write(tmp_path / "b.jsonl", range(51, 121), 2.0)
    c = write(tmp_path / "c.jsonl", range(81, 131), 3.0)
    history, line = stored(tmp_path, Chain("hero", [segment(a), segment(b), segment(c, parent="a")]))
    assert [each[:4] for each in line] == [("a", 1.0, 81.0, None), ("b", 51.0, 51.0, 0), ("c", 81.0, None, 0)]
    assert history == [(float(s), 1.0 + s / 1000) for s in range(1, 81)] + [
        (float(s), 3.0 + s / 1000) for s in range(81, 131)
    ]


def test_a_segment_that_is_added_later_goes_on_and_nothing_is_read_twice(tmp_path):
    a = write(tmp_path / "a.jsonl", range(1, 101), 1.0)
    first = Chain("hero", [segment(a)])
    store = open_store(str(tmp_path / "store.duckdb"), clock=lambda: 1e9)
    assert pull(store, first, role_of).new_rows == 200
    b = write(tmp_path / "b.jsonl", range(61, 91), 2.0)
    both = Chain("hero", [segment(a), segment(b)])
    assert pull(store, both, role_of).new_rows == 60
    assert pull(store, both, role_of).new_rows == 0
    assert [each.valid_until for each in store.attempts("hero")] == [61.0, None]


def test_a_segment_that_was_replaced_is_read_again_from_the_first_on(tmp_path):
    a = write(tmp_path / "a.jsonl", range(1, 101), 1.0)
    b = write(tmp_path / "b.jsonl", range(61, 91), 2.0)
    one = Chain("hero", [segment(a), segment(b)])
    write(tmp_path / "b.jsonl", range(61, 91), 4.0)
    store = open_store(str(tmp_path / "store.duckdb"), clock=lambda: 1e9)
    pull(store, one, role_of)
    write(tmp_path / "b.jsonl", range(61, 96), 5.0)
    pull(store, Chain("hero", [segment(a), segment(b)]), role_of)
    line = store.history("hero", "loss").select("step", "value").rows()
    assert line[-1] == (95.0, 5.0 + 0.095)
    assert line[59] == (60.0, 1.06)
    assert line[60] == (61.0, 5.061)


few = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@few
@given(data=st.data())
def test_growing_segments_give_the_history_of_whole_ones(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("lineage")
    forks = data.draw(st.lists(st.integers(5, 40), min_size=1, max_size=3))
    steps, start = [], 1
    for fork in forks:
        steps.append(list(range(start, start + 60)))
        start = start + fork
    steps.append(list(range(start, start + 60)))
    whole = [write(folder / f"{k}.jsonl", part, float(k)) for k, part in enumerate(steps)]
    expected, line = stored(folder, Chain("hero", [segment(path) for path in whole]))
    store = open_store(":memory:", clock=lambda: 1e9)
    grown = folder / "grown"
    grown.mkdir()
    for k, part in enumerate(steps):
        for cut in sorted({*data.draw(st.lists(st.integers(2, 60), max_size=3)), 60}):
            write(grown / f"{k}.jsonl", part[:cut], float(k))
            chain = Chain("hero", [segment(str(grown / f"{j}.jsonl")) for j in range(k + 1)])
            pull(store, chain, role_of)
    assert store.history("hero", "loss").select("step", "value").rows() == expected
    assert [(a.source, a.first_step, a.valid_until, a.parent, a.reason) for a in store.attempts("hero")] == line


@pytest.mark.parametrize(
    "cursor", ["", "{}", '{"format": "chain", "at": 7, "names": [], "cursor": null, "begun": true}']
)
def test_a_cursor_that_does_not_fit_begins_anew(tmp_path, cursor):
    a = write(tmp_path / "a.jsonl", range(1, 11), 1.0)
    batches = list(Chain("hero", [segment(a)]).pull(cursor))
    assert batches[0].restart
    assert sum(len(batch.rows) for batch in batches) == 20
