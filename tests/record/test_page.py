import base64
import hashlib
import itertools
import re
from html.parser import HTMLParser

import pytest

from flows.record.page import page
from flows.record.pictures import draw
from flows.record.verdict import ranked, verdict

VOID = {"meta", "br", "hr", "img", "input", "link"}


def run_document(incidents, **more):
    return {
        "run": "hero-moe", "source": "hero.jsonl", "format": "jsonl", "step_key": "step", "first_step": 0.0,
        "last_step": 5400.0, "samples": 10_800, "incidents": incidents,
        "metrics": [{"name": "train/loss", "role": "loss", "samples": 5400, "last_value": 4.61, "unit": "nats"}],
        "not_checked": [{"check": "mfu", "reason": "no metric with this role"}], **more,
    }  # fmt: skip


class Outline(HTMLParser):
    """Tags in balance, ids once, and everything that could load something."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.loads, self.tags, self.headings = [], [], [], set(), []

    def handle_starttag(self, tag, attrs):
        held = dict(attrs)
        self.tags.add(tag)
        self.ids += [held["id"]] if "id" in held else []
        self.loads += [held[key] for key in ("src", "href", "xlink:href", "action", "data") if key in held]
        self.headings += [tag] if re.fullmatch(r"h\d", tag) else []
        assert not any(key.startswith("on") for key in held), held
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:])
        self.open.pop()


def outline(text):
    parser = Outline()
    parser.feed(text)
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids))
    return parser


@pytest.fixture(scope="module")
def known():
    return {}


@pytest.fixture
def whole(known, incident, curves, events, attempts):
    """The page with its picture, drawn once."""
    if "page" not in known:
        pictures = {("hero-moe", incident["id"]): draw(incident, curves, events, attempts)}
        known["page"] = page([run_document([incident])], pictures)
    return known["page"]


def test_the_page_is_whole_loads_nothing_and_runs_nothing(whole):
    seen = outline(whole)
    assert set(seen.loads) == {"#main"}
    assert not seen.tags & {"script", "iframe", "object", "embed", "link", "img", "form"}
    assert "url(http" not in whole and "@import" not in whole


def test_its_policy_allows_its_own_style_and_nothing_else(whole):
    style = re.search("<style>(.*?)</style>", whole, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src &#x27;none&#x27;; style-src &#x27;sha256-{digest}&#x27;" in whole
    assert ' style="' not in whole


def test_it_has_landmarks_and_headings_in_order(whole):
    seen = outline(whole)
    assert {"main", "footer", "article", "section", "figure"} <= seen.tags
    levels = [int(tag[1]) for tag in seen.headings]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))
    assert 'lang="en"' in whole and 'role="img" aria-label="Line charts of train/loss' in whole


def test_it_says_the_verdict_first_and_what_to_do_with_what_speaks_against_it(whole, incident):
    assert whole.index(f"S3: {incident['title']}") < whole.index("<article")
    assert "Go back to the checkpoint before step 5,204" in whole
    assert "Against: a warm-up may recover on its own within 500 steps" in whole
    assert "no metric with this role" in whole and "hero.jsonl" in whole


def test_the_same_document_gives_the_same_page(incident):
    assert page([run_document([incident])], {}) == page([run_document([incident])], {})


def test_nothing_found_is_said_with_what_was_not_checked():
    text = page([run_document([])], {})
    assert "Nothing that needs anybody up to step 5,400. Checks that could not be made: 1." in text
    outline(text)


def test_several_runs_have_a_list_that_leads_to_each(incident):
    text = page([run_document([incident]), run_document([], run="second")], {})
    seen = outline(text)
    assert set(seen.loads) == {"#main", "#run-0", "#run-1"} and {"run-0", "run-1"} <= set(seen.ids)


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "\x1b[31m\u202ex\x00",
        "&lt;b&gt;",
        "x" * 4000,
        "'; --",
    ],
)
def test_a_hostile_name_stays_text(name, incident):
    hostile = {
        **incident, "id": name, "title": name, "pattern": name,
        "findings": [{**f, "metric": name, "detector": name, "evidence": {name: name}} for f in incident["findings"]],
        "hypotheses": [{"pattern": name, "score": 1.0, "matched": [name], "contradicted": [name], "missing": [name]}],
        "suggestions": [{"do": name, "why": name, "cost": name, "evidence": [name], "counter_evidence": [name]}],
    }  # fmt: skip
    document = run_document(
        [hostile], run=name, source=name, format=name, step_key=name, not_checked=[{"check": name, "reason": name}],
        metrics=[{"name": name, "role": name, "samples": 1, "last_value": name, "unit": name}],
    )  # fmt: skip
    text = page([document], {}, note=name)
    seen = outline(text)
    assert not seen.tags & {"script", "img"}
    assert not any(sign in text for sign in "\x1b\x00\u202e")


def test_open_comes_before_resolved_and_grave_before_mild(incident):
    found = [
        {**incident, "id": "a", "severity": "S2"},
        {**incident, "id": "b", "severity": "S4", "status": "resolved"},
        {**incident, "id": "c", "severity": "S3"},
    ]
    assert [i["id"] for i in ranked(found)] == ["c", "a", "b"]
    assert verdict(run_document(found)).startswith("S3: ") and verdict(run_document(found)).endswith("(1 more open)")
    assert verdict(run_document([found[1]])).startswith(
        "Nothing is open up to step 5,400; 1 earlier incident, the worst: S4"
    )
    assert verdict(run_document([], samples=0)) == "Nothing to judge: no samples were read."
