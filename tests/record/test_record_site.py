"""The operating record of a store with a secret in every field that may hold one: what is published, and what stays."""

import json
import re
from datetime import datetime
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest

from flows.errors import BadConfig
from flows.record.veil import HIDDEN, Policy, Veil, links
from flows.records import STORED_SCHEMA, Attempt, Description, Event, Operation, Role
from flows.stages.folder import MANIFEST
from flows.stages.gather import Terms
from flows.stages.preview import preview
from flows.stages.record import write_record
from flows.store import open_store

NOW = 1_700_000_000.0
# a secret a field, each of a shape of its own; none may leave
SECRETS = {
    "source": "/srv/canary-one/run.jsonl", "segment": "canary-two@login7", "reason": "canary-three moved racks",
    "note": "canary-four mixture",
    "who": "Canary Five", "why": "canary-six said so", "detail": "canary-seven", "event_source": "canary-eight",
    "kind": "canary-nine", "check": "canary-ten", "own_why": "canary-eleven budget", "column": "canary-twelve",
    "channel": "canary-thirteen", "host": "canary-fourteen", "error": "canary-fifteen", "cursor": "canary-sixteen",
    "message": "canary-seventeen", "metric": "canary-eighteen/loss", "bound": "canary-nineteen", "parameters": "canary-twenty",
    "label": "canary-21", "field": "canary-22",
}  # fmt: skip


def role_of(name):
    return Role("loss", "nats", "down") if "loss" in name else Role("other")


def finding(name, incident, metric, onset, detector="shifts", **evidence):
    return {
        "run": "hero", "finding_id": name, "incident_id": incident, "attempt": 1, "detector": detector, "version": "1",
        "parameters": json.dumps({"x": SECRETS["parameters"]}), "kind": "level", "metric": metric, "role": "loss",
        "direction": "up", "onset_step": onset, "detected_step": onset + 8, "magnitude": 0.5, "unit": "log", "severity": 2,
        "episode": name,
        "evidence": json.dumps({"before": 1.0, "after": 2.0, "label": SECRETS["label"], **evidence}),
        "recorded_at": datetime(2026, 1, 1),
    }  # fmt: skip


def incident(name, severity, onset, title, status="open", resolved=None):
    said = {
        "matched": [f"loss up after {SECRETS['note']}"],
        "contradicted": [],
        "missing": [],
        "checks": [{"sql": SECRETS["bound"]}],
    }
    offered = {"do": f"ask {SECRETS['who']}", "why": "because", "cost": "none", "bound": SECRETS["bound"],
               "secret": SECRETS["field"],
               "evidence": [f"seen in {SECRETS['source']}"], "counter_evidence": [], "reversible": True}  # fmt: skip
    return {
        "run": "hero", "incident_id": name, "attempt": 1, "severity": severity, "status": status, "title": title,
        "pattern": "loss_divergence", "confidence": 0.8, "onset_step": onset, "detected_step": onset + 8,
        "resolved_step": resolved, "severity_history": json.dumps([{"step": onset + 8, "severity": severity}]),
        "hypotheses": json.dumps([{"pattern": "x", "score": 1.0, **said}]), "suggestions": json.dumps([offered]),
        "opened_at": datetime(2026, 1, 1), "updated_at": datetime(2026, 1, 1),
    }  # fmt: skip


def frame(*columns):
    rows = [(float(s), None, name, float(v), attempt, False) for name, attempt, steps, values in columns
            for s, v in zip(steps, values, strict=True)]  # fmt: skip
    return pl.DataFrame(rows, schema=STORED_SCHEMA, orient="row")


