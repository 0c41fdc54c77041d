"""The watch keeps the record up to date, and its report links to it."""

import os

import pytest

from flows.config import load_config
from flows.errors import BadConfig
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
    assert report.markdown().startswith("[Operating record](https://runs.example/record/)")
    page.unlink()
    one_pass(config)
    assert not page.exists()
    os.utime(tmp_path / "site" / "index.html", (0, 0))
    one_pass(config)
    assert page.exists()


@pytest.mark.parametrize("url", ["javascript:alert(1)", "https://a:b@host/", "ftp://x"])
def test_an_address_that_is_none_is_told(tmp_path, url):
    (tmp_path / "watchkeeper.toml").write_text(f'[record]\nurl = "{url}"\n')
    with pytest.raises(BadConfig, match=r"record\.url"):
        load_config(tmp_path / "watchkeeper.toml")
