"""The catalogue of detectors is what the code says."""

from pathlib import Path

import catalogue

PAGE = Path(__file__).parents[2] / "docs" / "detectors.md"


def test_the_page_is_made_from_the_code():
    assert PAGE.read_text(encoding="utf-8") == catalogue.page(), (
        "run: python tests/bench/catalogue.py > docs/detectors.md"
    )


def test_every_detector_stands_in_it_with_what_fools_it():
    text = PAGE.read_text(encoding="utf-8")
    for name in catalogue.names():
        part = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
        for promise in ("**Looks at:**", "**Sees:**", "**Silent:**", "**Fooled by:**", "**Units:**"):
            assert promise in part, (name, promise)