@pytest.fixture
def store(tmp_path):
    chance = np.random.default_rng(3)
    kept = open_store(tmp_path / "s.duckdb", clock=lambda: NOW)
    kept.register_run(Description("hero", SECRETS["source"], "jsonl", "step"))
    kept.register_run(Description("other-run", "x", "jsonl", "step"))
    line = [
        Attempt(1, 0.0, None, "start", 300.0, SECRETS["segment"]),
        Attempt(2, 300.0, 1, SECRETS["reason"], source=SECRETS["segment"]),
    ]
    steps, again = np.arange(400.0), np.arange(300.0, 500.0)
    rows = frame(
        ("train/loss", 1, steps, chance.normal(2, 0.1, 400)), (SECRETS["metric"], 1, steps, steps),
        ("train/loss", 2, again, chance.normal(2, 0.1, 200)),
    )  # fmt: skip
    kept.append("hero", rows, line, SECRETS["cursor"], SECRETS["cursor"], {}, role_of)
    kept.append("other-run", frame(("train/loss", 1, steps[:9], steps[:9])), line[:1], "", "", {}, role_of)
    kept.add_event(
        "hero",
        Event("deploy", 250.0, note=SECRETS["note"], source=SECRETS["event_source"], detail={"x": SECRETS["detail"]}),
    )
    kept.add_event("hero", Event(SECRETS["kind"], 260.0))
    own = {
        "check": SECRETS["check"],
        "why": SECRETS["own_why"],
        "title": "",
        "row": {"x": SECRETS["column"]},
        SECRETS["field"]: 3.0,
    }
    message = {
        "delivery_id": "d", "run": "hero", "incident_id": "aaa", "transition": "opened", "channel": SECRETS["channel"],
        "message": SECRETS["message"], "message_id": "m",
    }  # fmt: skip
    coverage = [
        {"check_name": "mfu", "metric": "", "reason": "no metric with this role", "count": 0},
        {"check_name": "spikes", "metric": "train/loss", "reason": "checked", "count": 1},
        {"check_name": "bounds", "metric": "", "reason": f"no such metric: {SECRETS['bound']}", "count": 1},
        {"check_name": "shifts", "metric": SECRETS["metric"], "reason": "checked", "count": 1},
        {"check_name": "pull", "metric": "", "reason": f"{SECRETS['source']}: lines without a step", "count": 2},
    ]
    kept.save_judgement(
        "hero", upto_batch=1, run_state="", states={}, coverage=coverage, deliveries=[message],
        incidents=[
            incident("aaa", 3, 305.0, f"train/loss rose at step 305 with {SECRETS['metric']}; see {SECRETS['source']}"),
            incident("bbb", 2, 100.0, f"check {SECRETS['check']} found train/loss: {SECRETS['own_why']}", "resolved", 200.0),
            incident("ccc", 2, 50.0, f"{SECRETS['metric']} rose"),
        ],
        findings=[
            finding("f1", "aaa", "train/loss", 305.0), finding("f2", "aaa", SECRETS["metric"], 306.0),
            finding("f3", "bbb", "train/loss", 100.0, "checks", **own), finding("f4", "ccc", SECRETS["metric"], 50.0),
        ],
    )  # fmt: skip
    for number, kind in enumerate(("ack", "note", "resolve")):
        kept.operate(
            Operation(
                "hero", kind, SECRETS["who"], NOW + number, SECRETS["why"], "aaa" if number < 2 else "bbb", step=310.0
            )
        )
    return kept


PRIVATE = Terms(Policy(metrics=("train/*",)))


