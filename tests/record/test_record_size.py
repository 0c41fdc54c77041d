"""A record of many incidents and metrics: small enough to send, quick to open, and drawn in seconds."""

from pathlib import Path

import pytest
import record_size
from chromium import NEEDS_CHROMIUM, audited, complaints, show

from flows.stages.gather import Terms
from flows.stages.record import write_record


def bytes_of(out: Path) -> int:
    """Without the samples."""
    return sum(file.stat().st_size for file in out.rglob("*") if file.is_file() and file.suffix != ".parquet")


def test_fifty_incidents_of_a_hundred_metrics_are_under_ten_megabytes_by_their_share(tmp_path):
    store = record_size.made_store(":memory:", incidents=1, metrics=20, steps=600)
    write_record(store, tmp_path / "out", Terms())
    [page] = (tmp_path / "out").glob("hero/incident-*.html")
    assert page.read_text(encoding="utf-8").count("<svg") == 2
    assert page.stat().st_size * 50 < 0.8 * record_size.MOST_BYTES
    assert (bytes_of(tmp_path / "out") - page.stat().st_size) < 0.02 * record_size.MOST_BYTES


@pytest.mark.faults
@NEEDS_CHROMIUM
def test_fifty_incidents_of_a_hundred_metrics_open_without_a_fault(tab, tmp_path):
    store = record_size.made_store(tmp_path / "s.duckdb")
    write_record(store, tmp_path / "out", Terms())
    assert bytes_of(tmp_path / "out") < record_size.MOST_BYTES
    assert len(list((tmp_path / "out").glob("hero/incident-*.html"))) == 50
    for page in ("index.html", "hero/index.html", "hero/incident-i007.html"):
        show(tab, tmp_path / "out" / page, 1200)
        assert complaints(tab) == []
        assert 0 < tab.value("performance.getEntriesByType('navigation')[0].domComplete") < 1000  # ms
        assert audited(tab) == []
