"""Where the pages of the record stand, and which of them there are."""

import pytest

from flows.record.places import Served, folder_name
from flows.record.veil import Policy


@pytest.mark.parametrize("name", ["../../etc", "a/b", "", "..", "x" * 300, "naïve run", "a\x00b", "CON.", "-rf"])
def test_no_name_leaves_the_folder(name):
    safe = folder_name(name)
    assert safe and "/" not in safe and not safe.startswith((".", "-")) and len(safe) < 100
    assert folder_name("plain-name_1.2") == "plain-name_1.2"


def test_names_that_differ_stay_apart():
    assert len({folder_name(name) for name in ("a/b", "a b", "a:b", "a-b")}) == 4


@pytest.mark.parametrize("url", ["https://a.example/r", "https://a.example/r/", "https://a.example/r/index.html"])
def test_an_incident_has_an_address_of_its_own_below_that_of_the_record(url):
    served = Served(url)
    assert served.run("hero") == "https://a.example/r/hero/index.html"
    assert served.incident("hero", "7f3a", 3, ["train/loss"]) == "https://a.example/r/hero/incident-7f3a.html"
    assert " " not in served.incident("hero moe", "a b", 3, []) and ".." not in served.incident("..", "../x", 3, [])


def test_what_has_no_page_has_no_address():
    served = Served("https://a.example", Policy(runs=("hero*",), metrics=("train/*",), names={"hero-7": "hero"}))
    assert (served.run("other"), served.incident("other", "i", 4, ["train/loss"])) == ("", "")
    assert served.incident("hero-7", "i", 0, ["train/loss"]) == ""  # an annotation
    assert served.incident("hero-7", "i", 4, ["secret/loss"]) == ""
    assert served.incident("hero-7", "i", 4, ["secret/loss", "train/loss"]) == "https://a.example/hero/incident-i.html"
    assert served.incident("hero-7", "i", 1, []) == "https://a.example/hero/incident-i.html"  # of the whole run
    assert Served().incident("hero", "i", 4, []) == ""