def everything(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_not_one_secret_leaves_in_any_file_or_in_the_list_of_what_would_leave(store, tmp_path):
    write_record(store, tmp_path / "out", PRIVATE)
    files = everything(tmp_path / "out")
    assert {
        "index.html",
        "record.json",
        "hero/index.html",
        "hero/incident-aaa.html",
        "hero/run.json",
        "hero/hero.parquet",
    } <= set(files)
    listed = "\n".join(preview(store, PRIVATE))
    for path, content in {**files, "preview": listed.encode()}.items():
        found = re.findall(rb"(?i)canary.{0,30}", content)
        assert not found, (path, found[:3])
    names = pl.read_parquet(tmp_path / "out" / "hero" / "hero.parquet")["name"].unique().to_list()
    assert names == ["train/loss"]
    assert "hero/incident-ccc.html" not in files  # of private metrics alone


def test_what_is_left_still_tells_the_story(store, tmp_path):
    write_record(store, tmp_path / "out", PRIVATE)
    document = json.loads((tmp_path / "out" / "hero" / "run.json").read_text())
    first = next(i for i in document["incidents"] if i["id"] == "aaa")
    assert first["title"] == f"train/loss rose at step 305 with {HIDDEN}; see {HIDDEN}"
    assert [(o["who"], o["what"], o["why"]) for o in first["operations"]] == [
        ("person 1", "ack", ""),
        ("person 1", "note", ""),
    ]
    assert first["findings"][0]["evidence"] == {"before": 1.0, "after": 2.0}
    own = next(i for i in document["incidents"] if i["id"] == "bbb")
    assert own["findings"][0]["evidence"] == {"after": 2.0}
    told = [
        (line["step"], line["kind"], line["text"])
        for line in document["timeline"]
        if line["kind"] in ("attempt", "abandoned", "event")
    ]
    assert told == [
        (0.0, "attempt", "The run started (attempt 1)."), (250.0, "event", "deploy"), (260.0, "event", "event"),
        (300.0, "attempt", "Attempt 2 went on from here (segment)."),
        (399.0, "abandoned", "Attempt 1 ended; what it had done from step 300 on was abandoned."),
    ]  # fmt: skip
    assert {row["check"]: (row["state"], row["why"]) for row in document["board"]} == {
        "shifts": ("open", []), "checks": ("past", []), "spikes": ("fine", []),
        "mfu": ("not checked", ["no metric with this role"]),
        "bounds": ("not checked", ["one of the owner's own could not be looked at"]),
    }  # fmt: skip
    page = (tmp_path / "out" / "hero" / "index.html").read_text()
    assert "Not checked, because no metric with this role." in page
    said = (tmp_path / "out" / "hero" / "incident-bbb.html").read_text()
    assert "Resolved by person 1 at step 310" in said


def test_a_prediction_stands_beside_its_result(store, tmp_path):
    import duckdb

    said = {
        "metric": "train/loss",
        "value": 2.0,
        "low": 1.5,
        "high": 2.5,
        "step": 499,
        "who": SECRETS["who"],
        "note": SECRETS["note"],
    }
    with duckdb.connect(str(store.path)) as connection:
        for body in (said, {**said, "step": 9_000}, {**said, "metric": SECRETS["metric"]}):
            row = ["hero", "prediction", "1", datetime(2026, 1, 1), json.dumps(body)]
            connection.execute("INSERT INTO expectations VALUES (?, ?, ?, ?, ?)", row)
    write_record(store, tmp_path / "out", PRIVATE)
    told = json.loads((tmp_path / "out" / "hero" / "run.json").read_text())["expectations"]
    last = store.history("hero", "train/loss")["value"][-1]
    assert [(e["name"], e["expected"], e["low"], e["high"], e["result"]) for e in told] == [
        ("prediction of train/loss", 2.0, 1.5, 2.5, last), ("prediction of train/loss", 2.0, 1.5, 2.5, None),
        ("prediction", 2.0, 1.5, 2.5, None),
    ]  # fmt: skip
    assert not any(b"anary" in content for content in everything(tmp_path / "out").values())
    page = (tmp_path / "out" / "hero" / "index.html").read_text()
    assert "2 (1.5 to 2.5)" in page and "not yet" in page


def test_the_owner_may_show_people_and_notes_and_call_a_run_otherwise(store, tmp_path):
    policy = Policy(runs=("hero",), show=frozenset({"people", "notes"}), names={"hero": "big-moe"})
    write_record(store, tmp_path / "out", Terms(policy, samples=False))
    files = everything(tmp_path / "out")
    assert {path.partition("/")[0] for path in files} == {"index.html", "record.json", MANIFEST, "big-moe"}
    assert not any(path.endswith(".parquet") for path in files)
    page = files["big-moe/incident-aaa.html"].decode()
    assert SECRETS["who"] in page and SECRETS["why"] in page
    assert not any(b"hero" in content for content in files.values())


def test_what_has_not_changed_is_neither_drawn_nor_written(store, tmp_path, monkeypatch):
    out = tmp_path / "out"
    first = write_record(store, out, PRIVATE)
    assert first.kept == [] and len(first.written) >= 7
    times = {path: (out / path).stat().st_mtime_ns for path in first.written}
    drawn = []
    from flows.record import pictures

    real = pictures.draw
    monkeypatch.setattr(pictures, "draw", lambda incident, *more: drawn.append(incident["id"]) or real(incident, *more))
    again = write_record(store, out, PRIVATE)
    assert again.written == [] and drawn == []
    assert {path: (out / path).stat().st_mtime_ns for path in first.written} == times
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


def test_a_run_that_goes_on_touches_no_page_of_an_incident_that_is_over(store, tmp_path):
    write_record(store, tmp_path / "out", PRIVATE)
    store.append("hero", frame(("train/loss", 2, np.arange(500.0, 520.0), np.ones(20))), LINE, "", "", {}, role_of)
    written, read = changed(store, tmp_path / "out")
    assert sorted(written) == sorted([*OF_THE_RUN, "hero/incident-aaa.html"])  # which is open: its chart goes on
    assert read == 1  # of two
    assert changed(store, tmp_path / "out") == ([], 1)


def test_a_value_that_was_replaced_or_came_late_is_drawn_anew_where_it_is_shown(store, tmp_path):
    write_record(store, tmp_path / "out", PRIVATE)
    # replaced behind what the page of the incident that is over shows; then among it; then one between two known steps
    first, over = ["hero/incident-aaa.html"], ["hero/incident-bbb.html"]
    for step, pages in ((480.0, first), (102.0, over), (101.5, over)):
        store.append("hero", frame(("train/loss", 2 - (step < 300), [step], [9.0])), LINE, "", "", {}, role_of)
        written, _ = changed(store, tmp_path / "out")
        assert [path for path in written if "incident" in path] == pages


def test_an_event_changes_only_the_charts_that_show_it(store, tmp_path):
    write_record(store, tmp_path / "out", PRIVATE)
    for step, pages in ((450.0, ["hero/incident-aaa.html"]), (120.0, ["hero/incident-bbb.html"])):
        store.add_event("hero", Event("eval", step))
        written, _ = changed(store, tmp_path / "out")
        assert [path for path in written if "incident" in path] == pages


def test_a_page_that_was_deleted_comes_back(store, tmp_path):
    write_record(store, tmp_path / "out", PRIVATE)
    (tmp_path / "out" / "hero" / "incident-bbb.html").unlink()
    assert changed(store, tmp_path / "out")[0] == ["hero/incident-bbb.html"]


def test_the_same_store_gives_the_same_bytes(store, tmp_path):
    write_record(store, tmp_path / "one", PRIVATE)
    write_record(store, tmp_path / "two", PRIVATE)
    assert everything(tmp_path / "one") == everything(tmp_path / "two")


def test_what_may_not_be_published_any_more_goes_and_a_strangers_file_stays(store, tmp_path):
    out = tmp_path / "out"
    write_record(store, out, PRIVATE)
    (out / "CNAME").write_text("mine")
    done = write_record(store, out, Terms(Policy(runs=("other-run",))))
    assert "hero/hero.parquet" in done.removed and not (out / "hero").exists()
    assert (out / "CNAME").read_text() == "mine"


def test_a_folder_of_something_else_and_a_way_out_of_the_folder_are_refused(store, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "index.html").write_text("mine")
    with pytest.raises(BadConfig, match="holds something else"):
        write_record(store, tmp_path / "home", PRIVATE)
    out = tmp_path / "out"
    write_record(store, out, PRIVATE)
    (tmp_path / "precious").write_text("x")
    (out / MANIFEST).write_text(json.dumps({"files": {"../precious": "x"}}))
    write_record(store, out, PRIVATE)
    assert (tmp_path / "precious").exists()


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("read /home/ada/runs/a.jsonl at once", f"read {HIDDEN} at once"),
        ("from s3://bucket/x and gs://b", f"from {HIDDEN} and {HIDDEN}"),
        ("on ada@login7.cluster and 10.0.0.17", f"on {HIDDEN} and {HIDDEN}"),
        (r"C:\Users\ada\run.csv", HIDDEN),
        ("~/runs/x.jsonl", HIDDEN),
        ("train/loss rose 3/4 of eval/paloma/c4_en", "train/loss rose 3/4 of eval/paloma/c4_en"),
        ("x1.77 at step 1,700 (5-95 %)", "x1.77 at step 1,700 (5-95 %)"),
    ],
)
def test_places_are_veiled_and_metrics_and_numbers_are_not(said, shown):
    assert Veil(Policy(), "hero", ["train/loss"]).text(said) == shown


