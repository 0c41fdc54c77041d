"""The watch keeps the record up to date, and what it tells links to it."""

import json
import os
import re

import pytest

from flows.config import load_config
from flows.errors import BadConfig
from flows.passes import alerts_of
from flows.wiring import one_pass


@pytest.fixture
def config(tmp_path):
    lines = [f'{{"step": {step}, "train/loss": {3.0 - step / 100}}}' for step in range(60)]
    (tmp_path / "run.jsonl").write_text("\n".join(lines) + "\n")
    text = (
        '[[run]]\nsource = "run.jsonl"\nname = "hero"\n[record]\nout = "site"\nurl = "https://runs.example/record/"\n'
    )
    (tmp_path / "watchkeeper.toml").write_text(text)
    return load_config(tmp_path / "watchkeeper.toml")


def test_a_pass_writes_the_record_and_the_next_one_waits_until_it_is_due(config, tmp_path):
    report = one_pass(config)
    assert report.failures == []
    page = tmp_path / "site" / "hero" / "index.html"
    assert "Nothing that needs anybody up to step 59" in page.read_text()
    assert report.markdown().startswith("[Operating record](<https://runs.example/record/>)")
    page.unlink()
    one_pass(config)
    assert not page.exists()
    os.utime(tmp_path / "site" / "index.html", (0, 0))
    one_pass(config)
    assert page.exists()


def broken(tmp_path, more=""):
    """A run whose loss is no number at the end, told to a folder."""
    lines = [f'{{"step": {step}, "train/loss": {"NaN" if step > 55 else 3.0 - step / 100}}}' for step in range(60)]
    (tmp_path / "run.jsonl").write_text("\n".join(lines) + "\n")
    text = '[[run]]\nsource = "run.jsonl"\nname = "hero"\n[[channel]]\nname = "team"\nurl = "folder:told"\n'
    text += f'[record]\nout = "site"\nurl = "https://runs.example/record"\n{more}\n'
    (tmp_path / "watchkeeper.toml").write_text(text)
    report = one_pass(load_config(tmp_path / "watchkeeper.toml"))
    assert report.failures == []
    told = "".join(
        path.read_text() for path in (tmp_path / "told").iterdir() if path.suffix in (".txt", ".md", ".html")
    )
    return report, told


def test_every_word_of_an_incident_leads_to_its_page_in_the_site(tmp_path):
    report, told = broken(tmp_path)
    addresses = set(re.findall(r"https://runs\.example/record[^\s>\"<]*", told))
    (address,) = addresses
    page = tmp_path / "site" / address.removeprefix("https://runs.example/record/")
    title = report.changes[0].incident.title
    assert title in re.sub(r"<[^>]+>", "", page.read_text())
    assert len(told.split(address)) - 1 >= 3  # as text, Markdown and HTML
    lines = report.markdown().splitlines()
    assert lines.count(f"- **S4** hero: [{title}](<{address}>)") == 1  # what is open
    assert lines.count(f"- **S4 opened** hero: [{title}](<{address}>)") == 1
    (alert,) = alerts_of(report)
    assert alert["payload"]["page"] == address
    json.dumps(alert)


def test_nothing_leads_to_a_run_that_is_not_published(tmp_path):
    report, told = broken(tmp_path, 'runs = ["other"]')
    assert "is NaN" in told or "NaN" in told
    assert "runs.example" not in told
    assert [alert["payload"]["page"] for alert in alerts_of(report)] == [""]
    assert [line for line in report.markdown().splitlines() if "](<" in line] == [
        "[Operating record](<https://runs.example/record>)"
    ]


@pytest.mark.parametrize("url", ["javascript:alert(1)", "https://a:b@host/", "ftp://x", "https://x/?a=1"])
def test_an_address_that_is_none_is_told(tmp_path, url):
    (tmp_path / "watchkeeper.toml").write_text(f'[record]\nurl = "{url}"\n')
    with pytest.raises(BadConfig, match=r"record\.url"):
        load_config(tmp_path / "watchkeeper.toml")
