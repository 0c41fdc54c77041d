"""The record brought up to date: which files are written again, for what, and what becomes of the others."""

import json
from hashlib import sha256

import numpy as np
import pytest
from guarded import NOW, PRIVATE, frame, role_of

from flows.errors import BadConfig
from flows.record import pictures
from flows.record.veil import Policy
from flows.records import Attempt, Event, Operation
from flows.stages.folder import MANIFEST
from flows.stages.gather import Terms
from flows.stages.record import write_record


@pytest.fixture(autouse=True)
def drawn(monkeypatch):
    """Ids of the incidents that were drawn; a picture here is a digest of all that it would show."""
    ids = []

    def draw(incident, curves, events, attempts):
        ids.append(incident["id"])
        samples = b"".join(column.tobytes() for c in curves for column in (c.step, c.value, c.attempt))
        told = sha256(samples + repr((incident, events, attempts)).encode()).hexdigest()
        return pictures.Picture(told, told, "")

    monkeypatch.setattr(pictures, "draw", draw)
    return ids


def test_what_has_not_changed_is_neither_drawn_nor_written(store, out, drawn):
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.name != MANIFEST}
    again = write_record(store, out, PRIVATE)
    assert again.written == [] and drawn == [] and len(again.kept) >= 9
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.name != MANIFEST} == times
    store.operate(Operation("hero", "note", "ada", NOW, "later", "aaa", step=320.0))
    third = write_record(store, out, PRIVATE)
    assert sorted(third.written) == ["hero/incident-aaa.html", "hero/index.html", "hero/run.json"]
    assert drawn == ["aaa"]


def changed(store, out, terms=PRIVATE):
    """Which files a rewriting of the record touches, and of which incidents samples were read for it."""
    read, real = [], store.samples
    store.samples = lambda *asked: read.append(asked[2:]) or real(*asked)
    done = write_record(store, out, terms)
    store.samples = real
    return done.written, len(read)


OF_THE_RUN = ["hero/hero.parquet", "hero/index.html", "hero/run.json", "index.html", "record.json"]
LINE = [Attempt(1, 0.0, None, "start", 300.0), Attempt(2, 300.0, 1, "rewind")]


def test_a_run_that_goes_on_touches_no_page_of_an_incident_that_is_over(store, out):
    store.append("hero", frame(("train/loss", 2, np.arange(500.0, 520.0), np.ones(20))), LINE, "", "", {}, role_of)
    written, read = changed(store, out)
    assert sorted(written) == sorted([*OF_THE_RUN, "hero/incident-aaa.html"])  # which is open: its chart goes on
    assert read == 1  # of two
    assert changed(store, out) == ([], 1)


def test_a_value_that_was_replaced_or_came_late_is_drawn_anew_where_it_is_shown(store, out):
    # replaced behind what the page of the incident that is over shows; then among it; then one between two known steps
    first, over = ["hero/incident-aaa.html"], ["hero/incident-bbb.html"]
    for step, pages in ((480.0, first), (102.0, over), (101.5, over)):
        store.append("hero", frame(("train/loss", 2 - (step < 300), [step], [9.0])), LINE, "", "", {}, role_of)
        written, _ = changed(store, out)
        assert [path for path in written if "incident" in path] == pages


def test_an_event_changes_only_the_charts_that_show_it(store, out):
    for step, pages in ((450.0, ["hero/incident-aaa.html"]), (120.0, ["hero/incident-bbb.html"])):
        store.add_event("hero", Event("eval", step))
        written, _ = changed(store, out)
        assert [path for path in written if "incident" in path] == pages


def test_a_page_that_was_deleted_comes_back(store, out):
    (out / "hero" / "incident-bbb.html").unlink()
    assert changed(store, out)[0] == ["hero/incident-bbb.html"]


def test_what_may_not_be_published_any_more_goes_and_a_strangers_file_stays(store, out):
    (out / "CNAME").write_text("mine")
    done = write_record(store, out, Terms(Policy(runs=("other-run",))))
    assert "hero/hero.parquet" in done.removed and not (out / "hero").exists()
    assert (out / "CNAME").read_text() == "mine"


def test_a_folder_of_something_else_and_a_way_out_of_the_folder_are_refused(store, out, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "index.html").write_text("mine")
    with pytest.raises(BadConfig, match="holds something else"):
        write_record(store, tmp_path / "home", PRIVATE)
    (tmp_path / "precious").write_text("x")
    (out / MANIFEST).write_text(json.dumps({"files": {"../precious": "x"}}))
    write_record(store, out, PRIVATE)
    assert (tmp_path / "precious").exists()