def test_a_link_is_a_web_address_without_a_password():
    given = {
        "commit": "https://git.example/c/{run}",
        "bad": "javascript:alert(1)",
        "worse": "https://a:b@c.example/x",
        "file": "file:///x",
    }
    assert links(given, "hero") == [("commit", "https://git.example/c/hero")]


class Balance(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.tags, self.hrefs, self.headings = [], set(), [], []

    def handle_starttag(self, tag, attrs):
        held = dict(attrs)
        self.tags.add(tag)
        self.hrefs += [held["href"]] if "href" in held else []
        self.headings += [int(tag[1])] if re.fullmatch(r"h\d", tag) else []
        assert not any(key.startswith("on") for key in held)
        if tag not in ("meta", "br", "hr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_every_page_is_balanced_its_links_lead_somewhere_and_headings_go_step_by_step(store, tmp_path):
    out = tmp_path / "out"
    write_record(store, out, Terms())
    for path in out.rglob("*.html"):
        seen = Balance()
        seen.feed(path.read_text(encoding="utf-8"))
        assert seen.open == [] and not seen.tags & {"script", "img", "link", "iframe", "form"}
        for href in seen.hrefs:
            assert href == "#main" or href.startswith("#p") or (path.parent / href).is_file(), (path, href)
        assert seen.headings[0] == 1 and seen.headings.count(1) == 1
        assert all(b - a <= 1 for a, b in zip(seen.headings, seen.headings[1:], strict=False)), (path, seen.headings)


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "../../etc",
        "\x1b[31m\u202ex",
        "@everyone",
        "=cmd()",
    ],
)
def test_a_hostile_name_stays_text_and_inside_the_folder(tmp_path, name):
    kept = open_store(tmp_path / "s.duckdb", clock=lambda: NOW)
    kept.register_run(Description(name, "x", "jsonl", "step"))
    kept.append(
        name, frame((name, 1, np.arange(30.0), np.arange(30.0))), [Attempt(1, 0.0, None, "start")], "", "", {}, role_of
    )
    kept.add_event(name, Event(name, 5.0, note=name))
    hostile = {**incident("../x", 3, 9.0, name), "run": name, "pattern": name}
    kept.save_judgement(name, upto_batch=1, run_state="", states={}, incidents=[hostile], findings=[
        {**finding("f", "../x", name, 9.0), "run": name, "detector": name, "role": name, "unit": name, "kind": name},
    ], coverage=[{"check_name": name, "metric": name, "reason": name, "count": 1}])  # fmt: skip
    out = tmp_path / "deep" / "out"
    write_record(kept, out, Terms(Policy(show=frozenset({"notes", "people", "sources"})), title=name))
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith("s.duckdb")} == {"deep"}
    assert {path.name for path in (tmp_path / "deep").iterdir()} == {"out"}
    for path in out.rglob("*.html"):
        seen = Balance()
        seen.feed(path.read_text(encoding="utf-8"))
        assert not seen.tags & {"script", "img"}
        assert not any(sign in path.read_text() for sign in "\x1b\u202e")
