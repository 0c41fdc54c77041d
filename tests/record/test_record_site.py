"""The operating record of a store with a secret in every field that may hold one: what is published, and what stays."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest
from guarded import NOW, PRIVATE, SECRETS, everything, finding, frame, incident, role_of

from flows.record.veil import HIDDEN, Policy, Veil, links
from flows.records import Attempt, Description, Event
from flows.stages.folder import MANIFEST
from flows.stages.gather import Terms
from flows.stages.preview import preview
from flows.stages.record import write_record
from flows.store import open_store


def test_not_one_secret_leaves_in_any_file_or_in_the_list_of_what_would_leave(store, rendered):
    files = everything(rendered)
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
    names = pl.read_parquet(rendered / "hero" / "hero.parquet")["name"].unique().to_list()
    assert names == ["train/loss"]
    assert "hero/incident-ccc.html" not in files  # of private metrics alone


def test_what_is_left_still_tells_the_story(rendered):
    document = json.loads((rendered / "hero" / "run.json").read_text())
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
    page = (rendered / "hero" / "index.html").read_text()
    assert "Not checked, because no metric with this role." in page
    said = (rendered / "hero" / "incident-bbb.html").read_text()
    assert "Resolved by person 1 at step 310" in said


def test_a_prediction_stands_beside_its_result(store, out):
    said = {
        "metric": "train/loss", "value": 2.0, "low": 1.5, "high": 2.5, "step": 499, "who": SECRETS["who"],
        "note": SECRETS["note"],
    }  # fmt: skip
    for body in (said, {**said, "step": 9_000}, {**said, "metric": SECRETS["metric"]}):
        store.expect("hero", "prediction", body)
    write_record(store, out, PRIVATE)
    told = json.loads((out / "hero" / "run.json").read_text())["expectations"]
    last = store.history("hero", "train/loss")["value"][-1]
    assert [(e["name"], e["expected"], e["low"], e["high"], e["result"]) for e in told] == [
        ("prediction of train/loss", 2.0, 1.5, 2.5, last), ("prediction of train/loss", 2.0, 1.5, 2.5, None),
        ("prediction", 2.0, 1.5, 2.5, None),
    ]  # fmt: skip
    assert not any(b"anary" in content for content in everything(out).values())
    page = (out / "hero" / "index.html").read_text()
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


def test_the_same_store_gives_the_same_bytes(store, rendered, tmp_path):
    write_record(store, tmp_path / "again", PRIVATE)
    assert everything(tmp_path / "again") == everything(rendered)


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
    kept = open_store(":memory:", clock=lambda: NOW)
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
    assert {path.name for path in tmp_path.iterdir()} == {"deep"}
    assert {path.name for path in (tmp_path / "deep").iterdir()} == {"out"}
    for path in out.rglob("*.html"):
        seen = Balance()
        seen.feed(path.read_text(encoding="utf-8"))
        assert not seen.tags & {"script", "img"}
        assert not any(sign in path.read_text() for sign in "\x1b\u202e")
