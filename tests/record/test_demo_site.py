"""The record of a recorded run: in a real Chromium, judged by axe-core, and checked by an outsider from its samples alone."""

from pathlib import Path

import pytest
from chromium import NEEDS_CHROMIUM, audited, complaints, show

from flows.playbook import load_playbook
from flows.sources.catalogue import open_sources
from flows.sources.roles import role_of
from flows.stages.document import run_document
from flows.stages.gather import Terms
from flows.stages.judge import judge
from flows.stages.pull import pull
from flows.stages.record import write_record
from flows.store import open_store
from flows.verbs.check import run_checks

RUNS = Path(__file__).parents[2] / "data" / "runs"


@pytest.fixture(scope="module")
def store():
    kept = open_store(":memory:", clock=lambda: 1_700_000_000.0)
    for source in open_sources(str(RUNS / "lr_hot_resume.parquet")):
        pull(kept, source, role_of, final=True)
        judge(kept, source.describe().run, load_playbook, clock=lambda: 1_700_000_000.0)
    return kept


@pytest.fixture(scope="module")
def site(store, tmp_path_factory):
    out = tmp_path_factory.mktemp("site") / "record"
    write_record(store, out, Terms())
    return out


def test_an_outsiders_check_of_the_published_samples_finds_the_same_incidents(store, site):
    mine = run_document(store, "lr_hot_resume")["incidents"]
    theirs = run_checks([str(site / "lr_hot_resume" / "lr_hot_resume.parquet")], step_key=None, store=None, html=None)[
        0
    ]["incidents"]
    assert len(mine) >= 4
    assert timeless(theirs) == timeless(mine)


def timeless(incidents):
    """Without when they were written down."""
    return [
        {**i, "findings": [{k: v for k, v in f.items() if k != "recorded_at"} for f in i["findings"]]}
        for i in incidents
    ]


PAGES = ["index.html", "lr_hot_resume/index.html", "gravest"]


def file_of(site, page):
    if page != "gravest":
        return site / page
    return max((site / "lr_hot_resume").glob("incident-*.html"), key=lambda path: path.stat().st_size)


@NEEDS_CHROMIUM
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("width", "dark"), [(400, False), (1200, True)])
def test_every_kind_of_page_opens_from_a_file_without_an_error_a_request_or_a_fault(tab, site, page, width, dark):
    file = file_of(site, page)
    show(tab, file, width, dark)
    assert tab.value("document.documentElement.scrollWidth") <= width
    requests = [e["params"]["request"]["url"] for e in tab.events if e["method"] == "Network.requestWillBeSent"]
    assert requests == [file.as_uri()]
    assert complaints(tab) == []
    assert audited(tab) == []


@NEEDS_CHROMIUM
def test_the_keyboard_reaches_every_link_and_shows_where_it_is(tab, site):
    show(tab, site / "lr_hot_resume" / "index.html", 1200)
    tab.ask("Page.bringToFront")
    links = tab.value("document.querySelectorAll('a, summary, [tabindex]').length")
    seen = set()
    for _ in range(links + 1):
        for kind in ("rawKeyDown", "keyUp"):
            tab.ask("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        if tab.value("document.activeElement === document.body"):
            break  # past the last one
        seen.add(tab.value("[...document.querySelectorAll('a, summary, [tabindex]')].indexOf(document.activeElement)"))
        assert tab.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert seen == set(range(links)) - hidden(tab)


def hidden(tab):
    """Those inside a part that is folded up."""
    every = "[...document.querySelectorAll('a, summary, [tabindex]')]"
    return set(tab.value(f"{every}.map((e, i) => e.checkVisibility() ? -1 : i).filter(i => i >= 0)"))
