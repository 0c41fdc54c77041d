"""The page in a real Chromium, at phone and desk width: no error, no request, nothing wider than the screen."""

import pytest
from chromium import NEEDS_CHROMIUM, complaints, show

from flows.record.page import page
from flows.record.pictures import draw

pytestmark = NEEDS_CHROMIUM


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture
def file(pages, incident, curves, events, attempts):
    """The page, drawn once."""
    path = pages / "index.html"
    if path.exists():
        return path
    document = {
        "run": "hero-moe", "source": "hero.jsonl", "format": "jsonl", "step_key": "step", "first_step": 0.0,
        "last_step": 5400.0, "samples": 3020, "incidents": [incident],
        "metrics": [
            {"name": f"layer/{n}/a_rather_long_name_of_a_leaf/grad_norm", "role": "grad_norm", "samples": 9} for n in range(9)
        ],
        "not_checked": [{"check": "mfu", "reason": "no metric with this role"}],
    }  # fmt: skip
    path.write_text(page([document], {("hero-moe", incident["id"]): draw(incident, curves, events, attempts)}))
    return path


@pytest.mark.parametrize("width", [320, 400, 1200])
def test_the_page_fits_the_screen_and_asks_for_nothing(tab, file, width):
    show(tab, file, width)
    assert tab.value("document.documentElement.scrollWidth") <= width
    requests = [e["params"]["request"]["url"] for e in tab.events if e["method"] == "Network.requestWillBeSent"]
    assert requests == [file.as_uri()]
    assert complaints(tab) == []
    assert tab.value("document.querySelector('h1').textContent") == "hero-moe"


@pytest.mark.parametrize(("width", "shown", "hidden"), [(400, "narrow", "wide"), (1200, "wide", "narrow")])
def test_each_width_has_its_own_drawing_with_letters_large_enough(tab, file, width, shown, hidden):
    show(tab, file, width)
    visible = "getComputedStyle(document.querySelector('figure .{}')).display"
    assert tab.value(visible.format(shown)) == "block" and tab.value(visible.format(hidden)) == "none"
    letters = f"[...document.querySelectorAll('.{shown} svg text')].map(t => t.getBoundingClientRect().height)"
    assert min(height for height in tab.value(letters) if height) >= 9
    drawn = tab.value(f"document.querySelector('.{shown} svg').getBoundingClientRect().width")
    assert drawn <= width and drawn > 0.7 * min(width, 900)


def test_the_dark_page_is_dark_and_its_lines_are_light(tab, file):
    ground = "getComputedStyle(document.body).backgroundColor"
    line = "getComputedStyle(document.querySelector('svg [stroke=\"var(--line)\"]')).stroke"
    show(tab, file, 1200, dark=True)
    assert (tab.value(ground), tab.value(line)) == ("rgb(21, 23, 26)", "rgb(116, 180, 245)")
    show(tab, file, 1200, dark=False)
    assert (tab.value(ground), tab.value(line)) == ("rgb(255, 255, 254)", "rgb(29, 95, 169)")


def test_a_reader_for_the_blind_finds_landmarks_names_and_the_picture(tab, file):
    show(tab, file, 1200)
    tab.ask("Accessibility.enable")
    nodes = tab.ask("Accessibility.getFullAXTree")["nodes"]
    known = {
        (n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n.get("ignored") and "role" in n
    }
    roles = {role for role, _ in known}
    assert {"main", "contentinfo", "article", "heading", "table"} <= roles
    assert any(role in ("image", "img") and name.startswith("Line charts of train/loss") for role, name in known)
    assert ("region", "Evidence") in known
